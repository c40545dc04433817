"""Progress in one line of the error output, which is rewritten."""

from __future__ import annotations

import sys
import types


def overwrite(text: str) -> None:
    """Show text on a terminal, in the place of what the last call showed."""
    sys.stderr.write(f"\r\x1b[K{text}")
    sys.stderr.flush()


class ProgressLine:
    """The bytes that are moved while a `with` block runs."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | types.TracebackType | None) -> None:
        if self._shown:
            sys.stderr.write("\n")

    def show(self, done: int, total: int, what: str) -> None:
        """Show the bytes done, the total (0: unknown), and what is being transferred."""
        amount = f"{done / total:5.0%} of {total / 1e9:.1f} GB" if total else f"{done / 1e9:5.1f} GB"
        sys.stderr.write(f"\r{amount}  {what[-60:]:60}")
        sys.stderr.flush()
        self._shown = True
