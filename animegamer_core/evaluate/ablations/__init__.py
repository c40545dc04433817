"""Ablations: overrides of the Toybox's recipe, trained and scored there, next to the paper's. Start at `run`."""
