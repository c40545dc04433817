"""Files that travel between machines as a few small pieces of one archive, since device machines take small files."""

from __future__ import annotations

import gzip
import io
import re
import sys
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..files import replacing

PIECE_BYTES = 15 * 2**20
PIECES = 8
SUFFIX = ".tar.gz"


def packed(sources: Mapping[str, Path]) -> bytes:
    """An archive of files and folders by the names that they shall have in it; those that are missing are left out."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz", compresslevel=3) as archive:
        for name, path in sources.items():
            if path.exists():
                archive.add(path, name)
    return whole.getvalue()


def write_pieces(data: bytes, folder: Path, name: str) -> list[Path]:
    """Write an archive as pieces of at most PIECE_BYTES, in place of those of an earlier one.

    All are written before the first takes its place, so that a kill or a full disk leaves the earlier ones. A kill
    while they take their places leaves a mixture, which `unpack` refuses.
    """
    starts = range(0, len(data), PIECE_BYTES)
    written = [folder / f"{name}{SUFFIX}.{number}" for number in range(len(starts))]
    with ExitStack() as all_written:
        for piece, start in zip(written, starts, strict=True):
            part = all_written.enter_context(replacing(piece))
            part.write_bytes(data[start : start + PIECE_BYTES])
    for piece in set(_pieces(folder, name)) - set(written):
        piece.unlink()
    return written


def unpack(folder: Path, name: str, into: Path) -> None:
    """Put what an archive's pieces hold in its place below `into`.

    ValueError where they are missing, or damaged, in which case nothing is unpacked; or for a Python that cannot keep
    an archive from writing outside `into`.
    """
    if not hasattr(tarfile, "data_filter"):
        raise ValueError(f"Python {sys.version.split()[0]} unpacks no archive safely; take 3.10.12, 3.11.4 or newer")
    pieces = _pieces(folder, name)
    if not pieces:
        raise ValueError(f"{folder} holds no {name}{SUFFIX}.0; give the folder that an export wrote")
    data = io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))
    try:
        with gzip.open(data) as whole:
            while whole.read(2**20):  # to the end, where the sum over all pieces stands
                pass
        data.seek(0)
        with tarfile.open(fileobj=data) as archive:
            archive.extractall(into, filter="data")
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        told = f"{pieces[0]} and its {len(pieces) - 1} further pieces are not whole ({error})"
        raise ValueError(f"{told}; export them again") from error


def _pieces(folder: Path, name: str) -> list[Path]:
    found = {path: re.fullmatch(rf"{re.escape(name + SUFFIX)}\.(\d+)", path.name) for path in folder.glob(f"{name}*")}
    return sorted((path for path, told in found.items() if told), key=lambda path: int(path.suffix[1:]))
