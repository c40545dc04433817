"""How the Toybox's own commands end: `python -m animegamer_core.toybox.film` and the like."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn


def run_command(name: str, main: Callable[[], int]) -> NoReturn:
    """Exit with the status of `main`, or with 2 and one sentence about a mistake that the user can mend."""
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        sys.exit(2)
