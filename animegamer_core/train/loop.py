"""The training loop, the same for all stages: steps, log, validation, checkpoints, contact sheets, stopping.

Contact sheets show true clips next to shots drawn with the current weights. They do not use the run's random numbers,
so a run computes the same with and without them.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
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
from .checkpoints import CHECKPOINTS, RunState, list_checkpoints, load_checkpoint, save_checkpoint
from .distributed import processes, reshard
from .learners import Learner, motion_condition
from .log import LOG, SHEETS, RunLog
from .parts import WorldParts
from .stages import StageConfig
from .trainer import Means, Trainer, idle_on_cpu, learning_rate, on_device
from .training_data import TrainingData, autocast

if TYPE_CHECKING:
    from PIL import Image

OnStep = Callable[[int, int, dict[str, float]], None]  # (steps done, steps in all, latest logged values)


@dataclass(frozen=True)
class RunOptions:
    """How to run a stage; these options do not change what it computes.

    resume: continue from the last checkpoint in the folder, if there is one. on_step: gets the values of each logged
    step. should_stop: called after each step; True saves a checkpoint and stops. An exception from either reaches the
    caller after a checkpoint is saved. device: where to train, None for accelerate's choice. on_interrupt: called at
    the first Ctrl-C, within the signal handler.
    """

    resume: bool = True
    on_step: OnStep | None = None
    should_stop: Callable[[], bool] | None = None
    device: torch.device | None = None
    on_interrupt: Callable[[], object] | None = None


def run_loop(
    stage: str,
    config: StageConfig,
    learner: Learner,
    parts: WorldParts,
    data: TrainingData,
    out: Path,
    options: RunOptions,
) -> tuple[RunState, dict[str, Tensor]]:
    """Train until the last step, the time limit, Ctrl-C (after the current step) or `should_stop`.

    Returns the run's state and its trained tensors, averaged if the stage averages. With FSDP2, only the main process
    has these and the learner's weights, on the CPU.
    KeyboardInterrupt after Ctrl-C; ValueError if the loss is not finite.
    """
    with idle_on_cpu(learner) as idle:
        trainer = Trainer(stage, config, learner, data, options.device)
        state = trainer.state
        if options.resume and (found := list_checkpoints(out / CHECKPOINTS)):
            load_checkpoint(found[-1], state)
        with _finish_step_on_ctrl_c(options.on_interrupt) as interrupted:
            vae = idle.get("decoder.vae") or (parts.decoder and parts.decoder.vae)
            _Loop(trainer, out, options, interrupted, ShotSheets(config, parts, data, out, vae)).run()
        trained = trainer.finish(learner)
        if interrupted():  # raised only now: the processes must leave the loop together
            raise KeyboardInterrupt
        return state, trained


class _Loop:
    """One run of a stage: what happens after each of its steps."""

    def __init__(
        self, trainer: Trainer, out: Path, options: RunOptions, interrupted: Callable[[], bool], sheets: ShotSheets
    ) -> None:
        self.trainer, self.config, self.state = trainer, trainer.config, trainer.state
        self.options, self.interrupted = options, interrupted
        self.checkpoints, self.sheets = out / CHECKPOINTS, sheets
        self.log = RunLog(out / LOG, self.state.step) if trainer.processes.is_main_process else None
        self.losses, self.begun, self.seconds_before = Means(), time.monotonic(), self.state.seconds

    def run(self) -> None:
        stop = False
        while not (stop or self._is_last()):
            self.losses.add(self.trainer.take_step())
            self._clock()
            stop = self._should_stop()
            self._log(stop)
            if self._is_due(self.config.save_every) or stop:
                self._save()
            if self._is_due(self.config.shots_every):
                with self._saved_on_error(), self.trainer.averaged_weights():
                    self.sheets.draw(self.trainer.learner, self.state.step, self.trainer.device)

    def _is_last(self) -> bool:
        return self.state.step >= self.config.steps

    def _is_due(self, every: int) -> bool:
        """Whether something that happens every `every` steps, and after the last one, is due now; 0 means never."""
        return every > 0 and (self.state.step % every == 0 or self._is_last())

    def _clock(self) -> None:
        self.state.seconds = self.seconds_before + time.monotonic() - self.begun

    def _should_stop(self) -> bool:
        """Whether the time is over, or any process was interrupted or asked to stop."""
        over = self.config.minutes and self.state.seconds - self.seconds_before > 60 * self.config.minutes
        with self._saved_on_error():
            asked = self.options.should_stop is not None and self.options.should_stop()
        return self.trainer.any_process(bool(over or self.interrupted() or asked))

    def _log(self, stop: bool) -> None:
        """Log the mean losses since the last line, and held-out losses if due; ValueError if the loss is not finite."""
        validates = self._is_due(self.config.validate_every)
        if not (self._is_due(self.config.log_every) or self.state.step == 1 or validates or stop):
            return
        step, losses = self.state.step, self.trainer.mean_over_processes(self.losses.take())
        self._clock()  # reading the losses waited for the device
        values = {**losses, "lr": learning_rate(self.config, step - 1), "seconds": self.state.seconds}
        if validates:
            values |= self.trainer.validate()
        if not math.isfinite(values["loss"]):
            raise ValueError(f"the loss is {values['loss']} at step {step}; lower lr or check the data")
        if self.log is not None:
            self.log.write(step, values)
            if self.options.on_step is not None:
                with self._saved_on_error():
                    self.options.on_step(step, self.config.steps, values)

    def _save(self) -> None:
        main = self.trainer.processes.is_main_process
        if self.trainer.is_sharded or main:
            save_checkpoint(self.checkpoints, self.state, main)
        self.trainer.processes.wait_for_everyone()

    @contextmanager
    def _saved_on_error(self) -> Iterator[None]:
        """Save a checkpoint if the block raises, for example an interrupt, so that no step is lost."""
        try:
            yield
        except BaseException:
            if self.trainer.processes.is_main_process and not self.trainer.is_sharded:  # needs all processes
                save_checkpoint(self.checkpoints, self.state)
            raise


@contextmanager
def _finish_step_on_ctrl_c(on_interrupt: Callable[[], object] | None) -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second press stops at once.

    Only a program's main thread receives signals; in other threads the function always returns False.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    received = []
    before = signal.getsignal(signal.SIGINT)

    def handle(number: int, frame: object) -> None:
        received.append(number)
        signal.signal(signal.SIGINT, before)
        if on_interrupt is not None:
            on_interrupt()

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)


CLIPS = 4  # rows of a sheet
WIDEST = 1600  # pixels of a sheet


@dataclass(frozen=True)
class ShotSheets:
    """Draws the sheets of one stage into `out`: of held-out clips, or of training clips if none are held out.

    vae: the decoder's, which may be on the CPU; None if no decoder is loaded.
    """

    config: StageConfig
    parts: WorldParts
    data: TrainingData
    out: Path
    vae: nn.Module | None

    @property
    def clips(self) -> tuple[int, ...]:
        """The clips that every sheet shows."""
        clips = self.data.clips(held_out=True) or self.data.clips()
        count = min(CLIPS, len(clips))
        return tuple(clips[number * len(clips) // count] for number in range(count))

    @torch.no_grad()
    def draw(self, learner: Learner, step: int, device: torch.device) -> None:
        """Write the sheet of a step, if the stage can show shots and a decoder is loaded; every process must call this.

        learner: with the weights to show.
        """
        vae, rows = self.vae, torch.tensor(self.clips)
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
        save_picture(_sheet(true, shots), self.out / SHEETS / f"step-{step:07d}.png")

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


def _sheet(true: list[np.ndarray], shots: list[np.ndarray]) -> Image.Image:
    """Per clip a row with three of its frames to the left, and three of its shot to the right; uint8 (F, H, W, 3)."""
    from PIL import Image

    rows = [
        np.concatenate([frame for frames in pair for frame in frames[[0, len(frames) // 2, -1]]], axis=1)
        for pair in zip(true, shots, strict=True)
    ]
    picture = Image.fromarray(np.concatenate(rows))
    picture.thumbnail((WIDEST, WIDEST))
    return picture


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
