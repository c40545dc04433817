"""What the verbs that move gigabytes show meanwhile."""

from __future__ import annotations

import sys
import types


class ProgressLine:
    """One line of the error output that is rewritten while a `with` block runs, and ended however the block ends."""

    def __init__(self) -> None:
        self._shown = False

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | types.TracebackType | None) -> None:
        if self._shown:
            sys.stderr.write("\n")

    def show(self, done: int, total: int, what: str) -> None:
        """Bytes done, of how many (0: not known), and of what."""
        share = f"{done / total:5.0%} of {total / 1e9:.1f} GB" if total else f"{done / 1e9:5.1f} GB"
        sys.stderr.write(f"\r{share}  {what[-60:]:60}")
        sys.stderr.flush()
        self._shown = True
