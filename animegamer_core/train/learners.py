"""What one stage trains and its loss: batches come in, named losses go out. `loss` is the one that is minimised.

B batch, L text tokens, P image tokens, N state tokens, D state width, F frames, T latent frames, C channels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ..decoder import ShotDecoder
from ..encoder import ShotEncoder, clip_pixels
from ..sampler import scale_at
from ..state import clean_text
from .adapters import updates_off
from .compiling import compile_for_training
from .losses import (
    contrastive,
    divergence,
    edge_error,
    motion_error,
    noised,
    shares,
    timestep_band,
    velocity_target,
)
from .material import IMAGE_FEATURES, TrainingData, pictures
from .order import ClipOrder, Draws, Place, generator, random_seed
from .spread import gathered
from .stages import StageConfig

if TYPE_CHECKING:
    from .text_video import TextVideo

UNTOLD_MOTION = 0.0  # px a frame: what a decoder is told of every shot where it is told no motion scope
Batch = Mapping[str, Any]
Losses = dict[str, Tensor]


def told_motion(values: Tensor, config: StageConfig) -> Tensor:
    """The motion values that a stage tells its decoder: the clips' own, or one for all."""
    return values if config.motion_scope else torch.full_like(values, UNTOLD_MOTION)


class Learner(nn.Module):
    """A stage at work. Parameters are named as in a world: encoder., decoder., engine., and heads. for helpers."""

    features: tuple[str, ...] = ()  # that `batch` reads
    idle: tuple[str, ...] = ()  # models in it that no step reads
    unused: bool = False  # whether some trained parameters may get no gradient

    def __init__(self, config: StageConfig) -> None:
        super().__init__()
        self.settings = config

    def order(self, data: TrainingData, held_out: bool = False) -> Any:
        """Which samples each step reads."""
        return ClipOrder(data.clips(held_out), self.settings.batch, self.settings.seed)

    def batch(self, data: TrainingData, rows: Tensor, place: Place, device: torch.device) -> Batch:
        """The tensors of some samples; everything random follows from the seed and the place."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Losses:
        """Named losses, each a value; `loss` is minimised."""
        raise NotImplementedError

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> Tensor | None:
        """(B, N, D): the representations of clips for contact sheets; None where a stage leads to no shots."""
        return None

    def stopped(self) -> None:
        """Undo of an unfinished run what its continuation must not begin with, and no checkpoint brings back."""

    def _draws(self, device: torch.device, place: Place, rows: Tensor, what: str) -> Draws:
        return Draws(device, self.settings.seed, place, len(rows), what)


class VaeLearner(Learner):
    """Rebuilding clips: one pass of the encoder, and the decoder in chunks as in play."""

    features = ("frames",)
    idle = ("decoder.transformer",)

    def __init__(self, config: StageConfig, decoder: ShotDecoder) -> None:
        super().__init__(config)
        self.decoder = decoder
        if config.checkpointing:
            decoder.vae.enable_gradient_checkpointing()

    def batch(self, data: TrainingData, rows: Tensor, place: Place, device: torch.device) -> Batch:
        lengths, numbers = self.settings.clip_lengths, generator("cpu", self.settings.seed, place.step, "length")
        length = lengths[int(torch.randint(len(lengths), (), generator=numbers))]
        frames = data.store.gather(["frames"], rows, device)["frames"][:, :length]
        clip = rearrange(pictures(frames), "b f c h w -> b c f h w")
        spec = self.decoder.spec.decoder
        _, channels, height, width = spec.latent_shape
        noise = self._draws(device, place, rows, "noise")
        return {"clip": clip, "noise": noise.normal(channels, (length - 1) // 4 + 1, height, width)}

    def forward(self, batch: Batch) -> Losses:
        clip, config = batch["clip"], self.settings
        posterior = self.decoder.vae.encode(clip).latent_dist
        rebuilt = self.decoder.vae.decode(posterior.mean + posterior.std * batch["noise"]).sample.float()
        squared = F.mse_loss(rebuilt, clip)
        parts = {
            "l1": F.l1_loss(rebuilt, clip),
            "mse": squared,
            "edge": edge_error(rebuilt, clip),
            "motion": motion_error(rebuilt, clip),
            "kl": divergence(posterior.mean.float(), posterior.logvar.float()),
        }
        loss = sum(getattr(config, name) * value for name, value in parts.items())
        psnr = 10 * torch.log10(4 / squared.detach())  # the range of pictures is 2
        return {"loss": loss, **parts, "psnr": psnr}


class TowerHeads(nn.Module):
    """Between towers and loss, and kept apart from the encoder: one space for text and picture, and patches rebuilt."""

    def __init__(self, text_width: int, image_width: int, patch: int, width: int = 128) -> None:
        super().__init__()
        self.text = nn.Linear(text_width, width, bias=False)
        self.image = nn.Linear(image_width, width, bias=False)
        self.patches = nn.Linear(image_width, 3 * patch * patch)
        self.log_scale = nn.Parameter(torch.tensor([2.66]))  # log(1 / 0.07), as CLIP begins; FSDP2 refuses scalars

    @property
    def scale(self) -> Tensor:
        """The factor on cosines, at most 100."""
        return self.log_scale.exp().clamp(max=100)

    def joined(self, text_BLW: Tensor, valid_BL: Tensor, image_BPW: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors (B, width) of texts and pictures, from the means of their tokens (padding left out)."""
        weight = valid_BL[..., None].to(text_BLW)
        text = (text_BLW * weight).sum(1) / weight.sum(1)
        return F.normalize(self.text(text).float(), dim=-1), F.normalize(self.image(image_BPW.mean(1)).float(), dim=-1)


