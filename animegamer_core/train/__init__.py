"""Training: the stages (`stages`), and the loop that they share (`loop`). Start reading at `run.train_stage`."""
