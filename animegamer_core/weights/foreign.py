"""The parts of a world in other people's files: what `published` and `base` have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from tokenizers import Tokenizer
from torch import nn

from ..model.prompt import RELEASE_SLOTS, GameTokenizer, read_tokenizer, tag_tokens
from ..spec import RELEASE, ModelSpec, get_profile
from . import keys
from .keys import RecipeSource, map_keys
from .parts import check_parts
from .storage import CheckpointError, TensorSource, number, read_json

ADDED_TOKENS = len(tag_tokens(RELEASE_SLOTS))  # that a game adds to a language model's own
HALF = "float16"  # what the published scripts compute in, except for the engine
SIZES = "spec.json"  # next to weights whose sizes are not the released ones: a ModelSpec


def stated_sizes(*folders: Path | None) -> ModelSpec:
    """The sizes that a spec.json in one of these folders states; without any, the released ones."""
    path = next((folder / SIZES for folder in folders if folder and (folder / SIZES).is_file()), None)
    if path is None:
        return RELEASE
    try:
        return ModelSpec.from_dict(read_json(path))
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error


def rope_theta(mistral: Path) -> float:
    """The base of the periods of a Mistral's positions, by which v0.1 and v0.2 differ."""
    path = mistral / "config.json"
    config = read_json(path)
    holder = config if config.get("rope_theta") else config.get("rope_parameters") or {}  # of transformers 5
    return number(holder, "rope_theta", path, 10000.0)


@dataclass
class ForeignParts:
    """A spec, and for each part its tensors under our names and the files that decide what it is.

    profile: the name of the profile that the engine is read by. mistral, t5: the folders of the tokenizers, if given.
    """

    spec: ModelSpec
    profile: str
    mistral: Path | None
    t5: Path | None
    sources: dict[str, RecipeSource] = field(default_factory=dict)
    files: dict[str, tuple[Path, ...]] = field(default_factory=dict)

    def add(self, part: str, source: RecipeSource, *beside: Path) -> None:
        """Add a part. beside: further files that decide what it is, where they exist."""
        self.sources[part] = source
        self.files[part] = (*source.files, *(path for path in beside if path.is_file()))

    @property
    def engine_files(self) -> tuple[Path, Path]:
        """Mistral's configuration and tokenizer."""
        tokenizer = self.mistral / "tokenizer.json"
        return self.mistral / "config.json", tokenizer if tokenizer.is_file() else self.mistral / "tokenizer.model"

    def add_text_encoder(self, source: TensorSource) -> None:
        """Add T5."""
        recipes = map_keys(source, keys.TEXT_ENCODER)
        beside = (self.t5 / "tokenizer.json", self.t5 / "spiece.model")
        self.add("text_tower", RecipeSource(source.path, HALF, recipes), *beside)

    def add_image_encoder(self, source: TensorSource) -> None:
        """Add CLIP's image encoder."""
        self.add("image_tower", RecipeSource(source.path, HALF, map_keys(source, keys.IMAGE_ENCODER)))

    def build(self, kind: str) -> nn.Module:
        """A new engine, decoder or encoder of these sizes with its tokenizer."""
        from ..model.decoder import ShotDecoder
        from ..model.encoder import ShotEncoder
        from ..model.engine import GameEngine

        if kind == "engine":
            entries = self.spec.engine.vocab_size - ADDED_TOKENS
            return GameEngine(self.spec, GameTokenizer.from_mistral(self.mistral, entries), get_profile(self.profile))
        if kind == "decoder":
            return ShotDecoder(self.spec, get_profile(self.profile))
        return ShotEncoder(self.spec, self.text_tokenizer())

    def text_tokenizer(self) -> Tokenizer | None:
        """T5's tokenizer; None without its folder."""
        if self.t5 is None:
            return None
        if (self.t5 / "tokenizer.json").is_file():
            return read_tokenizer(self.t5 / "tokenizer.json")
        from transformers import T5TokenizerFast

        try:
            return T5TokenizerFast.from_pretrained(str(self.t5), local_files_only=True).backend_tokenizer
        except (ImportError, OSError, ValueError, TypeError) as error:
            raise CheckpointError(
                f"{self.t5}: no readable tokenizer ({type(error).__name__}); expected tokenizer.json, "
                "or spiece.model with `pip install sentencepiece protobuf`"
            ) from error

    def check(self) -> dict[str, nn.Module]:
        """Compare all tensors with empty models of the spec, so that nothing is written before all of it fits.

        Returns the models by kind. CheckpointError as for `check_names`.
        """
        return check_parts(self.sources, self.build)


def tokenizer_folder(t5: Path | None) -> Path | None:
    """The folder of T5's tokenizer: its own, or the one next to it in the diffusers layout."""
    if t5 is None or any((t5 / name).is_file() for name in ("tokenizer.json", "spiece.model")):
        return t5
    return t5.parent / "tokenizer"
