"""Evaluation of a world on games that its training never saw."""
