"""Few-step distillation: a student that draws a shot in 1 to 4 steps, where its teacher takes many.

Pairs: the student learns where the teacher ends from the same noise. Matching: Yin et al. 2024, Improved Distribution
Matching Distillation for Fast Image Synthesis (DMD2). A fake score learns to denoise what the student draws; the
student moves to where the teacher finds its shots more likely than the fake score does. A small judge on the teacher's
features learns to tell them from clips, which the student learns to prevent. B batch, D width of the transformer.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..model.decoder import ShotDecoder
from ..model.sampler import Guidance, Schedule, solve, sqrt_alpha_cumprod
from ..spec import Sampling
from ..weights.lora import left_out
from .distributed import full_tensor, reshard
from .learners import Batch, DistillLearner, Losses, compile_for_training
from .loop import decoding
from .losses import clean_of, noised, velocity_target
from .parts import ADAPTER, FAKE, WorldParts, only_trains
from .sampling import MicroBatch, SampleNoise, random_seed
from .stages import StageConfig
from .trainer import Trainer
from .training_data import TrainingData, autocast

DEPTHS = (0.5, 0.75, 1.0)  # of the teacher's blocks, after which the judge reads
NOISE = (20, 980)  # timesteps between which two distributions are compared: at the ends there is little to see
Write = Callable[[Path, Mapping[str, Tensor]], object]
SHOTS = 8  # that the watch compares
LEAST = 1e-3  # of what it measures, where frames are in [-1, 1]: a quarter of a grey level
SIGNS = ("motion", "chroma", "variance")


class Judge(nn.Module):
    """A small head for each depth, which tells from features of noised latents whether they are a clip's."""

    def __init__(self, width: int) -> None:
        super().__init__()
        heads = (nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 64), nn.SiLU(), nn.Linear(64, 1)) for _ in DEPTHS)
        self.parts = nn.ModuleList(heads)

    def forward(self, features: list[Tensor]) -> Tensor:
        """(B, tokens, depths) logits: above 0 for clips. features: (B, tokens, D) of each depth."""
        return torch.cat([part(own) for part, own in zip(self.parts, features, strict=True)], dim=-1).float()


