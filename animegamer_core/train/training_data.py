"""Training data: a dataset with its features, which one model computes for another.

Features: frames (F, H, W, 3) uint8, and first (H, W, 3), the first of them; latents (2, T, C, h, w), scaled mean and
standard deviation; text (L, W); image and image_random (P, W); states (N, D), the encoder's representations; predicted
(N, D), the engine's.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import torch
from accelerate.utils import broadcast_object_list
from einops import rearrange
from torch import Tensor

from ..data.dataset import DatasetFolder
from ..data.records import GameRecord
from ..files import make_folder, room_for, write_text
from ..json_files import read_json
from ..media.video import read_clip_info
from ..model.decoder import ShotDecoder
from ..model.encoder import ShotEncoder
from ..spec import ModelSpec
from ..weights.lora import strengths_of
from ..weights.parts import on_cpu
from .distributed import processes
from .sampling import generator

IMAGE_FEATURES = {"first": "image", "random": "image_random"}  # by the frame that the encoder reads
WITHOUT_CAPTION = ("frames", "first", "latents", *IMAGE_FEATURES.values())  # features that do not depend on captions
WITHOUT_CLIPS = ("text", "blank_text")  # features that do not depend on what the clips show
ENCODED_PIXELS = 4_000_000  # that the VAE encodes at a time: 17 clips of the Toybox, or one of the published size
READ_PIXELS = 90_000_000  # of clips that are read at a time for the image encoder
FRAMES_KEPT = 8 * 2**30  # bytes of clips that are kept in memory; of more, each step reads its own
READERS = min(8, os.cpu_count() or 1)  # threads that read clips
POLL_S = 0.5  # seconds between checks whether the main process has computed a feature
Progress = Callable[[str, int, int], None]  # (feature, clips done, clips in all)


@dataclass(frozen=True)
class TrainingData:
    """A dataset and its features, each with a row for each clip.

    store: features of a small dataset are in memory, best on the training device; those of a large one are mapped from
    disk. blank_text: (L, W), text features of ''. cache: a folder to store features in, None to keep them in memory.
    """

    folder: DatasetFolder
    store: Mapping[str, Tensor] = field(default_factory=dict)
    blank_text: Tensor | None = None
    cache: Path | None = None
    on_progress: Progress | None = None

    def gather(self, name: str, rows: Tensor | Sequence[int], device: torch.device | str) -> Tensor:
        """A feature's rows (B,), on `device`."""
        feature = self.store[name]
        return feature[torch.as_tensor(rows).to(feature.device)].to(device, non_blocking=True)

    @cached_property
    def motion(self) -> Tensor:
        """(n,) fp32: the clips' measured motion values, which every captioned clip has."""
        return torch.tensor([turn.motion_value for turn in self.folder.turns], dtype=torch.float32)

    @cached_property
    def clip_shape(self) -> tuple[int, ...]:
        """(F, H, W, 3) of the first clip's file."""
        first = read_clip_info(self.folder.path / self.folder.turns[0].clip)
        return first.frames, *first.size[::-1], 3

    @property
    def fits(self) -> bool:
        """Whether all frames are or may be in memory."""
        return "frames" in self.store or len(self.folder.turns) * math.prod(self.clip_shape) <= FRAMES_KEPT

    def clips(self, held_out: bool = False) -> tuple[int, ...]:
        """Indices of the training clips, or of the held-out ones."""
        return self.folder.held_out_clips if held_out else self.folder.training_clips

    def games(self, held_out: bool = False) -> tuple[GameRecord, ...]:
        """The training games, or the held-out ones."""
        return tuple(game for game in self.folder.games if game.held_out is held_out)

    def with_feature(
        self, name: str, compute: Callable[[range], Tensor], rows: int, depends_on: Callable[[], str] = str
    ) -> TrainingData:
        """The data with a feature computed `rows` clips at a time, stored in the cache folder if there is one.

        depends_on: names the weights that compute the feature, so that a cache made with other weights is not used.
        """
        count = len(self.folder.turns)

        def reported(part: range) -> Tensor:
            values = compute(part)
            if self.on_progress is not None:
                self.on_progress(name, part.stop, count)
            return values

        if self.cache is None:
            parts = (range(start, min(count, start + rows)) for start in range(0, count, rows))
            feature = torch.cat(list(map(reported, parts)))
        else:
            feature = self.through_cache(name, count, reported, rows, depends_on())
        return replace(self, store={**self.store, name: feature})

    def digest(self, name: str, weights: str) -> str:
        """The digest of what a feature depends on: the clips, their captions if it reads these, weights, and what the
        clips' files hold if it reads them, which is not known where files are missing."""
        content = "" if name in WITHOUT_CLIPS else self.folder.content
        return f"{self.folder.digest(captions=name not in WITHOUT_CAPTION)}-{weights}-{content}"

    def index(self, name: str) -> FeatureIndex | None:
        """What the cache folder states about a feature; None if it is not there, ValueError if that is damaged."""
        path = None if self.cache is None else self.cache / f"{name}.json"
        return read_json(path, FeatureIndex) if path is not None and path.is_file() else None

    def is_cached(self, name: str, count: int, digest: str) -> bool:
        """Whether the cache folder holds all rows of a feature with this digest."""
        index = self.index(name)
        return index is not None and index.is_of(digest, count) and index.done == count

    def through_cache(
        self, name: str, count: int, compute: Callable[[range], Tensor], rows: int, weights: str
    ) -> Tensor:
        """A feature, mapped from the cache folder. The main process computes the rows that it lacks, others wait."""
        # the main process's digest: sums on another GPU may differ in their last digits
        digest = broadcast_object_list([self.digest(name, weights)])[0]
        if not processes().is_main_process:
            while not self.is_cached(name, count, digest):
                time.sleep(POLL_S)  # not a barrier, which times out after some minutes
        note, path, index = self.cache / f"{name}.json", self.cache / f"{name}.bin", self.index(name)
        if index is None or not index.is_of(digest, count):
            note.unlink(missing_ok=True)
            path.unlink(missing_ok=True)  # not overwritten, since a stage before may have mapped it
            index = None
        done = index.done if index else 0
        if done < count:
            make_folder(self.cache)
            with room_for(path), path.open("r+b" if done else "wb") as file:
                for start in range(done, count, rows):
                    values = compute(range(start, min(count, start + rows))).detach().cpu().contiguous()
                    file.seek(start * values[0].nbytes)
                    file.write(values.numpy().tobytes())
                    file.flush()
                    os.fsync(file.fileno())
                    kind: Any = str(values.dtype).removeprefix("torch.")
                    index = FeatureIndex(digest, count, kind, tuple(values.shape[1:]), start + len(values))
                    write_text(note, msgspec.json.encode(index).decode())
        if path.stat().st_size < count * math.prod(index.shape) * getattr(torch, index.dtype).itemsize:
            raise ValueError(f"{path} is cut off; delete it and {note.name} to compute the feature again")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the rows are read-only, and nothing writes to them
            return torch.from_numpy(np.memmap(path, index.dtype, "r", shape=(count, *index.shape)))

    def without(self, *names: str) -> TrainingData:
        """The data without these features, to free their memory."""
        return replace(self, store={name: rows for name, rows in self.store.items() if name not in names})


