"""Learners: the models that a stage trains, and its loss. They take batches and return named losses.

B batch, L text tokens, P image tokens, N state tokens, D state width, F frames, T latent frames, C channels.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn

from ..model.decoder import UNCONDITIONAL_MOTION, ShotDecoder
from ..model.encoder import ShotEncoder, clip_pixels
from ..model.sampler import Schedule, ddim_step, scale_at, sqrt_alpha_cumprod
from ..spec import UNSTATED, Sampling
from ..weights.lora import left_out, recomputed
from .distributed import all_gather
from .losses import (
    clean_of,
    contrastive,
    divergence,
    edge_error,
    motion_error,
    moving_weight,
    noise_of,
    noised,
    timestep_band,
    velocity_target,
)
from .parts import ADAPTER, FAKE
from .sampling import ClipSampler, MicroBatch, SampleNoise, generator, random_seed
from .stages import StageConfig
from .training_data import IMAGE_FEATURES, TrainingData, clip_frames, first_frames, pictures

MOVED_LATENT = 1.0  # by which a latent, of deviation 1, differs from the one before where something moves
LEAST_NOISE = 0.2  # deviation below which errors of clean latents weigh no more; the last of 16 steps has 0.41
Batch = Mapping[str, Any]
Losses = dict[str, Tensor]


class Learner(nn.Module):
    """The models of a stage and its loss.

    Parameters are named as in a world: encoder., decoder., engine.; layers that only training needs are named heads.
    """

    idle: tuple[str, ...] = ()  # names of its models that no step reads
    unused: bool = False  # whether some trained parameters may get no gradient
    adapters: tuple[str, ...] = (ADAPTER,)  # names of the LoRA that it trains, if the stage trains any
    taught = UNSTATED  # the sampling that the weights are trained for, in contact sheets too

    def __init__(self, config: StageConfig) -> None:
        super().__init__()
        self.settings = config

    def sampler(self, data: TrainingData, held_out: bool = False) -> Any:
        """The sampler, which chooses the samples of each step."""
        return ClipSampler(data.clips(held_out), self.settings.batch, self.settings.seed)

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        """The tensors of these samples. Random numbers depend only on the seed and the micro-batch."""
        raise NotImplementedError

    def forward(self, batch: Batch) -> Losses:
        """Named losses, each a scalar; `loss` is minimised, the others are only logged."""
        raise NotImplementedError

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> Tensor | None:
        """(B, N, D): the representations of clips, for contact sheets; None if the stage cannot show shots."""
        return None


def _channels_last(clips_BCFHW: Tensor) -> Tensor:
    """The same in the order of axes in memory that a GPU's convolutions are fastest with; layers after them keep it."""
    return clips_BCFHW.contiguous(memory_format=torch.channels_last_3d) if clips_BCFHW.is_cuda else clips_BCFHW


def rebuilding_losses(rebuilt_BCFHW: Tensor, clip_BCFHW: Tensor, weight: Tensor, config: StageConfig) -> Losses:
    """How far rebuilt clips are from true ones, in [-1, 1]: the parts of the loss, their sum, and the PSNR in dB.

    weight: of each pixel, from `moving_weight`.
    """
    error = weight * (rebuilt_BCFHW - clip_BCFHW)
    zero = torch.zeros_like(error)
    parts = {
        "l1": error.abs().mean(),
        "mse": (error * error / weight).mean(),
        "edge": edge_error(error, zero, config.edge_scales),
        "motion": motion_error(error, zero),
    }
    loss = parts["l1"] + sum(getattr(config, name) * parts[name] for name in ("mse", "edge", "motion"))
    psnr = 10 * torch.log10(4 / F.mse_loss(rebuilt_BCFHW.detach(), clip_BCFHW))  # the range of pictures is 2
    return {"loss": loss, **parts, "psnr": psnr}


