"""The command line: a dataclass of options for each verb, and for each task of `dataset` and `evaluate`.

Its `run()` does the work and returns the exit status.
"""
