"""Contact sheets of a run: what true clips show, beside shots from the weights so far.

They take no number from the run's generators, so a run goes on the same with and without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from einops import rearrange
from torch import Tensor, nn

from ..files import replacing
from .learners import Learner
from .material import TrainingData, autocast
from .parts import WorldParts
from .spread import let_go, processes
from .stages import StageConfig
from .weights import lent

if TYPE_CHECKING:
    from PIL import Image

SHEETS = "shots"  # folder in a run's folder
CLIPS = 4
_TILE = 160  # height of a picture
_GAP, _LINE = 6, 22
_PAPER, _INK, _FAINT = "#ffffff", "#23262f", "#696d78"


@dataclass(frozen=True)
class ShotSheets:
    """Draws the sheets of one stage into `out`: of held-out clips, or the first ones where none is held out."""

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
        """Write the sheet of a step, if the stage leads to shots and a decoder is there; every process calls it.

        learner: with the weights to show. vae: the decoder's, where the learner had it set aside.
        """
        vae = vae if vae is not None else self.parts.decoder and self.parts.decoder.vae
        rows = torch.tensor(self.clips)
        learner.eval()
        with autocast(device, self.config.precision):
            states = learner.states(self.data, rows, device)
            if states is None or vae is None:
                return
            latents = self._latents(learner, states.float(), rows, device)
        let_go(learner)
        if not processes().is_main_process:
            return
        with lent(vae, device):
            shots = _pictures(vae, latents, device)
            true = self._true(vae, rows, device)
        with replacing(self.out / SHEETS / f"step-{step:07d}.png") as part:
            self.sheet(true, shots, step).save(part, format="PNG")

    def _latents(self, learner: Learner, states_BND: Tensor, rows: Tensor, device: torch.device) -> Tensor:
        motion, seeds, steps = self.data.motion[rows], rows.tolist(), self.config.shots_steps
        if hasattr(learner, "sample"):
            return learner.sample(states_BND, motion, seeds, steps)
        with lent(self.parts.of("decoder"), device):
            return self.parts.decoder.eval().sample(states_BND, motion, seeds, steps=steps)

    def _true(self, vae: nn.Module, rows: Tensor, device: torch.device) -> list[np.ndarray]:
        """The clips themselves; where only their latents are cached, what the VAE makes of those."""
        if "frames" in self.data.store or "latents" not in self.data.store:
            stored = "frames" in self.data.store
            return [self._frames(index) if stored else self.data.folder.frames(index) for index in rows.tolist()]
        return _pictures(vae, self.data.store.gather(["latents"], rows, device)["latents"][:, 0].float(), device)

    def _frames(self, index: int) -> np.ndarray:
        return self.data.store.gather(["frames"], torch.tensor([index]), "cpu")["frames"][0].numpy()

    def sheet(self, true: list[np.ndarray], shots: list[np.ndarray], step: int) -> Image.Image:
        """One row a clip: three pictures of it, three of the shot; `true` and `shots` are uint8 (F, H, W, 3)."""
        from PIL import Image, ImageDraw

        width = round(_TILE * shots[0].shape[2] / shots[0].shape[1])
        row = _TILE + _LINE + _GAP
        paper = Image.new("RGB", (_GAP + 6 * (width + _GAP) + _GAP, _LINE + len(shots) * row + _GAP), _PAPER)
        pen = ImageDraw.Draw(paper)
        pen.text((_GAP, 4), f"{self.stage}, step {step}: clips to the left, shots to the right", fill=_INK)
        for number, (clip, pair) in enumerate(zip(self.clips, zip(true, shots, strict=True), strict=True)):
            top = _LINE + number * row
            turn = self.data.folder.turns[clip]
            pen.text((_GAP, top + 4), f"clip {clip + 1}, motion value {turn.motion_value:.3g}", fill=_FAINT)
            for side, frames in enumerate(pair):
                for tile, frame in enumerate(frames[[0, len(frames) // 2, -1]]):
                    picture = Image.fromarray(frame).resize((width, _TILE), Image.Resampling.LANCZOS)
                    left = _GAP + (3 * side + tile) * (width + _GAP) + side * _GAP
                    paper.paste(picture, (left, top + _LINE))
        return paper


def _pictures(vae: nn.Module, latents_BTCHW: Tensor, device: torch.device) -> list[np.ndarray]:
    """uint8 (F, H, W, 3) of each row of latents, one at a time; in tiles on a GPU: a whole picture takes 19 GiB."""
    if device.type != "cpu":
        vae.enable_tiling()
    found = []
    for row in latents_BTCHW:
        scaled = rearrange(row.to(vae.dtype) / vae.config.scaling_factor, "t c h w -> 1 c t h w")
        with autocast(device):
            frames = vae.eval().decode(scaled).sample[0].float()
        bytes_FHWC = rearrange((frames.clamp(-1, 1) + 1) * 127.5, "c f h w -> f h w c").round().byte()
        found.append(bytes_FHWC.cpu().numpy())
    if device.type != "cpu":
        vae.disable_tiling()
    return found