class VaeLearner(Learner):
    """Trains the VAE to reconstruct clips. Its encoder reads them in one pass, its decoder in chunks as in play.

    A tiny decoder learns beside it, or alone where only its parameters are trained. With `latent_noise`, nothing that
    matters is as small in the latents as the errors of what predicts them. least: (B, 1, 1, 1, 1) of the deviation.
    """

    idle = ("decoder.transformer",)

    def __init__(self, config: StageConfig, decoder: ShotDecoder) -> None:
        super().__init__(config)
        self.decoder = decoder
        self._reader: ThreadPoolExecutor | None = None
        self._ahead: tuple[list[int], Future[Tensor]] | None = None  # rows of the next step, and their clips
        if config.checkpointing:
            decoder.vae.enable_gradient_checkpointing()

    def sampler(self, data: TrainingData, held_out: bool = False) -> Any:
        sampler = super().sampler(data, held_out)
        if not held_out:
            self._sampler = sampler
        return sampler

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        clips_BFHWC = self._frames(data, rows, micro)
        if self.settings.crop:
            # one place for all of a micro-batch, on the grid of the latents
            sides = [min(pair) for pair in zip(self.settings.crop, clips_BFHWC.shape[2:4], strict=True)]
            draw = generator("cpu", self.settings.seed, micro.step, micro.rank, micro.index, "crop")
            top, left = (
                8 * int(torch.randint((full - side) // 8 + 1, (), generator=draw))
                for full, side in zip(clips_BFHWC.shape[2:4], sides, strict=True)
            )
            clips_BFHWC = clips_BFHWC[:, :, top : top + sides[0], left : left + sides[1]]
        clip = rearrange(pictures(clips_BFHWC.to(device)), "b f c h w -> b c f h w")
        frames, channels = self.decoder.spec.decoder.latent_shape[:2]
        height, width = (side // self.decoder.spec.decoder.vae.spatial_factor for side in clip.shape[-2:])
        random = SampleNoise(device, self.settings.seed, micro, len(rows), "noise")
        noise, most = random.normal(channels, frames, height, width), self.settings.latent_noise
        return {"clip": clip, "noise": noise, "least": most * random.uniform()[:, None, None, None, None]}

    def _frames(self, data: TrainingData, rows: Tensor, micro: MicroBatch) -> Tensor:
        """(B, F, H, W, 3) uint8: the clips of a micro-batch; if they are read from files, the next step's meanwhile."""
        ahead, self._ahead = self._ahead, None
        clips = ahead[1].result() if ahead and ahead[0] == rows.tolist() else clip_frames(data, rows.tolist(), "cpu")
        if "frames" not in data.store and self.training and micro.count == 1:
            self._reader = self._reader or ThreadPoolExecutor(1)
            after = micro.rows(self._sampler.batch(micro.step + 1)).tolist()
            self._ahead = after, self._reader.submit(clip_frames, data, after, "cpu")
        return clips

    def forward(self, batch: Batch) -> Losses:
        clip, config = batch["clip"], self.settings
        vae, weight = self.decoder.vae, moving_weight(clip, config.moving)
        posterior = vae.encode(_channels_last(clip)).latent_dist
        latents = posterior.mean + torch.maximum(posterior.std, batch["least"]) * batch["noise"]
        found: Losses = {}
        if any(own.requires_grad for own in vae.decoder.parameters()) or not hasattr(vae, "tiny"):
            rebuilt = vae.decode(_channels_last(latents)).sample.float()
            kl = divergence(posterior.mean.float(), posterior.logvar.float())
            found = rebuilding_losses(rebuilt, clip, weight, config) | {"kl": kl}
            found["loss"] = found["loss"] + config.kl * kl
        if hasattr(vae, "tiny") and any(own.requires_grad for own in vae.tiny.parameters()):
            # it learns to read latents, which do not change for its sake
            small = rearrange(vae.tiny(latents.detach()).float(), "b f c h w -> b c f h w")
            tiny = rebuilding_losses(small, clip, weight, config)
            found = {**found, "tiny_psnr": tiny["psnr"], "loss": found.get("loss", 0) + tiny["loss"]}
        return found


class ContrastiveHeads(nn.Module):
    """Layers that only stage `towers` needs, from text and image to one space, and from image features to patches."""

    def __init__(self, text_width: int, image_width: int, patch: int, width: int = 128) -> None:
        super().__init__()
        self.text = nn.Linear(text_width, width, bias=False)
        self.image = nn.Linear(image_width, width, bias=False)
        self.patches = nn.Linear(image_width, 3 * patch * patch)
        self.log_scale = nn.Parameter(torch.tensor([2.66]))  # log(1 / 0.07), as in CLIP; FSDP2 refuses scalars

    def embed(self, text_BLW: Tensor, valid_BL: Tensor, image_BPW: Tensor) -> tuple[Tensor, Tensor]:
        """Unit vectors (B, width) of texts and of images, from the means of their tokens without padding."""
        weight = valid_BL[..., None].to(text_BLW)
        text = (text_BLW * weight).sum(1) / weight.sum(1)
        return F.normalize(self.text(text).float(), dim=-1), F.normalize(self.image(image_BPW.mean(1)).float(), dim=-1)


class ContrastiveLearner(Learner):
    """Trains text and image encoder (stage `towers`) to match whole instructions with first frames."""

    unused = True  # the image encoder's last block is not read (docs/reference.md, shot encoder)

    def __init__(self, config: StageConfig, encoder: ShotEncoder, data: TrainingData) -> None:
        super().__init__(config)
        spec = encoder.spec.encoder
        self.encoder = encoder
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_seed(config.seed, "heads"))
            self.heads = ContrastiveHeads(spec.text.width, spec.image.width, spec.image.patch)
        texts = [turn.caption for turn in data.folder.turns]
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        self._captions = torch.tensor([numbers[text] for text in texts])
        end, tokenizer = encoder.tokenizer.token_to_id("</s>"), encoder.tokenizer
        ids = [[*tokenizer.encode(text, add_special_tokens=False).ids, end] for text in texts]
        self._ids = nn.utils.rnn.pad_sequence(list(map(torch.tensor, ids)), batch_first=True)  # padded with zeros

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        return {
            "images": pictures(first_frames(data, rows, device)),
            "ids": self._ids[rows].to(device, non_blocking=True),
            "captions": self._captions[rows].to(device, non_blocking=True),
        }

    def forward(self, batch: Batch) -> Losses:
        text_BLW = self.encoder.text_features(batch["ids"])
        image_BPW = self.encoder.image_features(batch["images"])
        text, image = (all_gather(unit) for unit in self.heads.embed(text_BLW, batch["ids"] > 0, image_BPW))
        captions = all_gather(batch["captions"])  # the samples of all processes are negatives for each other
        match = contrastive(text, image, self.heads.log_scale.exp().clamp(max=100), captions)
        found = captions[(text @ image.T).argmax(1)] == captions
        parts = {"contrastive": match, "retrieval": found.float().mean()}
        if not self.settings.pixels:
            return {"loss": match, **parts}
        spec = self.encoder.spec.encoder.image
        pixels = clip_pixels(batch["images"], spec.image_size)
        wanted = rearrange(pixels, "b c (h p) (w q) -> b (h w) (c p q)", p=spec.patch, q=spec.patch)
        rebuilt = F.mse_loss(self.heads.patches(image_BPW).float(), wanted)
        return {"loss": match + self.settings.pixels * rebuilt, **parts, "pixels": rebuilt}


class DiffusionLearner(Learner):
    """Trains the decoder to predict the velocity of noised latents, given E_a's representations or the engine's.

    The latter is adaptation. The motion value is the clip's own, unless `motion_scope` is off.
    """

    def __init__(self, config: StageConfig, decoder: ShotDecoder, encoder: ShotEncoder | None) -> None:
        super().__init__(config)
        self.encoder, self.decoder = encoder, decoder
        played = ("predicted", "states") if config.true_states else ("predicted",)
        read = ("text", IMAGE_FEATURES[config.encoder_frame]) if encoder is not None else played
        self.features = ("latents", *read)
        self._played = torch.tensor(Schedule.of(decoder.spec.decoder.steps).timesteps)
        self.idle = ("decoder.vae", *(f"encoder.{tower}_tower" for tower in ("text", "image") if encoder is not None))
        if config.checkpointing:
            decoder.transformer.enable_gradient_checkpointing(recomputed)
        if config.compile:
            # Compiles once for each number of samples. There are few: a micro-batch, twice that for a guided teacher,
            # and the shots of contact sheets. A graph for any number would be slower.
            compile_for_training(decoder.transformer, dynamic=False)

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        random = SampleNoise(device, self.settings.seed, micro, len(rows), "diffusion")
        values = {name: data.gather(name, rows, device) for name in self.features}
        mean, deviation = values["latents"].float().unbind(1)
        noise = random.normal(*mean.shape[1:])
        clean = mean + deviation * random.normal(*mean.shape[1:])
        bands = [timestep_band(sample, random.batch) for sample in range(random.batch)]
        width, first = bands[0][1] - bands[0][0], random.rows(torch.tensor([start for start, _ in bands]))
        timesteps = first + (width * random.uniform()).long()
        if self.settings.played_steps:
            played = self._played.to(device, non_blocking=True)
            chosen = played[(len(played) * random.uniform()).long()]
            timesteps = torch.where(random.uniform() < self.settings.played_steps, chosen, timesteps)
        ended = self.training and micro.step >= (1 - self.settings.own_steps) * self.settings.steps
        own = {"drawn": micro.step % len(self._played) if ended else 0}
        conditions = self._conditions(data, rows, values, random)
        return {"clean": clean, "noise": noise, "timesteps": timesteps, **own, **conditions}

    def _conditions(self, data: TrainingData, rows: Tensor, values: Batch, random: SampleNoise) -> Batch:
        """The decoder's conditions besides the noised latents, with dropout drawn for each sample."""
        config, device = self.settings, values["latents"].device
        motion = motion_condition(data.motion[rows.cpu()], config).to(device, non_blocking=True)
        if self.encoder is None:
            states = values["predicted"].float()
            if config.true_states:
                true = random.uniform() < config.true_states
                states = torch.where(true[:, None, None], values["states"].float(), states)
            blank = random.uniform() < config.drop_both
            nothing = self.decoder.unconditional_ND.to(states)
            read = {"states": torch.where(blank[:, None, None], nothing, states)}
        else:
            text, image = (values[name].float() for name in self.features[1:])
            chances = [config.drop_text, config.drop_text_features, config.drop_image, config.drop_both]
            drawn = random.uniform(4) < torch.tensor(chances, device=device)
            blank_text, no_text, no_image, neither = drawn.T[..., None, None]
            text = torch.where(blank_text, data.blank_text.to(text), text).masked_fill(no_text | neither, 0.0)
            read = {"text": text, "image": image.masked_fill(no_image | neither, 0.0)}
        return {"motion": motion, **read}

    def states(self, data: TrainingData, rows: Tensor, device: torch.device) -> Tensor:
        values = {name: data.gather(name, rows, device).float() for name in self.features[1:]}
        if self.encoder is None:
            return values["predicted"]
        self.decoder.unconditional_ND.copy_(self.encoder.unconditional())  # in these stages, no step reads it
        return self.encoder.mix(*values.values())

    def sample(self, states_BND: Tensor, motion_B: Tensor, seeds: Sequence[int], steps: int) -> Tensor:
        """(B, T, C, H, W) latents of shots."""
        sampling: dict[str, Any] = {"steps": steps, **self.taught.stated()}
        return self.decoder.sample(states_BND, motion_B, seeds, **sampling)

    def forward(self, batch: Batch) -> Losses:
        states = batch["states"] if self.encoder is None else self.encoder.mix(batch["text"], batch["image"])
        if batch["drawn"]:
            batch = self._drawn(batch, states)
        sqrt_alpha = sqrt_alpha_cumprod(batch["timesteps"], batch["clean"])
        latents = noised(batch["clean"], batch["noise"], sqrt_alpha)
        found = self.decoder.velocity(latents, batch["timesteps"], states, batch["motion"])
        error = self._error(found, self._wanted(latents, batch, sqrt_alpha), sqrt_alpha)
        clean = rearrange(batch["clean"], "b t c h w -> b c t h w")
        weight = moving_weight(clean, self.settings.moving, MOVED_LATENT, around=1)
        return {"loss": (rearrange(weight, "b c t h w -> b t c h w") * error * error).mean()}

    def _drawn(self, batch: Batch, states_BND: Tensor) -> Batch:
        """The batch at a later step of play, with latents that the decoder drew in the steps before it.

        So it learns to mend its own errors, which a noised clip has not. It begins with the clip, noised as in play's
        first step: from noise alone it would draw another clip that fits the state, and learn a mean of both.
        """
        clean, steps = batch["clean"], self._played[: batch["drawn"] + 1].tolist()
        timesteps = [torch.full_like(batch["timesteps"], step) for step in steps]
        sqrt_alphas = [sqrt_alpha_cumprod(each, clean) for each in timesteps]
        latents = noised(clean, batch["noise"], sqrt_alphas[0])
        for timestep, (now, following) in zip(timesteps, pairwise(sqrt_alphas), strict=False):
            # Detached, as a compiled transformer would be compiled once more for no_grad.
            velocity = self.decoder.velocity(latents, timestep, states_BND, batch["motion"]).detach().float()
            latents = ddim_step(latents, clean_of(velocity, latents, now), now, following)
        return {**batch, "noise": noise_of(latents, clean, sqrt_alphas[-1]), "timesteps": timesteps[-1]}

    def _error(self, found: Tensor, wanted: Tensor, sqrt_alpha: Tensor) -> Tensor:
        """The error of velocities, as losses weigh it."""
        error = found.float() - wanted
        if self.decoder.spec.decoder.predicts_clean:  # the velocity's error is the clean latent's, divided by the noise
            error = error * ((1 - sqrt_alpha**2).sqrt() / LEAST_NOISE).clamp(max=1)
        return error

    def _wanted(self, latents: Tensor, batch: Batch, sqrt_alpha: Tensor) -> Tensor:
        """The velocity to learn at these noised latents."""
        return velocity_target(batch["clean"], batch["noise"], sqrt_alpha)


class DistillLearner(DiffusionLearner):
    """Trains the decoder to predict in one pass what guidance computes from two: u + g (c - u).

    The teacher is the decoder at the start of the stage. g is that of guidance `cosine` or `constant` at each sample's
    timestep (Meng et al. 2023, On Distillation of Guided Diffusion Models, with one fixed schedule instead of a range
    of strengths), with the world's strength. Shots are then sampled with guidance `distilled`.
    """

    taught = Sampling(guidance="distilled")

    def __init__(self, config: StageConfig, decoder: ShotDecoder) -> None:
        super().__init__(config, decoder, None)
        # If only LoRA is trained, it is switched off for the teacher's pass; whole weights need a copy. The tuple hides
        # the copy from this module, which would otherwise train and save it.
        self._copy = (copy.deepcopy(decoder, {id(decoder.vae): decoder.vae}),) if config.trainable else ()
        for teacher in self._copy:
            teacher.transformer.requires_grad_(False)
            if config.compile:  # the copy of a compiled model is not compiled
                compile_for_training(teacher.transformer, dynamic=False)

    @torch.no_grad()
    def _wanted(self, latents: Tensor, batch: Batch, sqrt_alpha: Tensor) -> Tensor:
        with self._teacher() as teacher:
            return self._guided(teacher, latents, batch)

    def _guided(self, teacher: ShotDecoder, latents: Tensor, batch: Batch) -> Tensor:
        """(B, T, C, H, W): the teacher's guided velocity."""
        states, timesteps = batch["states"], batch["timesteps"]
        strength = teacher.spec.decoder.guidance_scale
        if not strength:
            return teacher.velocity(latents, timesteps, states, batch["motion"]).float()
        nothing = teacher.unconditional_ND.to(states).expand_as(states)
        both = teacher.velocity(
            torch.cat([latents, latents]),
            timesteps.repeat(2),
            torch.cat([nothing, states]),
            batch["motion"].repeat(2),
        )
        without, conditioned = both.float().chunk(2)
        scale_B = scale_at(self.settings.teacher_guidance, strength, timesteps)
        return without + scale_B[:, None, None, None, None] * (conditioned - without)

    @contextmanager
    def _teacher(self) -> Iterator[ShotDecoder]:
        """The decoder as it was at the start of the stage."""
        if self._copy:
            (teacher,) = self._copy
            teacher.transformer.to(self.decoder.unconditional_ND.device)
            yield teacher
            return
        with left_out(self, ADAPTER, FAKE):
            yield self.decoder
        # Autocast caches the weights that it casts. In torch 2.6 to 2.9 (before pytorch's pull request 165068), those
        # of the teacher's pass have no gradient, and the LoRA, which both passes read, would not learn.
        torch.clear_autocast_cache()


def motion_condition(values: Tensor, config: StageConfig) -> Tensor:
    """The motion values that condition the decoder: the clips' own, or without motion_scope UNCONDITIONAL_MOTION."""
    return values if config.motion_scope else torch.full_like(values, UNCONDITIONAL_MOTION)


FIXED_IN = (2, 14)  # the first torch version without the error described below


def compile_for_training(model: nn.Module, dynamic: bool) -> None:
    """Compile a model in place. dynamic: one graph for inputs of many sizes, instead of one for each.

    Up to torch 2.13, a fused kernel that writes a row and then reads it again does not synchronise its threads in
    between (pytorch's issue 190517): on an H200, gradients of LoRA weights were thousands of times too large. So fusion
    is switched off there, which hardly changes the time of a step.
    """
    release = tuple(int(number) for number in torch.__version__.split(".")[:2])
    model.compile(dynamic=dynamic, options={} if release >= FIXED_IN else {"max_fusion_size": 1})