class FeatureIndex(msgspec.Struct):
    """What a cache folder states about a feature. shape: of a row. done: rows that are written, of `count`."""

    digest: str
    count: int
    dtype: Literal["float16", "float32", "uint8"]
    shape: tuple[int, ...]
    done: int

    def is_of(self, digest: str, count: int) -> bool:
        """Whether it has these rows; without the clips' content, which ends a digest, any content will do."""
        return self.count == count and self.digest.startswith(digest)


def check_clips(found: Sequence[int], spec: ModelSpec, frames: int | None = None) -> None:
    """ValueError unless clips have the shape that the spec's models read. frames: replaces the spec's number."""
    decoder = spec.decoder
    wanted = (frames or decoder.frames, decoder.height, decoder.width, 3)
    if tuple(found) != wanted:
        raise ValueError(f"clips are {tuple(found)} (frames, height, width, 3), but spec {spec.name!r} needs {wanted}")


def check_captions(folder: DatasetFolder) -> None:
    """ValueError if clips have no caption or no measured motion."""
    if open_clips := [turn.clip for turn in folder.turns if not turn.captioned]:
        raise ValueError(f"{len(open_clips)} clips have no caption, the first {open_clips[0]}; caption or drop them")


def pictures(frames_uint8: Tensor) -> Tensor:
    """uint8 frames (..., H, W, 3) as fp32 (..., 3, H, W) in [-1, 1]."""
    return rearrange(frames_uint8.float() / 127.5 - 1, "... h w c -> ... c h w")


