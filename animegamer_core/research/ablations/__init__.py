"""Ablations: variants of the training recipe, trained and scored in the Toybox beside the paper's. Start at `run`."""
