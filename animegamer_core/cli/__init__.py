"""The command line, a module for each verb, and for each task of `evaluate`."""

from __future__ import annotations

import argparse
import typing


class Verb(typing.Protocol):
    """What the module of a verb or of a task offers."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Do the work; returns the exit status."""
