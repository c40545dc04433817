"""Training: what each stage trains (`stages`), and the loop that all share (`loop`). Start at `run.train_stage`."""
