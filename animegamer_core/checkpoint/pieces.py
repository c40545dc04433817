"""What a published world, or a new one, needs on the disk, and what of it is missing. Asks no hub and imports no torch.

Sizes are about those of the published models in 16 bits; the hub knows the real ones before a download begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from .base_folders import CLIP, T5, find_base
from .downloads import ANIMEGAMER, COGVIDEO, DECODER, DIFFUSERS_VAE, ENGINE, MISTRAL, all_folders, world_of
from .storage import find_safetensors

FULL_ENGINE_BYTES = 10 * 10**9  # 7 billion numbers take 14 GB or more; a smaller engine holds only what was trained
CLIP_REPO = "laion/CLIP-ViT-B-16-laion2B-s34B-b88K"
_WEIGHTS = ("*.safetensors", "*.bin", "*.pt")


@dataclass(frozen=True)
class Piece:
    """A part of a download. path: below the folder of downloads. repo: where it is published. bytes: about."""

    path: str
    what: str
    repo: str
    bytes: int
    there: bool

    @property
    def text(self) -> str:
        """Its folder, what it is, and its size."""
        return f"{self.path} ({self.what}, about {size_text(self.bytes)})"


def world_pieces(folder: Path, world: str, encoders: bool = False) -> tuple[Piece, ...]:
    """The pieces of a published world below `folder`, or one folder deeper. encoders: also those that encode shots."""
    film = world.capitalize()
    engine = _weights(_pair(folder, ENGINE, world))
    mistral = all_folders(folder, "Mistral-7B-Instruct*")
    partial_engine = bool(engine) and sum(path.stat().st_size for path in engine) < FULL_ENGINE_BYTES
    pieces = [
        Piece(f"{ENGINE}{film}/", "the game engine", ANIMEGAMER, 15 * 10**9, bool(engine)),
        Piece(
            f"{DECODER}{film}/",
            "the shot decoder",
            ANIMEGAMER,
            4 * 10**9,
            bool(_weights(_pair(folder, DECODER, world))),
        ),
        Piece("Mistral-7B-Instruct-v0.1/", "configuration and tokenizer", MISTRAL, 3 * 10**6, _has_tokenizer(mistral)),
    ]
    if partial_engine:
        pieces.append(_mistral_weights(bool(_weights(mistral))))
    pieces.append(Piece("CogVideoX-2b/vae/", "the VAE", COGVIDEO, 430 * 10**6, _has_vae(folder)))
    return (*pieces, *(_encoders(folder) if encoders else ()))


def base_pieces(folder: Path) -> tuple[Piece, ...]:
    """The pieces of the free base models of a new world below `folder`."""
    found = find_base(folder)
    video = found.cogvideox if found else folder / "CogVideoX-2b"
    mistral = all_folders(folder, "Mistral-7B-Instruct*")
    text = bool(_weights([video / "text_encoder"])) or _has_t5(folder)
    return (
        Piece(
            "CogVideoX-2b/transformer/",
            "the video model",
            COGVIDEO,
            34 * 10**8,
            bool(_weights([video / "transformer"])),
        ),
        Piece("CogVideoX-2b/vae/", "the VAE", COGVIDEO, 430 * 10**6, _has_vae(folder)),
        Piece("CogVideoX-2b/text_encoder/", "T5", COGVIDEO, 95 * 10**8, text),
        Piece("Mistral-7B-Instruct-v0.1/", "configuration and tokenizer", MISTRAL, 3 * 10**6, _has_tokenizer(mistral)),
        _mistral_weights(bool(_weights(mistral))),
        _clip(folder),
    )


def missing_text(pieces: Iterable[Piece]) -> str:
    """All pieces that are missing with their sizes, and the sum; empty if none is."""
    missing = [piece for piece in pieces if not piece.there]
    if not missing:
        return ""
    return f"{', '.join(piece.text for piece in missing)}; {size_text(sum(piece.bytes for piece in missing))} in all"


def size_text(size: int) -> str:
    """A size in GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


def _pair(folder: Path, prefix: str, world: str) -> list[Path]:
    return [path for path in all_folders(folder, f"{prefix}*") if world_of(path) == world.lower()]


def _weights(folders: Iterable[Path]) -> list[Path]:
    """The weight files in these folders, whole or not."""
    return [path for folder in folders for pattern in _WEIGHTS for path in folder.rglob(pattern) if path.is_file()]


def _has_tokenizer(folders: Iterable[Path]) -> bool:
    names = ("tokenizer.json", "tokenizer.model")
    return any((path / "config.json").is_file() and any((path / name).is_file() for name in names) for path in folders)


def _mistral_weights(there: bool) -> Piece:
    return Piece("Mistral-7B-Instruct-v0.1/*.safetensors", "the language model", MISTRAL, 145 * 10**8, there)


def _has_vae(folder: Path) -> bool:
    inside = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())] if folder.is_dir() else []
    diffusers = (path for path in all_folders(folder, "vae") if find_safetensors(path, DIFFUSERS_VAE))
    return any((path / "3d-vae.pt").is_file() for path in inside) or any(True for _ in diffusers)


def _has_t5(folder: Path) -> bool:
    return bool(_weights(all_folders(folder, f"{T5}*")))


def _clip(folder: Path) -> Piece:
    there = bool(_weights(all_folders(folder, f"{CLIP}*")))
    return Piece(f"{CLIP_REPO.partition('/')[2]}/", "the image encoder", CLIP_REPO, 600 * 10**6, there)


def _encoders(folder: Path) -> tuple[Piece, ...]:
    return Piece(f"{T5}/", "the text encoder", COGVIDEO, 95 * 10**8, _has_t5(folder)), _clip(folder)
