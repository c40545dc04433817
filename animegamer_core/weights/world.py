"""Open and load worlds. A world is a folder:
    world.json            format, spec, profile, motion table, provenance, licence notice, checksums; its life's
                          rules and words
    engine/               GameEngine, and its tokenizer
    decoder/  vae/        ShotDecoder in two parts, with the constant unconditional rows
    encoder/              ShotEncoder: mixes text and image features; text_tower/ and image_tower/ inside
Playing needs engine, decoder and vae. Opening a folder reads json only and imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import typing
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import msgspec

from ..files import is_plain_name
from ..game.life import Life
from ..game.recall import RECALL, RECENT, Memory
from ..game.state import DEFAULT_WINDOW, MotionTable
from ..spec import LARGEST, UNSTATED, ModelSpec, Profile, Reading, Sampling, get_profile
from .adapter_files import PLAYED, Adapters, adapter_checksum, adapter_facts
from .parts import ENCODER_PARTS, PARTS, PLAY_PARTS, LoraUpdates, load_model, on_cpu, parts_of_model, read_lora
from .storage import CheckpointError, FileNote, SafetensorsSource, TensorSource, matrix_dtype, note_of, read_json

if typing.TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import nn

    from ..model.decoder import ShotDecoder
    from ..model.encoder import ShotEncoder
    from ..model.engine import GameEngine
    from ..model.prompt import GameTokenizer

FORMAT = 1  # raised when an older program could misread the folder
MANIFEST = "world.json"
TENSORS, LORA, TOKENIZER = "model", "lora", "tokenizer"  # how the names of a part's files begin
TAEHV = ("taecvx.safetensors", "taecvx.pth")  # files of a tiny decoder that a user may put beside a world's VAE
EFFORT, LEAST_EFFORT = "effort", 0.1  # key of provenance: the part of a full training; below this it is only a test
TAEHV_FACTOR = 8  # pixels per latent pixel along one side
Notes = Mapping[str, FileNote]  # path below the folder, with slashes -> its checksum and size
EMBEDDED = {"toybox": Path(__file__).parent.parent / "toybox" / "weights"}


@dataclass(frozen=True)
class World:
    """An opened world. Its weights are not read before one of the `load_` methods is called.

    files: what its manifest lists. trained_window: the past turns that its engine was trained with; None if unknown.
    warnings: sentences to show to the player. life: the rules of its stats, and the words that it knows. adapters: what
    is applied to its models when they are loaded; the folder does not change. plain: the world without them; None for a
    world that has none. taught: the sampling that they state.
    """

    folder: Path
    files: Notes
    spec: ModelSpec
    profile: Profile
    motion_table: MotionTable
    provenance: Mapping[str, str] = field(default_factory=dict)
    licence: str = ""
    trained_window: int | None = None
    warnings: tuple[str, ...] = ()
    life: Life = Life()
    adapters: Adapters = ()
    plain: World | None = None
    taught: Sampling = UNSTATED
    _stored_dtypes: dict[str, torch.dtype] = field(default_factory=dict, init=False, compare=False, repr=False)

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits of everything that a turn depends on: weights, sizes, profile, motion table, and the contents
        and strengths of those adapters that change turns; ValueError where an adapter is gone.
        """
        played = {path: note.sha256 for part in PLAY_PARTS for path, note in self.notes(part).items()}
        facts = {
            "files": played,
            "spec": self.spec.to_dict(),
            "profile": asdict(self.profile),
            "motion_table": asdict(self.motion_table),
        }
        own = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
        used = [(path, strength) for path, strength in self.adapters if adapter_facts(path).parts & PLAYED]
        if not used:
            return own
        lines = [f"{adapter_checksum(path)} {strength!r}" for path, strength in used]
        return hashlib.sha256("\n".join([own, *lines]).encode()).hexdigest()

    @property
    def base(self) -> World:
        """The world without adapters."""
        return self.plain or self

    @property
    def reading(self) -> Reading:
        """The prompt format that its engine was trained with."""
        return Reading(self.profile, self.trained_window)

    @property
    def window(self) -> int:
        """The past turns that its engine reads by default: as many as in its training."""
        return DEFAULT_WINDOW if self.trained_window is None else self.trained_window

    @cached_property
    def memory(self) -> Memory:
        """Default memory of its games: recall; for published worlds the last turns, like their scripts."""
        as_released = self.profile.name == "as_run" or (
            self.profile.name == "reference" and self.trained_window is None
        )
        return Memory(RECENT if as_released else RECALL)

    def warnings_for(self, window: int) -> tuple[str, ...]:
        """All warnings for a game with this window; one more if the engine was trained with a smaller one."""
        if self.trained_window is None or window <= self.trained_window:
            return self.warnings
        return (
            *self.warnings,
            f"window {window} is larger than the {self.trained_window} past turns that the engine was trained with, "
            "so its predictions may be off",
        )

    def with_profile(self, name: str) -> World:
        """The same world with another profile, and a warning if its engine was trained with a different one."""
        other = Reading(get_profile(name), self.trained_window)
        warnings = self.warnings
        if not other.agrees(self.reading):
            warnings += (
                f"the engine was trained with profile {self.profile.name}, not {name}, so its predictions are off",
            )
        return replace(self, profile=other.profile, warnings=warnings)

    def notes(self, part: str) -> Notes:
        """The files of a part in the manifest."""
        return {path: note for path, note in self.files.items() if part_of(path) == part}

    def has(self, part: str) -> bool:
        """Whether every file of a part is there, its weights with their known size."""
        notes = self.notes(part)
        return bool(notes) and all(
            (self.folder / path).is_file()
            and (path.endswith(".json") or (self.folder / path).stat().st_size == note.bytes)
            for path, note in notes.items()
        )

    def missing(self, parts: tuple[str, ...] = tuple(PARTS)) -> tuple[str, ...]:
        """One sentence for each part that is absent or incomplete: what it is, and how to get it."""
        cut = ", where files are missing or cut off; restore them, or train this part of a small world again"
        return tuple(
            f"{part} is not complete in {self.folder / PARTS[part].folder}{cut if self.notes(part) else ''}; `convert` "
            f"or `new` makes it from {PARTS[part].source}"
            for part in parts
            if not self.has(part)
        )

    def verify(self, parts: tuple[str, ...] = tuple(PARTS)) -> None:
        """Compare the files of these parts with their checksums; CheckpointError names the first that differs."""
        for path in (path for part in parts for path in self.notes(part)):
            self._checked(self.folder / path)

    def _checked(self, path: Path) -> Path:
        """The path of a file; if the manifest lists it, it must be the one that the world was saved with."""
        note = self.files.get(path.relative_to(self.folder).as_posix())
        if note is not None and (not path.is_file() or note_of(path) != note):
            raise CheckpointError(
                f"{path}: this is not the file that the world was saved with (expected sha256 {note.sha256[:12]}..., "
                f"{note.bytes} bytes); convert or download it again"
            )
        return path

    def source(self, part: str) -> TensorSource:
        """The part's tensors, without its LoRA."""
        files = self._files(part, TENSORS)
        if not files:
            raise CheckpointError(f"{self.folder / MANIFEST}: lists no tensors of {part}; convert again")
        return SafetensorsSource(*files)

    def lora(self, part: str) -> LoraUpdates:
        """The part's LoRA; empty without any."""
        files = self._files(part, LORA)
        return read_lora(files[0]) if files else {}

    def _files(self, part: str, stem: str) -> list[Path]:
        """The files of a part in the manifest whose names begin so; no name of one kind begins like another kind's."""
        return [self.folder / path for path in self.notes(part) if path.rpartition("/")[2].startswith(stem)]

    def tokenizer(self) -> GameTokenizer:
        """The engine's tokenizer; reads only its file."""
        from ..model.prompt import GameTokenizer

        (path,) = self._files("engine", TOKENIZER) or (self.folder / PARTS["engine"].folder / f"{TOKENIZER}.json",)
        return GameTokenizer.from_file(self._checked(path), self.life.rules.stats)

    def text_tokenizer(self) -> Tokenizer | None:
        """The text encoder's tokenizer; None without one."""
        from ..model.prompt import read_tokenizer

        files = [path for path in self._files("text_tower", TOKENIZER) if path.is_file()]
        return read_tokenizer(self._checked(files[0])) if files else None

    def stored_dtype(self, model: str) -> torch.dtype:
        """The type that `engine`, `decoder` or `encoder` gets by default off the CPU: as stored, float32 as 16 bits."""
        import torch

        dtype = self._matrix_dtype(model)
        return getattr(torch, self._sources((model,))[model].half) if dtype == torch.float32 else dtype

    def cpu_dtype(self, part: str) -> torch.dtype:
        """The type that a part of a world, such as `decoder` or `vae`, gets by default on this CPU (see `on_cpu`)."""
        return on_cpu(self._matrix_dtype(part))

    def _matrix_dtype(self, part: str) -> torch.dtype:
        if part not in self._stored_dtypes:
            self._stored_dtypes[part] = matrix_dtype(self._sources((part,))[part])
        return self._stored_dtypes[part]

    def load_engine(self, device: str | torch.device = "cpu", dtype: torch.dtype | None = None) -> GameEngine:
        """The game engine, in eval mode. dtype None: on a CPU as `cpu_dtype`, else as stored (float32 as 16 bits)."""
        from ..model.engine import GameEngine

        tokenizer = self.tokenizer()
        return self._load("engine", lambda: GameEngine(self.spec, tokenizer, self.profile), ("engine",), device, dtype)

    def load_decoder(
        self,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        parts: tuple[str, ...] = ("decoder", "vae"),
        playing: bool = True,
    ) -> ShotDecoder:
        """The shot decoder with its VAE, in eval mode; dtype and parts as for the engine and the encoder.

        playing: also with the file `taehv`, which is no part of the world.
        """
        from ..model.decoder import ShotDecoder
        from .weight_files import attach_taehv

        decoder = self._load("decoder", lambda: ShotDecoder(self.spec, self.profile), parts, device, dtype)
        if playing and "decoder" in parts and self.taehv is not None:
            attach_taehv(decoder, self.taehv)
        return decoder

    @property
    def taehv(self) -> Path | None:
        """The file of the tiny decoder that a user put beside the VAE, in a world that has none of its own."""
        fits = not self.spec.decoder.vae.tiny and self.spec.decoder.vae.spatial_factor == TAEHV_FACTOR
        paths = (self.folder / PARTS["vae"].folder / name for name in TAEHV if fits)
        return next((path for path in paths if path.is_file()), None)

    def load_encoder(
        self,
        device: str | torch.device = "cpu",
        dtype: torch.dtype | None = None,
        parts: tuple[str, ...] = ENCODER_PARTS,
    ) -> ShotEncoder:
        """The shot encoder, in eval mode; dtype as for the engine. Omitted parts stay on the meta device."""
        from ..model.encoder import ShotEncoder

        tokenizer = self.text_tokenizer()
        return self._load("encoder", lambda: ShotEncoder(self.spec, tokenizer), parts, device, dtype)

    def _load(
        self,
        kind: str,
        build: typing.Callable[[], typing.Any],
        parts: tuple[str, ...],
        device: str | torch.device,
        dtype: torch.dtype | None,
    ) -> typing.Any:
        """A model with its weights; LoRA of 16-bit weights stays unmerged."""
        if dtype is None and str(device).startswith("cpu"):
            dtype = self.cpu_dtype(parts[0])
        model = load_model(build, self._sources(parts), device, dtype)
        for part in parts:
            if updates := self.lora(part):
                from .lora import WORLD, attach, check_fit

                check_fit(model, updates, self.folder / PARTS[part].folder)
                attach(model, updates, WORLD)
        return self._changed(kind, model)

    def refit(self, kind: str, model: nn.Module) -> None:
        """Change a loaded model into what this world would load, with other adapters or strengths, without loading it
        again. Reads only the tensors that adapters changed.

        kind: `engine`, `decoder` or `encoder`. The model came from this world or one with other adapters, and
        was not optimized since.
        """
        from .lora import restore

        restore(model, parts_of_model(kind), self.source, self.lora)
        if kind == "decoder":
            model.vae.register_to_config(scaling_factor=self.spec.decoder.vae.scaling_factor)
        if kind != "encoder":
            model.profile = self.profile
        self._changed(kind, model)

    def _changed(self, kind: str, model: typing.Any) -> typing.Any:
        """The model with each adapter applied; ValueError for one that cannot be read or is of another spec."""
        from .lora import apply_adapter

        for path, strength in self.adapters:
            apply_adapter(Path(path), kind, model, strength)
        return model

    def _sources(self, parts: tuple[str, ...]) -> dict[str, TensorSource]:
        missing = self.missing(parts)
        if missing:
            raise CheckpointError(f"world {self.spec.name!r} cannot load this: {missing[0]}")
        return {part: self.source(part) for part in parts}


