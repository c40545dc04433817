"""The two ways that a world's parts lie on a disk: in a folder of our own, or as the files that people download.

A `World` asks its storage for tensors, tokenizers and file notes, and knows no other difference. No torch here.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .downloads import signature_of
from .parts import PARTS, TOKENIZER, open_part
from .storage import CheckpointError, FileNote, TensorSource, note_of

if typing.TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..prompt import GameTokenizer
    from .lora import LowRanks
    from .published import Published

Notes = Mapping[str, FileNote]  # path below the folder, with slashes -> what is known of the file


class Storage(typing.Protocol):
    """Where the parts of one world are, and how they are read."""

    folder: Path

    def notes(self, part: str) -> Notes:
        """The files of a part; empty where it has none."""

    def note(self, path: str) -> FileNote:
        """What `notes` says of a file, found anew."""

    def remedy(self, part: str) -> str:
        """Where a part that is missing belongs and how to get it, to end a sentence with."""

    def source(self, part: str) -> TensorSource:
        """The tensors of a part, under the names of our models, without low-rank updates."""

    def lora(self, part: str) -> LowRanks:
        """The low-rank updates of a part's layers; empty where it has none."""

    def tokenizer(self) -> GameTokenizer:
        """The engine's tokenizer."""

    def text_tokenizer(self) -> Tokenizer | None:
        """The text tower's tokenizer, where there is one."""


@dataclass(frozen=True)
class OwnFolder:
    """A folder that `save_world` made. `files` is what its manifest lists, with checksums."""

    folder: Path
    files: Notes = field(default_factory=dict)

    def notes(self, part: str) -> Notes:
        """The files that the manifest lists of a part."""
        return {path: note for path, note in self.files.items() if part_of(path) == part}

    def note(self, path: str) -> FileNote:
        """The checksum of the whole file."""
        return note_of(self.folder / path)

    def remedy(self, part: str) -> str:
        """`convert` or training makes a part; one that the manifest lists was there."""
        where = self.folder / PARTS[part].folder
        if self.notes(part):
            where = f"{where}, where files are gone or cut off; put them back, or train a small world's part anew"
        return f"in {where}; `convert` or `new` makes it from {PARTS[part].source}"

    def source(self, part: str) -> TensorSource:
        """The part's safetensors."""
        return open_part(self.folder, part)

    def lora(self, part: str) -> LowRanks:
        """Those of the part's adapter file, where the manifest lists one."""
        from .lora_files import ADAPTER, read_lora

        folder = PARTS[part].folder
        return read_lora(self.folder / folder) if f"{folder}/{ADAPTER}" in self.files else {}

    def tokenizer(self) -> GameTokenizer:
        """Reads engine/tokenizer.json."""
        from ..prompt import GameTokenizer

        return GameTokenizer.from_file(self._checked("engine"))

    def text_tokenizer(self) -> Tokenizer | None:
        """Reads encoder/text_tower/tokenizer.json."""
        from ..prompt import read_tokenizer

        path = self._checked("text_tower")
        return read_tokenizer(path) if path.is_file() else None

    def _checked(self, part: str) -> Path:
        """The tokenizer of a part, compared with the manifest: a changed word would change what every prompt says."""
        name = f"{PARTS[part].folder}/{TOKENIZER}"
        path, known = self.folder / name, self.files.get(name)
        if known is not None and path.is_file() and self.note(name) != known:
            raise CheckpointError(
                f"{path}: not the tokenizer that the world was saved with ({path.stat().st_size} bytes, "
                f"expected {known.bytes}, with sha256 {known.sha256[:12]}...); convert or download it again"
            )
        return path


class PublishedFolder:
    """A folder of downloads, read in place. A file's note is its size and the checksum of both its ends."""

    def __init__(self, published: Published) -> None:
        self.folder = published.downloads.folder
        self._published = published
        known = {path: signature_of(path) for paths in published.files.values() for path in paths}
        self._notes = {
            part: {path.relative_to(self.folder).as_posix(): known[path] for path in paths}
            for part, paths in published.files.items()
        }

    def notes(self, part: str) -> Notes:
        """The downloaded files that a part is read from."""
        return self._notes.get(part, {})

    def note(self, path: str) -> FileNote:
        """Size and signature."""
        return signature_of(self.folder / path)

    def remedy(self, part: str) -> str:
        """Downloads are the way to get a part."""
        return f"in {self.folder}; it is read from {PARTS[part].source}, which `fetch` downloads"

    def source(self, part: str) -> TensorSource:
        """Tensors made from the published ones when asked for."""
        return self._published.sources[part]

    def lora(self, part: str) -> LowRanks:
        """Those that the published file holds beside its base weights."""
        return self._published.sources[part].lora()

    def tokenizer(self) -> GameTokenizer:
        """Mistral's own, with the game's tokens added."""
        from ..prompt import GameTokenizer

        mistral = self._published.downloads.mistral
        if mistral is None:
            raise CheckpointError(f"{self.folder}: no Mistral-7B-Instruct-v0.1 folder, which holds the tokenizer")
        return GameTokenizer.from_mistral(mistral)

    def text_tokenizer(self) -> Tokenizer | None:
        """T5's own."""
        from .published import text_tokenizer

        folder = self._published.downloads.text_tower
        return None if folder is None else text_tokenizer(folder)


def part_of(path: str) -> str:
    """The part whose folder a file of our own lies in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")
