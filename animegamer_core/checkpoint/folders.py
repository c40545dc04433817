"""The folder that a world's parts are stored in.

Importing this imports no torch.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .lora_files import ADAPTER, LoraUpdates, read_lora
from .parts import PARTS, TOKENIZER
from .storage import CheckpointError, FileNote, SafetensorsSource, TensorSource, find_safetensors, note_of

if typing.TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ..life import Stat
    from ..model.prompt import GameTokenizer

Notes = Mapping[str, FileNote]  # path below the folder, with slashes -> its checksum and size


@dataclass(frozen=True)
class OwnFolder:
    """A folder that `save_world` made. `files` is what its manifest lists, with checksums."""

    folder: Path
    files: Notes = field(default_factory=dict)

    def notes(self, part: str) -> Notes:
        """The files of a part in the manifest."""
        return {path: note for path, note in self.files.items() if part_of(path) == part}

    def note(self, path: str) -> FileNote:
        """The checksum of the whole file."""
        return note_of(self.folder / path)

    def remedy(self, part: str) -> str:
        """The part's folder, and that `convert` and `new` make it."""
        where = self.folder / PARTS[part].folder
        if self.notes(part):
            where = (
                f"{where}, where files are missing or cut off; restore them, or train this part of a small world again"
            )
        return f"in {where}; `convert` or `new` makes it from {PARTS[part].source}"

    def source(self, part: str) -> TensorSource:
        """The part's safetensors."""
        folder = self.folder / PARTS[part].folder
        path = find_safetensors(folder)
        if path is None:
            raise CheckpointError(f"{folder}: no safetensors weights; convert again from {PARTS[part].source}")
        return SafetensorsSource(path)

    def lora(self, part: str) -> LoraUpdates:
        """The LoRA in the part's folder, if the manifest lists it."""
        folder = PARTS[part].folder
        return read_lora(self.folder / folder) if f"{folder}/{ADAPTER}" in self.files else {}

    def tokenizer(self, stats: Sequence[Stat]) -> GameTokenizer:
        """Reads engine/tokenizer.json."""
        from ..model.prompt import GameTokenizer

        return GameTokenizer.from_file(self._checked("engine"), stats)

    def text_tokenizer(self) -> Tokenizer | None:
        """Reads encoder/text_tower/tokenizer.json."""
        from ..model.prompt import read_tokenizer

        path = self._checked("text_tower")
        return read_tokenizer(path) if path.is_file() else None

    def _checked(self, part: str) -> Path:
        """A part's tokenizer, whose checksum must be the manifest's: a changed word would change all prompts."""
        name = f"{PARTS[part].folder}/{TOKENIZER}"
        path, known = self.folder / name, self.files.get(name)
        if known is not None and path.is_file() and self.note(name) != known:
            raise CheckpointError(
                f"{path}: this is not the tokenizer that the world was saved with ({path.stat().st_size} bytes, "
                f"expected {known.bytes}, with sha256 {known.sha256[:12]}...); convert or download it again"
            )
        return path


def part_of(path: str) -> str:
    """The part whose folder a file of our own is in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")
