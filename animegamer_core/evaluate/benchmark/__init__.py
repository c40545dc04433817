"""Measures the speed and memory of a turn, next to the same turn computed with stock modules in the same run."""
