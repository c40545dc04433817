"""Atomic writes: a file is written next to its place, then moved there. Lock files; checks of names.

After a power cut a disk may hold any part of what was not flushed: content and names are flushed apart. So a file is
flushed before it gets its name, and the name before anything that relies on it is written.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from safetensors import SafetensorError

from .messages import shortened

if TYPE_CHECKING:
    from PIL import Image

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
UNFINISHED = "part-"  # prefix of unfinished files, to recognise leftovers of a crash
_PORTS = (f"{port}{n}" for port in ("COM", "LPT") for n in "123456789\u00b9\u00b2\u00b3")
_DEVICES = {"CON", "PRN", "AUX", "NUL", "CONIN$", "CONOUT$", *_PORTS}
_PLAIN = re.compile(r"[^\x00\ud800-\udfff:/\\]+")
_NAME = re.compile(r'[^\x00-\x1f\ud800-\udfff<>:"/\\|?*]{1,80}')
_NAME_BYTES = 255  # limit of most file systems; a letter takes up to 4 bytes


def is_plain_name(name: str) -> bool:
    """Whether `folder / name` is a file of that name in the folder, on every system.

    It is not for a path, a drive (C:), a stream of another file (a:b), and a device (NUL.mp4); Windows leaves out
    periods and spaces at the end.
    """
    return (
        _PLAIN.fullmatch(name) is not None
        and not name.endswith((".", " "))
        and len(name.encode()) <= _NAME_BYTES
        and name.split(".")[0].strip().upper() not in _DEVICES
    )


def is_inside(path: str) -> bool:
    """Whether a path with forward slashes names a file below the folder that it is appended to, on every system."""
    parts = PurePosixPath(path).parts
    return bool(parts) and all(map(is_plain_name, parts))


def check_folder_name(name: str, what: str = "story") -> str:
    """`name`; ValueError if it is not a valid folder name on every system. what: what the folder holds, for errors."""
    if not _NAME.fullmatch(name) or name != name.strip() or not is_plain_name(name):
        raise ValueError(
            f"{what} name {shortened(repr(name), 120)} is not a valid folder name; use 1 to 80 characters (at most "
            f'{_NAME_BYTES} bytes), without < > : " / \\ | ? * and control characters; it has no space at either '
            "end, no period at the end, and is no Windows device name such as CON"
        )
    return name


def is_part(name: str) -> bool:
    """Whether a file of this name is what `replacing` leaves after a crash. "part-2.mp4" is not: it has no process."""
    return re.fullmatch(rf"{UNFINISHED}[0-9]+-.+", name, re.DOTALL) is not None


def free_bytes(path: Path) -> int:
    """What is free on the disk of a path, which may not exist yet."""
    there = next(place for place in (path.absolute(), *path.absolute().parents) if place.is_dir())
    return shutil.disk_usage(there).free


@contextmanager
def room_for(path: Path, again: str = "run the same command again") -> Iterator[None]:
    """Around a write to `path`: turns any error of a full disk into one OSError that says how much is free.

    again: what to do then.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else _code_of(error)
        if code not in DISK_FULL:
            raise
        what = f"{os.strerror(code)} ({free_bytes(path) / 1e6:.1f} MB free); finished work is kept"
        remedy = "choose a disk that takes larger files" if code == errno.EFBIG else "free some space"
        raise OSError(code, f"{what}; {remedy} and {again}", str(path)) from error


def _code_of(error: SafetensorError) -> int | None:
    """The system's number of a failed write, which safetensors gives as text."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    code = int(found[1]) if found else None
    return errno.ENOSPC if os.name == "nt" and code in (39, 112) else code  # Windows' own numbers of a full disk


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; it replaces `path` when the block ends, and after an error nothing has changed.

    Readers see the old file or the new one, never a part. The path keeps the suffix, by which media writers choose the
    format. The file gets the mode of any new file in the folder.
    """
    make_folder(path.parent)
    part = path.with_name(f"{UNFINISHED}{os.getpid()}-{path.name}")
    part.unlink(missing_ok=True)  # left by a crashed process with the same id; may be a hard link
    try:
        with room_for(path):
            part.touch()
            mode = part.stat().st_mode  # reading the umask would change it for all threads
            part.unlink()
            yield part
            written = part.stat()
            if written.st_mode != mode and written.st_nlink == 1:  # a hard link shares its mode with another file
                part.chmod(stat.S_IMODE(mode))  # safetensors creates files that only the owner can read
            sync_file(part)
            rename(part, path)
    finally:
        part.unlink(missing_ok=True)


def rename(part: Path, path: Path) -> None:
    """Give a finished file or folder its name, on disk too; a file of that name is replaced."""
    os.replace(part, path)
    sync_folder(path.parent)


def sync_file(path: Path) -> None:
    """Flush a file's content to disk."""
    with path.open("r+b") as file:  # Windows flushes only what is open for writing
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to disk, where the system can: Windows and some network shares cannot."""
    if os.name == "nt":
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be written to but not read
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder and the missing ones above it, on disk too."""
    missing = list(itertools.takewhile(lambda path: not path.exists(), (folder, *folder.parents)))
    with room_for(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for made in missing:
            sync_folder(made.parent)


def write_text(path: Path, text: str) -> None:
    """Replace a file with `text` (UTF-8, newlines `\\n` on every system)."""
    with replacing(path) as part:
        part.write_text(text, encoding="utf-8", newline="\n")


def append_line(path: Path, text: str) -> None:
    """Append whole lines (UTF-8, each ending in `\\n`) to a file, and flush them to disk.

    On a full disk nothing is added, and OSError names the file. If the file's last line has no end, the text starts on
    a new line. For one writer at a time.
    """
    assert text.endswith("\n"), text
    data, is_new = text.encode("utf-8"), not path.exists()
    with room_for(path), path.open("a+b", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if size:
            file.seek(-1, os.SEEK_END)
            data = data if file.read(1) == b"\n" else b"\n" + data
        try:
            if file.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise
    if is_new:
        sync_folder(path.parent)


def remove_torn_line(path: Path) -> None:
    """Remove a last line without an end, which a kill cut off, from a file that lines are appended to."""
    if path.is_file():
        with path.open("r+b") as file:
            file.truncate(file.read().rfind(b"\n") + 1)


def save_picture(picture: Image.Image, path: Path) -> None:
    """Write a PNG, atomically."""
    with replacing(path) as part:
        picture.save(part, format="PNG")


@contextmanager
def locked(path: Path, refusal: str) -> Iterator[None]:
    """Hold the lock file `path`; ValueError with `refusal` if it is held already, in this process or another.

    The system releases the lock when the process ends, so none is ever stale. On file systems without locks (some
    network shares) nobody is refused.
    """
    make_folder(path.parent)
    with room_for(path):
        file = path.open("a+b", buffering=0)
    with file:
        try:
            _lock(file.fileno())
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                raise ValueError(refusal) from error
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL):
                raise
        yield


if sys.platform == "win32":

    def _lock(descriptor: int) -> None:
        import msvcrt

        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)

else:

    def _lock(descriptor: int) -> None:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