def autocast(device: torch.device | str, precision: str = "bf16") -> torch.autocast:
    """bf16 autocast by a StageConfig's precision; most CPUs compute in fp32, since bf16 is slower there."""
    kind = torch.device(device).type
    native = kind != "cpu" or precision == "native" and on_cpu(torch.bfloat16) == torch.bfloat16
    return torch.autocast(kind, torch.bfloat16, enabled=precision != "no" and native)


def forget_names(model: torch.nn.Module, changed: Iterable[str]) -> None:
    """Remove `weights_name`, by which caches know a module, where weights changed. changed: the parameters' names."""
    changed = tuple(changed)
    for path, module in model.named_modules():
        if hasattr(module, "weights_name") and any(name.startswith(f"{path}.") for name in changed):
            del module.weights_name


def weights_digest(module: torch.nn.Module, *extra: object) -> str:
    """A digest of a module's present weights: from its name if it has one, otherwise from sums of the weights."""
    name = getattr(module, "weights_name", None)
    sums = (
        (key, f"{value.double().sum().item():.9e}")
        for key, value in module.state_dict().items()
        if value.is_floating_point() and not value.is_meta
    )
    return digest_of([name] if name else [*sums, *strengths_of(module)], *extra)


def digest_of(parts: Sequence[object], *extra: object) -> str:
    """A short digest of these values."""
    return str(generator("cpu", repr(parts), *map(str, extra)).initial_seed())


def add_frames(data: TrainingData) -> TrainingData:
    """Read every clip into the feature `frames`; ValueError for a clip whose shape differs from the first one's."""
    return data.with_feature("frames", lambda part: clip_frames(data, part, "cpu"), rows=16)


def clip_frames(data: TrainingData, part: range | Sequence[int], device: torch.device | str) -> Tensor:
    """(n, F, H, W, 3) uint8: the frames of these clips, from memory or from their files."""
    if "frames" in data.store:
        return data.gather("frames", part, device)
    rows = _read(data.folder.frames, part)
    for index, frames in zip(part, rows, strict=True):
        if tuple(frames.shape) != data.clip_shape:
            name, shape = data.folder.turns[index].clip, tuple(frames.shape)
            raise ValueError(f"{name} is {shape}, other clips are {data.clip_shape}")
    return torch.stack(rows).to(device)


def first_frames(data: TrainingData, part: range | Sequence[int], device: torch.device | str) -> Tensor:
    """(n, H, W, 3) uint8: the first frames of these clips, from memory or from their files."""
    if "first" in data.store:
        return data.gather("first", part, device)
    if "frames" in data.store:
        return data.store["frames"][torch.as_tensor(part), 0].to(device)
    return torch.stack(_read(data.folder.first_frame, part)).to(device)


def _read(read: Callable[[int], np.ndarray], part: range | Sequence[int]) -> list[Tensor]:
    with ThreadPoolExecutor(READERS) as pool:  # decoding holds no Python lock
        return list(pool.map(lambda index: torch.from_numpy(read(int(index))), part))


