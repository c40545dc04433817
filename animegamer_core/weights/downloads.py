"""Find downloaded files by their names: of published worlds, and free base models. Importing this imports no torch.

    MLLM-*/  VDM_Decoder-*/     one pair a world, named after it
    Mistral-7B-Instruct-v0.1/   3d-vae.pt, or CogVideoX-2b/vae/
    t5-v1_1-xxl/ or CogVideoX-2b/text_encoder/  CLIP-ViT-B-16-laion2B*/   only to encode shots
They are side by side, or one folder deeper. The free base models of a new world are in one folder:
    CogVideoX-2b/               transformer/  vae/  text_encoder/  tokenizer/   (diffusers)
    Mistral-7B-Instruct-v0.1/   config.json, tokenizer and weights; or another row of LANGUAGE_MODELS  (transformers)
    t5-v1_1-xxl/  CLIP-ViT-B-16-laion2B*/   only to encode shots and to train; T5 may be CogVideoX's own
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from .storage import CheckpointError, FileNote, find_safetensors

LICENCE = """\
The weights of this world come from files that other people published; this project does not license them.
- AnimeGamer (Tencent ARC Lab): its own "License Terms of AnimeGamer", worded like Apache-2.0 with one more clause that
  says it is not intended for use within the European Union. It covers code and weights. Read it before you use them.
- Mistral-7B-Instruct-v0.1 (Mistral AI), CogVideoX-2B (Zhipu AI, Tsinghua University) and, where present,
  t5-v1_1-xxl (Google) and CLIP ViT-B-16 (LAION): the licence on the page that each was downloaded from.
"""
BASE_LICENCE = """\
The weights of this world begin from files that other people published; this project does not license them.
- CogVideoX-2B (Zhipu AI, Tsinghua University) and Mistral-7B-Instruct (Mistral AI): Apache-2.0.
- where present, t5-v1_1-xxl (Google; as CogVideoX-2b's text encoder it comes with that) and CLIP ViT-B-16 (LAION): the
  licence on the page that each was downloaded from.
No weights of AnimeGamer are among them.
"""
ANIMEGAMER, MISTRAL, COGVIDEO = "TencentARC/AnimeGamer", "mistralai/Mistral-7B-Instruct-v0.1", "THUDM/CogVideoX-2b"
ENGINE, DECODER = "MLLM-", "VDM_Decoder-"  # prefixes of the folders of a pair; the world's name follows
PAIR = (ENGINE, DECODER)
DIFFUSERS_VAE = "diffusion_pytorch_model"
LAYOUT = "the diffusers layout of zai-org/CogVideoX-2b: transformer/, vae/, text_encoder/, tokenizer/"
_EDGE = 1 << 20  # bytes at either end of a file that its signature reads


@dataclass(frozen=True)
class Downloads:
    """The paths of downloaded files; None for those that are missing."""

    folder: Path
    name: str
    engine: Path | None = None  # MLLM-*/
    mistral: Path | None = None
    decoder: Path | None = None  # VDM_Decoder-*/
    vae: Path | None = None  # 3d-vae.pt, or a diffusers folder
    text_encoder: Path | None = None
    image_encoder: Path | None = None


def find_downloads(src: Path, name: str | None = None) -> Downloads:
    """The published files in `src` or one folder below it. `name` chooses among several worlds (qiqi, sosuke)."""
    if not src.is_dir():
        raise CheckpointError(f"{src}: no such folder; expected the one that holds MLLM-*/, VDM_Decoder-*/ and the VAE")
    folders = _folders(src)
    engine = _named(folders, f"{ENGINE}*", name)
    decoder = _named(folders, f"{DECODER}*", name)
    found = next((world_of(path) for path in (engine, decoder) if path), name or src.resolve().name)
    if engine and decoder and world_of(engine) != world_of(decoder):
        raise CheckpointError(f"{src}: holds {engine.name} and {decoder.name}; expected both from one world")
    vae = next((folder / "3d-vae.pt" for folder in folders if (folder / "3d-vae.pt").is_file()), None)
    diffusers = (folder for folder in _all(folders, "vae") if find_safetensors(folder, DIFFUSERS_VAE))
    return Downloads(
        folder=src,
        name=found.lower(),
        engine=engine,
        mistral=_one(folders, "Mistral-7B-Instruct*"),
        decoder=decoder,
        vae=vae or next(diffusers, None),
        text_encoder=_one(folders, "t5-v1_1*") or _one(folders, "CogVideoX-2b/text_encoder"),
        image_encoder=_one(folders, "CLIP-ViT-B-16*"),
    )


def published_worlds(src: Path) -> tuple[str, ...]:
    """The sorted names of the published worlds in a folder; empty if it is not a folder."""
    if not src.is_dir():
        return ()
    found = [path for start in PAIR for path in _all(_folders(src), f"{start}*")]
    return tuple(sorted({world_of(path) for path in found}))


def file_signature(path: Path) -> FileNote:
    """A file's size and the checksum of both its ends: cheap at any size, and changed by any new download."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(_EDGE))
        file.seek(max(0, size - _EDGE))
        digest.update(file.read(_EDGE))
    return FileNote(digest.hexdigest(), size)


def _folders(src: Path) -> list[Path]:
    return [src, *sorted(path for path in src.iterdir() if path.is_dir())]


def world_of(path: Path) -> str:
    """The world that a folder of a pair is named after."""
    return path.name.partition("-")[2].lower()


def _all(folders: list[Path], pattern: str) -> list[Path]:
    """The folders that match a pattern in any of `folders`, each once."""
    found = [path for folder in folders for path in sorted(folder.glob(pattern)) if path.is_dir()]
    return list(dict.fromkeys(found))


def _one(folders: list[Path], pattern: str) -> Path | None:
    return next(iter(_all(folders, pattern)), None)


def _named(folders: list[Path], pattern: str, name: str | None) -> Path | None:
    """The folder of one world's pair; CheckpointError if there are several."""
    found = [path for path in _all(folders, pattern) if name is None or world_of(path) == name.lower()]
    if len(found) > 1:
        raise CheckpointError(
            f"{folders[0]}: holds {', '.join(path.name for path in found)}; choose one by its name, such as "
            f"{world_of(found[0])!r} (as a world: {folders[0] / world_of(found[0])})"
        )
    return found[0] if found else None


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
            (self.t5, "the folder of t5-v1_1-xxl"),
            (self.clip, "the folder of CLIP-ViT-B-16-laion2B-s34B-b88K"),
        ):
            if folder is not None and not folder.is_dir():
                raise CheckpointError(f"{folder}: no such folder; expected {what}")
        own = self.cogvideox / "text_encoder"
        return replace(self, t5=own) if self.t5 is None and own.is_dir() else self

    @property
    def all(self) -> tuple[Path, ...]:
        """The folders that are given."""
        return tuple(folder for folder in (self.cogvideox, self.mistral, self.t5, self.clip) if folder is not None)


def find_base(src: Path) -> BaseFolders | None:
    """The base models in `src`; None unless CogVideoX-2b and Mistral are both there."""
    cogvideox, t5, clip = (_one([src], f"{name}*") for name in ("CogVideoX-2b", "t5-v1_1-xxl", "CLIP-ViT-B-16"))
    mistral = next((found for model in LANGUAGE_MODELS if (found := _one([src], f"{model.name}*"))), None)
    if cogvideox is None or mistral is None or not (cogvideox / "transformer").is_dir():
        return None
    return BaseFolders(cogvideox, mistral, t5, clip)
