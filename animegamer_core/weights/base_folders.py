"""The folders of the free base models of a new world, as they are downloaded. Importing this imports no torch.

CogVideoX-2b/                transformer/  vae/  text_encoder/  tokenizer/   (diffusers)
Mistral-7B-Instruct-v0.1/    config.json, tokenizer and weights; or another row of LANGUAGE_MODELS  (transformers)
t5-v1_1-xxl/  CLIP-ViT-B-16-laion2B*/   only to encode shots and to train; T5 may be CogVideoX's own
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from .storage import CheckpointError

LICENCE = """\
The weights of this world begin from files that other people published; this project does not license them.
- CogVideoX-2B (Zhipu AI, Tsinghua University) and Mistral-7B-Instruct (Mistral AI): Apache-2.0.
- where present, t5-v1_1-xxl (Google; as CogVideoX-2b's text encoder it comes with that) and CLIP ViT-B-16 (LAION): the
  licence on the page that each was downloaded from.
No weights of AnimeGamer are among them.
"""
COGVIDEO, T5, CLIP = "CogVideoX-2b", "t5-v1_1-xxl", "CLIP-ViT-B-16"
LAYOUT = "the diffusers layout of zai-org/CogVideoX-2b: transformer/, vae/, text_encoder/, tokenizer/"


@dataclass(frozen=True)
class LanguageModel:
    """A Mistral that an engine can begin with. name: of its folder. entries: of its vocabulary. rope_theta: the base of
    the periods of its positions. No two have the same entries and rope_theta.
    """

    name: str
    entries: int
    rope_theta: float


LANGUAGE_MODELS = (  # the first is the one that the published engines were trained from
    LanguageModel("Mistral-7B-Instruct-v0.1", 32000, 1e4),
    LanguageModel("Mistral-7B-Instruct-v0.2", 32000, 1e6),
    LanguageModel("Mistral-7B-Instruct-v0.3", 32768, 1e6),
)


@dataclass(frozen=True)
class BaseFolders:
    """The folders of the base models. t5: a folder of T5 1.1; None for CogVideoX's own, if it has one."""

    cogvideox: Path
    mistral: Path
    t5: Path | None = None
    clip: Path | None = None

    def checked(self) -> BaseFolders:
        """The folders with CogVideoX's own T5 filled in; CheckpointError names the first folder that is missing."""
        for folder, what in (
            (self.cogvideox, LAYOUT),
            (self.mistral, f"the folder of {LANGUAGE_MODELS[0].name}"),
            (self.t5, f"the folder of {T5}"),
            (self.clip, f"the folder of {CLIP}-laion2B-s34B-b88K"),
        ):
            if folder is not None and not folder.is_dir():
                raise CheckpointError(f"{folder}: no such folder; expected {what}")
        if not (self.cogvideox / "transformer").is_dir():
            raise CheckpointError(f"{self.cogvideox}: has no folder transformer; expected {LAYOUT}")
        own = self.cogvideox / "text_encoder"
        return replace(self, t5=own) if self.t5 is None and own.is_dir() else self

    @property
    def all(self) -> tuple[Path, ...]:
        """The folders that are given."""
        return tuple(folder for folder in (self.cogvideox, self.mistral, self.t5, self.clip) if folder is not None)


def find_base(src: Path) -> BaseFolders | None:
    """The base models in `src`; None unless CogVideoX-2b and Mistral are both there."""
    cogvideox, t5, clip = (_first(src, name) for name in (COGVIDEO, T5, CLIP))
    mistral = next((found for model in LANGUAGE_MODELS if (found := _first(src, model.name))), None)
    if cogvideox is None or mistral is None or not (cogvideox / "transformer").is_dir():
        return None
    return BaseFolders(cogvideox, mistral, t5, clip)


def _first(src: Path, name: str) -> Path | None:
    """The first folder in `src` whose name starts with `name`, ignoring case."""
    found = [path for path in src.iterdir() if path.name.lower().startswith(name.lower())] if src.is_dir() else []
    return next((path for path in sorted(found) if path.is_dir()), None)
