"""Contact sheets of a run: true clips next to shots drawn with the current weights.

They do not use the run's random numbers, so a run computes the same with and without them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ..files import save_picture
from ..media.video import to_uint8
from ..model.decoder import ShotDecoder
from .distributed import processes, reshard
from .learners import Learner, motion_condition
from .parts import WorldParts
from .stages import StageConfig
from .trainer import on_device
from .training_data import TrainingData, autocast

if TYPE_CHECKING:
    from PIL import Image

SHEETS = "shots"  # folder in a run's folder
CLIPS = 4  # rows of a sheet
_TILE = 160  # height of a picture in pixels
_GAP, _LINE = 6, 22
_BACKGROUND, _TITLE, _CAPTION = "#ffffff", "#23262f", "#696d78"


@dataclass(frozen=True)
class ShotSheets:
    """Draws the sheets of one stage into `out`: of held-out clips, or of training clips if none are held out."""

    stage: str
    config: StageConfig
    parts: WorldParts
    data: TrainingData
    out: Path

    @property
    def clips(self) -> tuple[int, ...]:
        """The clips that every sheet shows."""
        clips = self.data.clips(held_out=True) or self.data.clips()
        count = min(CLIPS, len(clips))
        return tuple(clips[number * len(clips) // count] for number in range(count))

    @torch.no_grad()
    def draw(self, learner: Learner, vae: nn.Module | None, step: int, device: torch.device) -> None:
        """Write the sheet of a step, if the stage can show shots and a decoder is loaded; every process must call this.

        learner: with the weights to show. vae: the decoder's, if it was moved to the CPU.
        """
        vae = vae if vae is not None else self.parts.decoder and self.parts.decoder.vae
        rows = torch.tensor(self.clips)
        learner.eval()
        with autocast(device, self.config.precision):
            states = learner.states(self.data, rows, device)
            if states is None or vae is None:
                return
            latents = self._sample(learner, states.float(), rows, device)
        reshard(learner)
        if not processes().is_main_process:
            return
        with on_device(vae, device), _with_vae(self.parts.of("decoder"), vae, device) as decoder:
            shots = _pictures(decoder, latents)
            true = self._true(decoder, rows, device)
        save_picture(self.sheet(true, shots, step), self.out / SHEETS / f"step-{step:07d}.png")

    def _sample(self, learner: Learner, states_BND: Tensor, rows: Tensor, device: torch.device) -> Tensor:
        motion = motion_condition(self.data.motion[rows], self.config)
        seeds, steps = rows.tolist(), self.config.shots_steps
        if hasattr(learner, "sample"):
            return learner.sample(states_BND, motion, seeds, steps)
        with on_device(self.parts.of("decoder"), device):
            return self.parts.decoder.eval().sample(states_BND, motion, seeds, steps=steps)

    def _true(self, decoder: ShotDecoder, rows: Tensor, device: torch.device) -> list[np.ndarray]:
        """The clips from memory; else their latents from memory, decoded; else the clips from their files."""
        store = self.data.store
        if "frames" in store:
            return list(store.gather(["frames"], rows, "cpu")["frames"].numpy())
        if "latents" in store:
            return _pictures(decoder, store.gather(["latents"], rows, device)["latents"][:, 0].float())
        return [self.data.folder.frames(index) for index in rows.tolist()]

    def sheet(self, true: list[np.ndarray], shots: list[np.ndarray], step: int) -> Image.Image:
        """The sheet: per clip a row with three of its frames and three of its shot. true, shots: uint8 (F, H, W, 3)."""
        from PIL import Image, ImageDraw

        width = round(_TILE * shots[0].shape[2] / shots[0].shape[1])
        row = _TILE + _LINE + _GAP
        paper = Image.new("RGB", (_GAP + 6 * (width + _GAP) + _GAP, _LINE + len(shots) * row + _GAP), _BACKGROUND)
        pen = ImageDraw.Draw(paper)
        pen.text((_GAP, 4), f"{self.stage}, step {step}: clips to the left, shots to the right", fill=_TITLE)
        for number, (clip, pair) in enumerate(zip(self.clips, zip(true, shots, strict=True), strict=True)):
            top = _LINE + number * row
            turn = self.data.folder.turns[clip]
            pen.text((_GAP, top + 4), f"clip {clip + 1}, motion value {turn.motion_value:.3g}", fill=_CAPTION)
            for side, frames in enumerate(pair):
                for tile, frame in enumerate(frames[[0, len(frames) // 2, -1]]):
                    picture = Image.fromarray(frame).resize((width, _TILE), Image.Resampling.LANCZOS)
                    left = _GAP + (3 * side + tile) * (width + _GAP) + side * _GAP
                    paper.paste(picture, (left, top + _LINE))
        return paper


@contextmanager
def _with_vae(decoder: ShotDecoder, vae: nn.Module, device: torch.device) -> Iterator[ShotDecoder]:
    """The decoder with its VAE while the block runs; on a GPU it decodes in tiles, to save memory."""
    before = decoder.vae, decoder.tiled
    decoder.vae, decoder.tiled = vae.eval(), device.type != "cpu"
    try:
        with autocast(device):
            yield decoder
    finally:
        decoder.vae, decoder.tiled = before


def _pictures(decoder: ShotDecoder, latents_BTCHW: Tensor) -> list[np.ndarray]:
    """Decode rows of latents one at a time: uint8 (F, H, W, 3) each."""
    return [to_uint8(decoder.decode_latents(row[None])[0]) for row in latents_BTCHW]