class TowerLearner(Learner):
    """A text and a picture tower that learn together which whole instruction belongs to which first frame."""

    features = ("frames",)
    unused = True  # the picture tower's last block is not read (reference-facts 9)

    def __init__(self, config: StageConfig, encoder: ShotEncoder, data: TrainingData) -> None:
        super().__init__(config)
        spec = encoder.spec.encoder
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_seed(config.seed, "heads"))
            self.heads = TowerHeads(spec.text.width, spec.image.width, spec.image.patch)
        texts = [turn.instruction for turn in data.folder.turns]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._captions = torch.tensor([numbers[text] for text in texts])
        self._ids = _whole_ids(encoder, texts)

    def batch(self, data: TrainingData, rows: Tensor, place: Place, device: torch.device) -> Batch:
        frames = data.store.gather(["frames"], rows, device)["frames"][:, 0]
        return {
            "images": pictures(frames),
            "ids": self._ids[rows].to(device, non_blocking=True),
            "captions": self._captions[rows].to(device, non_blocking=True),
        }

    def forward(self, batch: Batch) -> Losses:
        text_BLW = self.encoder.text_features(batch["ids"])
        image_BPW = self.encoder.image_features(batch["images"])
        text, image = (gathered(unit) for unit in self.heads.joined(text_BLW, batch["ids"] > 0, image_BPW))
        captions = gathered(batch["captions"])  # a sample has those of all processes to be told from
        match = contrastive(text, image, self.heads.scale, captions)
        found = captions[(text @ image.T).argmax(1)] == captions
        parts = {"contrastive": match, "retrieval": found.float().mean()}
        if not self.settings.pixels:
            return {"loss": match, **parts}
        spec = self.encoder.spec.encoder.image
        wanted = rearrange(
            clip_pixels(batch["images"], spec.image_size),
            "b c (h p) (w q) -> b (h w) (c p q)",
            p=spec.patch,
            q=spec.patch,
        )
        rebuilt = F.mse_loss(self.heads.patches(image_BPW).float(), wanted)
        return {"loss": match + self.settings.pixels * rebuilt, **parts, "pixels": rebuilt}


def _whole_ids(encoder: ShotEncoder, texts: list[str]) -> Tensor:
    """(n, L) ids of whole instructions, each ended and padded with zeros to the longest."""
    end = encoder.tokenizer.token_to_id("</s>")
    rows = [
        torch.tensor([*encoder.tokenizer.encode(clean_text(text), add_special_tokens=False).ids, end]) for text in texts
    ]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def compile_transformer(decoder: ShotDecoder) -> None:
    """Compile a decoder's transformer, once for each number of samples that it is called with.

    There are few: a part of a batch, twice that where a teacher guides itself, and the shots of contact sheets. A graph
    for any number, which torch would make at the second, is slower.
    """
    compile_for_training(decoder.transformer, dynamic=False)


