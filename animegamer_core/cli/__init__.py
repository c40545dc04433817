"""The command line: a module for each verb, and for each task of `evaluate`.

A verb's module has `Options`, a dataclass or a union of them, and `run(options)`, which returns the exit status.
"""
