"""Evaluation: what a world can do, measured on games that its training never saw."""