class DiffusionLearner(Learner):
    """The decoder learns the velocity of noised latents: from E_a's representations, or from the engine's (adaptation).

    The motion value is the clip's own and is never dropped (reference-facts 10.1).
    """

    def __init__(self, config: StageConfig, decoder: ShotDecoder, encoder: ShotEncoder | None) -> None:
        super().__init__(config)
        self.encoder, self.decoder = encoder, decoder
        seen = ("text", IMAGE_FEATURES[config.encoder_frame]) if encoder is not None else ("predicted",)
        self.features = ("latents", *seen)
        self.idle = ("decoder.vae", *(f"encoder.{tower}_tower" for tower in ("text", "image") if encoder is not None))
        if config.checkpointing:
            decoder.transformer.enable_gradient_checkpointing()
        if config.compile:
            compile_transformer(decoder)

    def batch(self, data: TrainingData, rows: Tensor, place: Place, device: torch.device) -> Batch:
        draws = self._draws(device, place, rows, "diffusion")
        values = data.store.gather(self.features, rows, device)
        mean, deviation = values["latents"].float().unbind(1)
        clean, noise = mean, draws.normal(*mean.shape[1:])
        if self.settings.sample_latents:
            clean = mean + deviation * draws.normal(*mean.shape[1:])
        first, width = self._bands(draws)
        timesteps = first + (width * draws.uniform()).long()
        return {"clean": clean, "noise": noise, "timesteps": timesteps, **self._told(data, rows, values, draws)}

    def _told(self, data: TrainingData, rows: Tensor, values: Batch, draws: Draws) -> Batch:
        """What the decoder is told of the samples beside their noised latents."""
        motion = told_motion(data.motion[rows.cpu()], self.settings)
        told = {"motion": motion.to(values["latents"].device, non_blocking=True)}
        if self.encoder is None:
            return {**told, **self._predicted(values["predicted"].float(), draws)}
        text, image = (values[name].float() for name in self.features[1:])
        return {**told, **self._conditions(text, image, data.blank_text.to(text), draws)}

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> Tensor:
        values = {name: value.float() for name, value in data.store.gather(self.features[1:], rows, device).items()}
        if self.encoder is None:
            return values["predicted"]
        self.decoder.unconditional_ND.copy_(self.encoder.unconditional())  # no step of such a stage reads it
        return self.encoder.mix(*values.values())

    def sample(self, states_BND: Tensor, motion_B: Tensor, seeds: Sequence[int], steps: int) -> Tensor:
        """(B, T, C, H, W) latents of shots."""
        return self.decoder.sample(states_BND, motion_B, seeds, steps=steps)

    def _bands(self, draws: Draws) -> tuple[Tensor, int]:
        """((B,) first timesteps, width) of the bands that the samples draw their timesteps from."""
        count = draws.batch if self.settings.band_timesteps else 1
        bands = [timestep_band(sample, count) for sample in range(count)]
        starts = torch.tensor([start for start, _ in bands]).expand(draws.batch)
        return draws.own(starts), bands[0][1] - bands[0][0]

    def _conditions(self, text: Tensor, image: Tensor, blank: Tensor, draws: Draws) -> Batch:
        """Text and image features with each kind of dropout, drawn for each sample."""
        config = self.settings
        chances = torch.tensor([config.drop_text, config.drop_text_features, config.drop_image, config.drop_both])
        drawn = draws.uniform(4) < chances.to(text.device)
        blank_text, no_text, no_image, neither = drawn.T[..., None, None]
        text = torch.where(blank_text, blank, text)
        return {
            "text": text.masked_fill(no_text | neither, 0.0),
            "image": image.masked_fill(no_image | neither, 0.0),
        }

    def _predicted(self, states: Tensor, draws: Draws) -> Batch:
        """The engine's representations, some replaced by the representation of nothing."""
        dropped = draws.uniform() < self.settings.drop_both
        nothing = self.decoder.unconditional_ND.to(states)
        return {"states": torch.where(dropped[:, None, None], nothing, states)}

    def forward(self, batch: Batch) -> Losses:
        share = shares(batch["timesteps"], batch["clean"])
        latents = noised(batch["clean"], batch["noise"], share)
        velocity = self._velocity(latents, batch)
        return {"loss": F.mse_loss(velocity.float(), velocity_target(batch["clean"], batch["noise"], share))}

    def _velocity(self, latents: Tensor, batch: Batch) -> Tensor:
        states = batch["states"] if self.encoder is None else self.encoder.mix(batch["text"], batch["image"])
        return self.decoder.velocity(latents, batch["timesteps"], states, batch["motion"])


