"""A disk of a few KB that can grow, for what happens when it is full. Limits on single files, which take no root."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A file system of its own at `folder`; skips the test where none may be mounted (it takes root)."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "none", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no file system may be mounted here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def resize(folder: Path, kilobytes: int, names: int = 0) -> None:
    """Make the disk at `folder` larger or smaller. names: how many files and folders it can hold, if not any number."""
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k,nr_inodes={names}", str(folder)], check=True)


@contextmanager
def short_files(size: int) -> Iterator[None]:
    """A block in which no file can grow beyond `size` bytes."""
    resource = pytest.importorskip("resource", reason="limits on file sizes are POSIX")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