def open_world(name: str | Path) -> World:
    """The world at `name`; CheckpointError says what is wrong with it.

    `name` is a built-in world (`toybox`), or a folder that `fetch`, `convert`, `new` or a build made.
    """
    folder = EMBEDDED.get(str(name), Path(name))
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(
            f"{name}: no world here (no {MANIFEST}); give 'toybox', or a folder made by `fetch`, `convert`, `new` or a "
            "build. Published files become one by `convert`"
        )
    stated = read_json(folder / MANIFEST).get("format")
    if stated != FORMAT:
        raise CheckpointError(
            f"{folder / MANIFEST}: format is {stated!r}, this program reads {FORMAT}; update the program or convert "
            "again"
        )
    found = read_json(folder / MANIFEST, Manifest)
    effort = float(found.provenance.get(EFFORT, 1))
    tested = f"This world had {effort:.0%} of its training, which is only a test: its pictures are not yet the film's."
    return World(
        folder,
        found.files,
        found.spec,
        get_profile(found.profile),
        found.motion_table,
        found.provenance,
        found.licence,
        found.window,
        warnings=(tested,) if effort < LEAST_EFFORT else (),
        life=found.life,
    )


class Manifest(msgspec.Struct):
    """What world.json holds beside its format; ValueError for a file that is not in the folder of a part."""

    spec: ModelSpec
    profile: typing.Literal["paper", "reference", "as_run"]
    motion_table: MotionTable
    files: dict[str, FileNote]
    provenance: dict[str, str] = {}
    licence: str = ""
    window: Annotated[int, msgspec.Meta(ge=0, le=LARGEST)] | None = None
    life: Life = Life()

    def __post_init__(self) -> None:
        for path in self.files:
            if not part_of(path) or not is_plain_name(path.rpartition("/")[2]):
                raise ValueError(f"files: {path!r} does not name a file in the folder of a part")


def part_of(path: str) -> str:
    """The part whose folder a file of our own is in."""
    folder = path.rpartition("/")[0]
    return next((name for name, part in PARTS.items() if part.folder == folder), "")
