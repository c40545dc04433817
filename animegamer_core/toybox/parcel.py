"""Files that travel between machines as a few small pieces of one archive, since device machines take small files."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

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
    """Write an archive as pieces of at most PIECE_BYTES, in place of those of an earlier one."""
    folder.mkdir(parents=True, exist_ok=True)
    for piece in _pieces(folder, name):
        piece.unlink()
    starts = range(0, len(data), PIECE_BYTES)
    written = [folder / f"{name}{SUFFIX}.{number}" for number in range(len(starts))]
    for piece, start in zip(written, starts, strict=True):
        piece.write_bytes(data[start : start + PIECE_BYTES])
    return written


def unpack(folder: Path, name: str, into: Path) -> None:
    """Put what an archive's pieces hold in its place below `into`; ValueError where they are missing or damaged."""
    pieces = _pieces(folder, name)
    if not pieces:
        raise ValueError(f"{folder} holds no {name}{SUFFIX}.0; give the folder that an export wrote")
    data = io.BytesIO(b"".join(piece.read_bytes() for piece in pieces))
    try:
        with tarfile.open(fileobj=data) as archive:
            archive.extractall(into, filter="data")
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{pieces[0]} and its {len(pieces) - 1} further pieces are not whole ({error})") from error


def _pieces(folder: Path, name: str) -> list[Path]:
    found = {path: re.fullmatch(rf"{re.escape(name + SUFFIX)}\.(\d+)", path.name) for path in folder.glob(f"{name}*")}
    return sorted((path for path, told in found.items() if told), key=lambda path: int(path.suffix[1:]))
