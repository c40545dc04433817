"""Ablations: variants of the training recipe, trained and scored in the Toybox, next to the paper's. Start at `run`."""
