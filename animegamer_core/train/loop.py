"""The training loop, the same for all stages: steps, log, validation, checkpoints, contact sheets, stopping."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from .checkpoints import CHECKPOINTS, RunState, list_checkpoints, load_checkpoint, save_checkpoint
from .learners import Learner
from .log import LOG, RunLog
from .stages import StageConfig
from .trainer import Means, Trainer, idle_on_cpu, learning_rate
from .training_data import TrainingData

OnStep = Callable[[int, int, dict[str, float]], None]  # (steps done, steps in all, latest logged values)
DrawShots = Callable[[Learner, "nn.Module | None", int, torch.device], None]  # (learner, idle VAE, steps done, device)


@dataclass(frozen=True)
class RunOptions:
    """How to run a stage; these options do not change what it computes.

    resume: continue from the last checkpoint in the folder, if there is one. on_step: gets the values of each logged
    step. should_stop: called after each step; True saves a checkpoint and stops. An exception from either reaches the
    caller after a checkpoint is saved. device: where to train, None for accelerate's choice. draw: writes a contact
    sheet; train_stage sets it. on_interrupt: called at the first Ctrl-C, within the signal handler.
    """

    resume: bool = True
    on_step: OnStep | None = None
    should_stop: Callable[[], bool] | None = None
    device: torch.device | None = None
    draw: DrawShots | None = None
    on_interrupt: Callable[[], object] | None = None


def run_loop(
    stage: str, config: StageConfig, learner: Learner, data: TrainingData, out: Path, options: RunOptions
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
            _Loop(trainer, out, options, interrupted, idle.get("decoder.vae")).run()
        trained = trainer.finish(learner)
        if interrupted():  # raised only now: the processes must leave the loop together
            raise KeyboardInterrupt
        return state, trained


class _Loop:
    """One run of a stage: what happens after each of its steps."""

    def __init__(
        self, trainer: Trainer, out: Path, options: RunOptions, interrupted: Callable[[], bool], vae: nn.Module | None
    ) -> None:
        self.trainer, self.config, self.state = trainer, trainer.config, trainer.state
        self.options, self.interrupted = options, interrupted
        self.checkpoints, self.vae = out / CHECKPOINTS, vae
        self.log = RunLog(out / LOG, self.state.step) if trainer.processes.is_main_process else None
        self.losses, self.begun, self.seconds_before = Means(), time.monotonic(), self.state.seconds

    def run(self) -> None:
        if self.config.compile and not self._is_last():
            self.trainer.check_compiled()
        stop = False
        while not (stop or self._is_last()):
            self.losses.add(self.trainer.take_step())
            self._clock()
            stop = self._should_stop()
            self._log(stop)
            if self._is_due(self.config.save_every) or stop:
                self._save()
            if self.options.draw and self._is_due(self.config.shots_every):
                with self._saved_on_error(), self.trainer.averaged_weights():
                    self.options.draw(self.trainer.learner, self.vae, self.state.step, self.trainer.device)

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
