"""Judging by others: stories written by a language model, scores by a vision model, ranks by people."""