class FewStepLearner(DistillLearner):
    """Trains a student for fixed timesteps, and beside it a fake score and the judge, in turns.

    If only LoRA is trained, student and fake score are two adapters on one decoder, which without them is the teacher;
    otherwise they are three decoders.
    """

    unused = True  # each step trains only some of them
    adapters = (ADAPTER, FAKE)
    teachers: Tensor | None = None  # what `check_student` measured on the teacher's shots

    def __init__(self, config: StageConfig, decoder: ShotDecoder) -> None:
        super().__init__(config, decoder)
        self.taught = Sampling(steps=config.timesteps, guidance="distilled", solver="ddim")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(random_seed(config.seed, "heads"))
            self.heads = nn.ModuleDict({"judge": Judge(decoder.spec.state.width)})
        if config.trainable:
            self.heads["fake"] = copy.deepcopy(decoder, {id(decoder.vae): None})
            if config.compile:
                compile_for_training(self.heads["fake"].transformer, dynamic=False)

    def batch(self, data: TrainingData, rows: Tensor, micro: MicroBatch, device: torch.device) -> Batch:
        """timesteps: those at which distributions are compared. taught: the student's."""
        found, config = super().batch(data, rows, micro, device), self.settings
        random = SampleNoise(device, config.seed, micro, len(rows), "few steps")
        taught = torch.tensor(config.timesteps, device=device)[(len(config.timesteps) * random.uniform()).long()]
        own = (micro.step - config.pairs) % (1 + config.fake_updates) == config.fake_updates  # the student's turn
        losses = self._match_losses if own else self._fake_losses
        return {
            **found,
            "losses": losses if self.training and config.matches(micro.step) else self._pairs_losses,
            "timesteps": found["timesteps"].clamp(*NOISE),
            "taught": taught,
            "again": random.normal(*found["noise"].shape[1:]),
        }

    def forward(self, batch: Batch) -> Losses:
        return batch["losses"](batch)

    def _pairs_losses(self, batch: Batch) -> Losses:
        finished = self.drawn(batch, by_teacher=True)
        return {"loss": F.mse_loss(self._made(finished, batch), finished)}

    def _match_losses(self, batch: Batch) -> Losses:
        made = self._made(batch["clean"], batch)
        latents, sqrt_alpha = self._compared(made, batch)
        with torch.no_grad():
            with self._teacher() as teacher:
                wanted = clean_of(self._guided(teacher, latents, batch), latents, sqrt_alpha)
            with self._fake() as fake:
                seen = clean_of(self._pass(fake, latents, batch), latents, sqrt_alpha)
            size = (made - wanted).abs().flatten(1).mean(1).clamp(min=1e-6).view(-1, 1, 1, 1, 1)
            goal = made - (seen - wanted) / size
        losses = {"matching": F.mse_loss(made, goal) / 2}
        if self.settings.gan:
            judge = self.heads["judge"]
            fixed = {name: value.detach() for name, value in judge.named_parameters()}  # this turn is not its own
            logits = torch.func.functional_call(judge, fixed, (self._features(latents, batch),))
            losses["gan"] = F.softplus(-logits).mean()
        return {"loss": losses["matching"] + self.settings.gan * losses.get("gan", 0.0), **losses}

    def _fake_losses(self, batch: Batch) -> Losses:
        with torch.no_grad():
            made = self._made(batch["clean"], batch)
            latents, sqrt_alpha = self._compared(made, batch)
            wanted = velocity_target(made, batch["again"], sqrt_alpha)
        torch.clear_autocast_cache()  # as in `_teacher`
        with self._fake() as fake:
            losses = {"fake": self._error(self._pass(fake, latents, batch), wanted, sqrt_alpha).square().mean()}
        if self.settings.gan:
            true, judge = self._compared(batch["clean"], batch)[0], self.heads["judge"]
            with torch.no_grad():
                features = [self._features(each, batch) for each in (latents, true)]
            losses["judge"] = F.softplus(judge(features[0])).mean() + F.softplus(-judge(features[1])).mean()
        return {"loss": losses["fake"] + losses.get("judge", 0.0), **losses}

    @torch.no_grad()
    def drawn(self, batch: Batch, by_teacher: bool = False) -> Tensor:
        """(B, T, C, H, W) latents of shots from the batch's noise, drawn without gradients."""
        if not by_teacher:
            with left_out(self, FAKE):
                return _solved(partial(self._pass, self.decoder), batch, self.decoder.schedule(self.settings.timesteps))
        with self._teacher() as teacher:
            steps = self.settings.teacher_steps or self.decoder.spec.decoder.steps
            return _solved(partial(self._guided, teacher), batch, teacher.schedule(steps))

    def _made(self, clean: Tensor, batch: Batch) -> Tensor:
        """The clean latents that the student finds in noised ones, at its own timesteps.

        DDIM keeps the noise that a shot began with, so these are what the student gets in play if it draws `clean`.
        """
        taught = {**batch, "timesteps": batch["taught"], "again": batch["noise"]}
        latents, sqrt_alpha = self._compared(clean, taught)
        with left_out(self, FAKE):
            return clean_of(self._pass(self.decoder, latents, taught), latents, sqrt_alpha)

    def _compared(self, clean: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Latents with the noise at which distributions are compared, and its sqrt_alpha."""
        sqrt_alpha = sqrt_alpha_cumprod(batch["timesteps"], clean)
        return noised(clean, batch["again"], sqrt_alpha), sqrt_alpha

    @contextmanager
    def _fake(self) -> Iterator[ShotDecoder]:
        with left_out(self, ADAPTER):
            yield self.heads["fake"] if "fake" in self.heads else self.decoder

    @staticmethod
    def _pass(decoder: ShotDecoder, latents: Tensor, batch: Batch) -> Tensor:
        return decoder.velocity(latents, batch["timesteps"], batch["states"], batch["motion"]).float()

    def _features(self, latents: Tensor, batch: Batch) -> list[Tensor]:
        """(B, tokens, D) of each depth: the teacher's features of noised latents."""
        found: list[Tensor] = []
        with self._teacher() as teacher, torch.compiler.set_stance("force_eager"):  # compiled code skips the hooks
            blocks = teacher.transformer.transformer_blocks
            read = [blocks[math.ceil(depth * len(blocks)) - 1] for depth in DEPTHS]
            hooks = [block.register_forward_hook(lambda _, given, made: found.append(made[0])) for block in read]
            self._pass(teacher, latents, batch)
            for hook in hooks:
                hook.remove()
        return found


def _solved(velocity: Callable[[Tensor, Batch], Tensor], batch: Batch, schedule: Schedule) -> Tensor:
    """The latents at the end of a schedule from the batch's noise, which decides them: DDIM draws no more."""

    def at(latents: Tensor, timestep: int, skip_uncond: bool) -> Tensor:
        return velocity(latents, {**batch, "timesteps": torch.full_like(batch["timesteps"], timestep)})

    noise = batch["noise"]
    return solve(at, noise, schedule, Guidance("distilled"), lambda: noise, solver="ddim")


def check_student(trainer: Trainer, parts: WorldParts, vae: nn.Module, path: Path, write: Write) -> None:
    """Compare shots of a few-step student with its teacher's; ValueError if the student has collapsed: still or
    flickering shots, or shots of too little or too much colour. Every process must call this.

    vae: the decoder's, which may be on the CPU. write: writes the trained tensors of a good student to `path`.
    """
    learner, limit = trainer.learner, trainer.config.collapse
    if learner.teachers is None:
        learner.teachers = _signs(trainer, parts, vae, by_teacher=True)
    ratios = ((_signs(trainer, parts, vae) + LEAST) / (learner.teachers + LEAST)).tolist()
    good = not limit or all(1 / limit <= ratio <= limit for ratio in ratios)  # no NaN is
    if trainer.any_process(not good):
        found = ", ".join(f"{name} {ratio:.2f}" for name, ratio in zip(SIGNS, ratios, strict=True))
        kept = f"{path} has the last good weights; " if path.is_file() else ""
        raise ValueError(
            f"the student has collapsed at step {trainer.state.step}: of the teacher's, its shots have {found}, not "
            f"{1 / limit:.2g} to {limit:g}; {kept}train again with a lower matching_lr or gan, or with more pairs"
        )
    parameters = trainer.state.parameters.items()
    tensors = {name: full_tensor(value.detach()) for name, value in parameters if not only_trains(name)}
    if trainer.processes.is_main_process:
        write(path, tensors)


@torch.no_grad()
def _signs(trainer: Trainer, parts: WorldParts, vae: nn.Module, by_teacher: bool = False) -> Tensor:
    """(3,) SIGNS of 8 shots in [-1, 1]: how far pixels change from frame to frame, and are from grey; the variance."""
    learner, data, device = trainer.learner.eval(), trainer.data, trainer.device
    clips = data.clips(held_out=True) or data.clips()
    rows = torch.tensor([clips[number * len(clips) // SHOTS] for number in range(SHOTS)])
    with autocast(device, trainer.config.precision):
        latents = learner.drawn(learner.batch(data, rows, MicroBatch(0), device), by_teacher)
    reshard(learner)
    with decoding(parts.decoder, vae, device) as decode:
        frames = decode(latents).float()
    return torch.stack([frames.diff(dim=1).abs().mean(), frames.std(2).mean(), frames.var()])