@torch.no_grad()
def add_latents(data: TrainingData, decoder: ShotDecoder) -> TrainingData:
    """Add `latents` (n, 2, T, C, h, w) fp16: the posterior's mean and standard deviation, times the scaling factor."""
    vae = decoder.vae
    device = vae.device
    rows = _clips_of(ENCODED_PIXELS, decoder)

    def compute(part: range) -> Tensor:
        frames = clip_frames(data, part, device)
        with autocast(device):
            posterior = vae.encode(rearrange(pictures(frames), "b f c h w -> b c f h w")).latent_dist
        both = torch.stack([posterior.mean.float(), posterior.std.float()], dim=1) * vae.config.scaling_factor
        return rearrange(both, "b p c t h w -> b p t c h w").half().to(_home(data, device))

    return data.with_feature("latents", compute, rows, lambda: weights_digest(vae))


@torch.no_grad()
def add_encoder_features(data: TrainingData, encoder: ShotEncoder, frame: str = "first") -> TrainingData:
    """Add features of the text and image encoder: `text`, and `image` (of first frames) or `image_random`.

    frame: "first" or "random".
    """
    encoder.eval()
    device, home = encoder.text_norm.weight.device, _home(data, encoder.text_norm.weight.device)
    texts = [turn.motion_text for turn in data.folder.turns]
    frames = encoder.spec.decoder.frames if frame == "random" else 1
    at = torch.randint(frames, (len(texts),), generator=generator("cpu", "random frame")).to(device)

    rows = min(64, _clips_of(READ_PIXELS, encoder))

    def text_of(texts: Sequence[str]) -> Tensor:
        return encoder.text_features(encoder.text_ids(texts)).half().to(home)

    def image(part: range) -> Tensor:
        if frames == 1:
            chosen = first_frames(data, part, device)
        else:
            clips = clip_frames(data, part, device)
            chosen = clips[torch.arange(len(clips), device=device), at[part.start : part.stop]]
        with autocast(device):
            return encoder.image_features(pictures(chosen)).half().to(home)

    weights = weights_digest(encoder.text_tower)
    data = data.with_feature("text", lambda part: text_of(texts[part.start : part.stop]), rows, lambda: weights)
    data = data.with_feature(IMAGE_FEATURES[frame], image, rows, lambda: weights_digest(encoder.image_tower))
    if data.cache is None:
        return replace(data, blank_text=text_of([""])[0])
    return replace(data, blank_text=data.through_cache("blank_text", 1, lambda _: text_of([""]), 1, weights)[0])


@torch.no_grad()
def add_states(data: TrainingData, encoder: ShotEncoder, frame: str = "first") -> TrainingData:
    """Add `states`, the shot encoder's representations of all clips, from their text and image features."""
    device = encoder.text_norm.weight.device

    def compute(part: range) -> Tensor:
        text, seen = (data.gather(name, part, device).float() for name in ("text", IMAGE_FEATURES[frame]))
        return encoder.mix(text, seen).half().to(_home(data, device))

    def depends_on() -> str:
        towers = weights_digest(encoder.text_tower), weights_digest(encoder.image_tower)
        mixing = [child for child in encoder.children() if child not in (encoder.text_tower, encoder.image_tower)]
        return weights_digest(torch.nn.ModuleList(mixing), *towers, frame)

    return data.with_feature("states", compute, 256, depends_on)


def _clips_of(pixels: int, model: ShotDecoder | ShotEncoder) -> int:
    """How many of the model's clips have this number of pixels, at least 1."""
    shape = model.spec.decoder
    return max(1, pixels // (shape.frames * shape.height * shape.width))


def _home(data: TrainingData, device: torch.device) -> torch.device | str:
    """The device for a computed feature: its own, or the CPU if it will be written to the cache folder."""
    return "cpu" if data.cache else device
