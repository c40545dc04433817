"""Our own folder of weights, one a world: `world.json` and the parts that it lists.

    world.json            format, spec, profile, motion table, provenance, licence notice, checksums
    engine/               GameEngine, and tokenizer.json
    decoder/  vae/        ShotDecoder in two parts, with the constant unconditional rows
    encoder/              how text and picture features are mixed; text_tower/ and image_tower/ inside
Playing needs engine, decoder and vae. Opening a world reads json only and imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from ..spec import ModelSpec, Profile, get_profile
from ..state import MOTION_TABLES, MotionTable
from .parts import ENCODER_PARTS, PARTS, PLAY_PARTS, TOKENIZER, LiveTensors, load_model, open_part, parts_of, stage_part
from .storage import (
    DEFAULT_SHARD_BYTES,
    CheckpointError,
    FileNote,
    SafetensorsSource,
    StagedFolder,
    note_of,
    read_json,
    write_json,
)

if typing.TYPE_CHECKING:
    import torch
    from torch import nn

    from ..decoder import ShotDecoder
    from ..encoder import ShotEncoder
    from ..engine import GameEngine
    from ..prompt import GameTokenizer

FORMAT = 1  # raised when an older program could misread the folder
MANIFEST = "world.json"
EMBEDDED = {"toybox": Path(__file__).parent.parent / "toybox" / "weights"}
MODEL_KINDS = {"GameEngine": "engine", "ShotDecoder": "decoder", "ShotEncoder": "encoder"}


@dataclass(frozen=True)
class World:
    """An opened world folder. Nothing of its weights is read before one of the `load_` methods."""

    folder: Path
    spec: ModelSpec
    profile: Profile
    motion_table: MotionTable
    provenance: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    files: Mapping[str, FileNote] = field(default_factory=dict)  # path below the folder, with slashes -> note

    @property
    def fingerprint(self) -> str:
        """64 hex digits that change with all that a played turn depends on: weights, sizes, profile, motion table."""
        played = {path: note.sha256 for path, note in self.files.items() if _part_of(path) in PLAY_PARTS}
        facts = {
            "files": played,
            "spec": self.spec.to_dict(),
            "profile": asdict(self.profile),
            "motion_table": asdict(self.motion_table),
        }
        return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()

    def with_profile(self, name: str) -> World:
        """The same world played by another named profile."""
        return replace(self, profile=get_profile(name))

    def has(self, part: str) -> bool:
        """Whether every file of a part is there, with the size that the manifest states."""
        notes = {path: note for path, note in self.files.items() if _part_of(path) == part}
        return bool(notes) and all(
            (self.folder / path).is_file() and (self.folder / path).stat().st_size == note.bytes
            for path, note in notes.items()
        )

    def missing(self, parts: tuple[str, ...] = tuple(PARTS)) -> tuple[str, ...]:
        """One sentence for each part that is absent or incomplete: what it is, and how to put it where."""
        return tuple(
            f"{part} is not complete in {self.folder / PARTS[part].folder}; "
            f"`convert` makes it from {PARTS[part].source}"
            for part in parts
            if not self.has(part)
        )

    def verify(self, parts: tuple[str, ...] = tuple(PARTS)) -> None:
        """Compare the files of these parts with their checksums; CheckpointError names the first that differs."""
        for path, note in self.files.items():
            if _part_of(path) in parts and (not (self.folder / path).is_file() or note_of(self.folder / path) != note):
                raise CheckpointError(
                    f"{self.folder / path}: not the file that {MANIFEST} lists (expected sha256 {note.sha256[:12]}..., "
                    f"{note.bytes} bytes); convert or download it again"
                )

    def tokenizer(self) -> GameTokenizer:
        """The engine's tokenizer; reads only its file."""
        from ..prompt import GameTokenizer

        return GameTokenizer.from_file(self.folder / PARTS["engine"].folder / TOKENIZER)

    def load_engine(self, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> GameEngine:
        """The game engine, in eval mode. dtype None: float32 on the CPU, else as stored (float32 as bfloat16)."""
        from ..engine import GameEngine

        sources = self._sources(("engine",))
        tokenizer = self.tokenizer()
        return load_model(lambda: GameEngine(self.spec, tokenizer, self.profile), sources, device, dtype)

    def load_decoder(
        self,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        parts: tuple[str, ...] = ("decoder", "vae"),
    ) -> ShotDecoder:
        """The shot decoder with its VAE, in eval mode; dtype and parts as for the engine and the encoder."""
        from ..decoder import ShotDecoder

        return load_model(lambda: ShotDecoder(self.spec, self.profile), self._sources(parts), device, dtype)

    def load_encoder(
        self,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        parts: tuple[str, ...] = ENCODER_PARTS,
    ) -> ShotEncoder:
        """The shot encoder, in eval mode; dtype as for the engine. Parts left out stay without memory (meta device)."""
        from tokenizers import Tokenizer

        from ..encoder import ShotEncoder

        path = self.folder / PARTS["text_tower"].folder / TOKENIZER
        tokenizer = Tokenizer.from_file(str(path)) if path.is_file() else None
        return load_model(lambda: ShotEncoder(self.spec, tokenizer), self._sources(parts), device, dtype)

    def _sources(self, parts: tuple[str, ...]) -> dict[str, SafetensorsSource]:
        missing = self.missing(parts)
        if missing:
            raise CheckpointError(f"world {self.spec.name!r} cannot load this: {missing[0]}")
        return {part: open_part(self.folder, part) for part in parts}


def open_world(name: str | Path) -> World:
    """The world of a folder, or an embedded one by its name (`toybox`); CheckpointError says what is wrong with it."""
    folder = EMBEDDED.get(str(name), Path(name))
    manifest = folder / MANIFEST
    if not manifest.is_file():
        raise CheckpointError(
            f"{name}: no world here (no {MANIFEST}); give 'toybox' or a folder that `convert` or a build has made"
        )
    values = read_json(manifest)
    if values.get("format") != FORMAT:
        raise CheckpointError(
            f"{manifest}: format is {values.get('format')!r}, this program reads {FORMAT}; "
            "update the program or convert again"
        )
    try:
        return World(
            folder=folder,
            spec=ModelSpec.from_dict(values["spec"]),
            profile=get_profile(values["profile"]),
            motion_table=_read_table(values["motion_table"]),
            provenance=dict(values.get("provenance", {})),
            licence=str(values.get("licence", "")),
            files={_inside(path): FileNote(**note) for path, note in values["files"].items()},
        )
    except KeyError as error:
        raise CheckpointError(f"{manifest}: field {error} is missing") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise CheckpointError(f"{manifest}: {error}") from error


def save_world(
    folder: str | Path,
    spec: ModelSpec,
    *,
    profile: str = "paper",
    motion_table: MotionTable | None = None,
    provenance: Mapping[str, str] | None = None,
    licence: str = "",
) -> World:
    """Make (or describe anew) the world folder itself; parts that it has stay. `save_part` puts the weights in.

    motion_table None is the table `released`, which published weights were trained with.
    """
    path = Path(folder)
    known = open_world(path).files if (path / MANIFEST).is_file() else {}
    world = World(
        folder=path,
        spec=spec,
        profile=get_profile(profile),
        motion_table=motion_table or MOTION_TABLES["released"],
        provenance=dict(provenance or {}),
        licence=licence,
        files=known,
    )
    write_manifest(world)
    return world


def save_part(
    world: World,
    model: nn.Module,
    *,
    dtype: torch.dtype | None = None,
    max_shard_bytes: int = DEFAULT_SHARD_BYTES,
) -> World:
    """Store a GameEngine, ShotDecoder or ShotEncoder (and its tokenizer) in the world; returns the world as it is now.

    dtype None keeps the tensors' types; no file passes max_shard_bytes unless one tensor alone does. A crash leaves
    the old part, or one that `missing` reports; never a mixture.
    """
    for part in parts_of(MODEL_KINDS[type(model).__name__]):
        staged = stage_part(world.folder, part, model, LiveTensors(model, part, dtype), max_shard_bytes)
        world = commit_part(world, part, staged)
    return world


def commit_part(world: World, part: str, staged: StagedFolder) -> World:
    """Put a staged part in place. The manifest forgets the old part first, so a crash between cannot pass for whole."""
    notes = {f"{PARTS[part].folder}/{name}": note for name, note in staged.notes().items()}
    kept = {path: note for path, note in world.files.items() if _part_of(path) != part}
    if len(kept) != len(world.files):
        write_manifest(replace(world, files=kept))
    staged.commit()
    world = replace(world, files={**kept, **notes})
    write_manifest(world)
    return world


def write_manifest(world: World) -> None:
    """Write world.json."""
    values = {
        "format": FORMAT,
        "spec": world.spec.to_dict(),
        "profile": world.profile.name,
        "motion_table": asdict(world.motion_table),
        "provenance": dict(world.provenance),
        "licence": world.licence,
        "files": {path: asdict(note) for path, note in sorted(world.files.items())},
    }
    write_json(world.folder / MANIFEST, values)


def _part_of(path: str) -> str:
    """The part whose folder a file lies in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")


def _inside(path: str) -> str:
    """A file path of a manifest, refused unless it lies in the folder of a part."""
    name = path.rpartition("/")[2]
    if not _part_of(path) or name in ("", ".", "..") or "\\" in path or ":" in path:
        raise ValueError(
            f"file {path!r} lies in no part's folder; expected {', '.join(part.folder for part in PARTS.values())}"
        )
    return path


def _read_table(values: typing.Any) -> MotionTable:
    """A motion table from json; ValueError if it does not hold five values and, where measured, four edges."""
    numbers, edges = values["values"], values["edges"]
    if len(numbers) != 5 or edges is not None and len(edges) != 4:
        raise ValueError(f"motion_table: expected 5 values and 4 edges or null, found {numbers!r} and {edges!r}")
    return MotionTable(
        str(values["name"]),
        tuple(float(number) for number in numbers),
        None if edges is None else tuple(float(edge) for edge in edges),
    )
