"""Files that a crash cannot tear: they are written beside their place and moved there at once. Locks on folders."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL import Image

PART = "part-"  # begins the name of every unfinished file, so that leftovers of a crash are known


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path beside `path` to write to; once the block ends it is `path`, and after an error nothing has changed.

    A reader sees the old file or the new, never half. The suffix is kept, since writers of media choose by it. Whatever
    writes the file, whoever may read other new files of the folder may read it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f"{PART}{os.getpid()}-{path.name}")
    part.unlink(missing_ok=True)  # left by a crash under the same process number, perhaps a hard link
    mode = mode_of_new(part)
    try:
        yield part
        written = part.stat()
        if written.st_mode != mode and written.st_nlink == 1:  # a hard link is another file too: not ours to change
            part.chmod(stat.S_IMODE(mode))  # safetensors makes files that only their owner can read
        with part.open("r+b") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def mode_of_new(path: Path) -> int:
    """The mode that a new file gets here, which the umask and the folder decide; asking the umask itself would change
    it for a moment in all threads. Nothing is at `path` before and after."""
    path.touch()
    try:
        return path.stat().st_mode
    finally:
        path.unlink()


def write_text(path: Path, text: str) -> None:
    """Replace a file by `text` (UTF-8, newlines as `\\n` on every system)."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def append_line(path: Path, text: str, sync: bool = True) -> None:
    """Add whole lines (UTF-8, each ending in `\\n`) to a file; they are on the disk when this returns, unless sync is
    off, for lines that are quickly made again.

    On a full disk nothing is added, and OSError names the file. Where a kill cut off the file's last line, these begin
    on a line of their own. For one writer at a time.
    """
    assert text.endswith("\n"), text
    data = text.encode("utf-8")
    with path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if sync:
                os.fsync(file.fileno())
        except OSError as error:
            file.truncate(size)
            raise OSError(error.errno, error.strerror, str(path)) from error


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG, replaced at once."""
    with replacing(path) as part:
        picture.save(part, format="PNG")


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock file `path`; ValueError with `refusal` while anybody else holds it, in this process or another.

    The system gives a lock back when its process ends, however it ends, so none is ever stale. Where a disk knows no
    locks (some network shares) nobody is refused.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            _lock(file.fileno())
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise ValueError(refusal) from error
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                raise
        yield


if os.name == "nt":

    def _lock(descriptor: int) -> None:
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:

    def _lock(descriptor: int) -> None:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_nlink == 0:
            raise BlockingIOError(errno.EAGAIN, "who held the lock before has taken its file away")
