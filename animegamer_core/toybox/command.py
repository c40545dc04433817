"""Runs the Toybox's own commands, such as `python -m animegamer_core.toybox.build`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from ..messages import escape_output


def run_command(name: str, main: Callable[[], int]) -> NoReturn:
    """Exit with the status of `main`; on a ValueError or OSError, print its message to stderr and exit with 2."""
    escape_output()
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(2)