class DistillLearner(DiffusionLearner):
    """The decoder learns to say in one pass what guidance makes of two: u + g (c - u), of itself as the stage began.

    g is that of guidance `cosine` or `constant` at each sample's timestep (Meng et al. 2023, On Distillation of Guided
    Diffusion Models, with one fixed schedule in place of a range of strengths). Shots are then sampled with guidance
    `distilled`.
    """

    def __init__(self, config: StageConfig, decoder: ShotDecoder) -> None:
        super().__init__(config, decoder, None)
        # Low-rank updates alone are switched off for the teacher's turn; whole weights need a copy that stays. It is no
        # part of this module, which would else train and store it.
        self._copy = (copy.deepcopy(decoder, {id(decoder.vae): decoder.vae}),) if config.trainable else ()
        for teacher in self._copy:
            teacher.transformer.requires_grad_(False)
            if config.compile:  # a copy is not compiled, whatever it was made of
                compile_transformer(teacher)

    def sample(self, states_BND: Tensor, motion_B: Tensor, seeds: Sequence[int], steps: int) -> Tensor:
        """(B, T, C, H, W) latents of shots."""
        return self.decoder.sample(states_BND, motion_B, seeds, steps=steps, guidance="distilled")

    def forward(self, batch: Batch) -> Losses:
        share = shares(batch["timesteps"], batch["clean"])
        latents = noised(batch["clean"], batch["noise"], share)
        with torch.no_grad(), self._teacher() as teacher:
            wanted = self._guided(teacher, latents, batch)
        # Autocast keeps what it casts a trained weight to. Before pytorch's pull request 165068 (torch 2.6 to 2.9) a
        # cast of the teacher's pass has no gradient, and low-rank updates, which both passes read, would not learn.
        torch.clear_autocast_cache()
        return {"loss": F.mse_loss(self._velocity(latents, batch).float(), wanted)}

    def stopped(self) -> None:
        for teacher in self._copy:  # the next learner's teacher is a copy of this decoder
            self.decoder.transformer.load_state_dict(teacher.transformer.state_dict())

    def _guided(self, teacher: ShotDecoder, latents: Tensor, batch: Batch) -> Tensor:
        """(B, T, C, H, W): the teacher's velocity, guided."""
        states, timesteps = batch["states"], batch["timesteps"]
        nothing = teacher.unconditional_ND.to(states).expand_as(states)
        both = teacher.velocity(
            torch.cat([latents, latents]), timesteps.repeat(2), torch.cat([nothing, states]), batch["motion"].repeat(2)
        )
        without, told = both.float().chunk(2)
        scale_B = scale_at(self.settings.teacher_guidance, self.decoder.spec.decoder.guidance_scale, timesteps)
        return without + scale_B[:, None, None, None, None] * (told - without)

    @contextmanager
    def _teacher(self) -> Iterator[ShotDecoder]:
        """The decoder as the stage began."""
        if self._copy:
            (teacher,) = self._copy
            teacher.transformer.to(self.decoder.unconditional_ND.device)
            yield teacher
            return
        with updates_off(self):
            yield self.decoder


class TextVideoLearner(DiffusionLearner):
    """The baseline GC: the same clips, noise and loss, told the whole instruction as text and nothing else."""

    def __init__(self, config: StageConfig, model: TextVideo) -> None:
        super().__init__(config, model, None)
        self.features = ("latents", "instruction")
        self.idle = (*self.idle, "decoder.text_encoder")

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> None:
        return None  # it reads no representation

    def _told(self, data: TrainingData, rows: Tensor, values: Batch, draws: Draws) -> Batch:
        config, text = self.settings, values["instruction"].float()
        chances = torch.tensor([config.drop_text, config.drop_text_features])
        blank, nothing = (draws.uniform(2) < chances.to(text.device)).T[..., None, None]
        return {"text": torch.where(blank, data.blank_text.to(text), text).masked_fill(nothing, 0.0)}

    def _velocity(self, latents: Tensor, batch: Batch) -> Tensor:
        return self.decoder.velocity(latents, batch["timesteps"], batch["text"])
