"""The training loop, the same for all stages: steps, log, validation, checkpoints, contact sheets, stopping.

Contact sheets show true clips next to shots drawn with the current weights. They do not use the run's random numbers,
so a run computes the same with and without them.
"""

from __future__ import annotations

import math
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from ..files import save_picture
from ..media.contact_sheet import strips
from ..media.video import to_uint8
from ..model.decoder import ShotDecoder
from ..spec import step_count
from .checkpoints import CHECKPOINTS, list_checkpoints, load_checkpoint, save_checkpoint
from .distributed import reshard
from .learners import motion_condition
from .log import LOG, SHEETS, RunLog
from .parts import WorldParts
from .trainer import Trainer, learning_rate, on_device
from .training_data import autocast, clip_frames

OnStep = Callable[[int, int, dict[str, float]], None]  # (steps done, steps in all, latest logged values)


def run_loop(
    trainer: Trainer,
    out: Path,
    draw_sheet: Callable[[], object],
    resume: bool,
    on_step: OnStep | None = None,
    should_stop: Callable[[], bool] | None = None,
    watch: Callable[[], object] = lambda: None,
) -> bool:
    """Train until the last step, the time limit, Ctrl-C (after the current step) or `should_stop`.

    Returns whether Ctrl-C was pressed in this process: all processes must leave the loop together before it raises.
    watch: called after every `watch_every` matching steps with the averaged weights, before a checkpoint is saved.
    ValueError if the loss is not finite, or from `watch`.
    """
    config, state, processes, folder = trainer.config, trainer.state, trainer.processes, out / CHECKPOINTS
    if resume and (found := list_checkpoints(folder)):
        load_checkpoint(found[-1], state)
    log = RunLog(out / LOG, state.step) if processes.is_main_process else None
    losses, begun, before, stop = [], time.monotonic(), state.seconds, False

    def is_due(every: int) -> bool:
        """Whether something that happens every `every` steps, and after the last one, is due now; 0 means never."""
        return every > 0 and (state.step % every == 0 or state.step >= config.steps)

    @contextmanager
    def saved_on_error() -> Iterator[None]:
        """Save a checkpoint if the block raises, for example an interrupt, so that no step is lost."""
        try:
            yield
        except BaseException:
            if processes.is_main_process and not trainer.is_sharded:  # needs all processes
                save_checkpoint(folder, state)
            raise

    with _finish_step_on_ctrl_c(processes.is_main_process) as interrupted:
        while not stop and state.step < config.steps:
            losses.append(trainer.take_step())
            with saved_on_error():
                asked = should_stop is not None and should_stop()
            over = config.minutes and time.monotonic() - begun > 60 * config.minutes
            stop = trainer.any_process(bool(over or asked or interrupted()))
            validates = is_due(config.validate_every)
            if stop or validates or is_due(config.log_every) or state.step == 1:
                values = {**trainer.mean_losses(losses), "lr": learning_rate(config, state.step - 1)}
                losses.clear()
                values["seconds"] = before + time.monotonic() - begun  # now: reading the losses waited for the device
                values |= trainer.validate() if validates else {}
                if not math.isfinite(values["loss"]):
                    raise ValueError(f"the loss is {values['loss']} at step {state.step}; lower lr or check the data")
                if log is not None:
                    log.write(state.step, values)
                    with saved_on_error():
                        if on_step is not None:
                            on_step(state.step, config.steps, values)
            state.seconds = before + time.monotonic() - begun
            if config.matches(state.step - 1) and is_due(config.watch_every):
                with trainer.averaged_weights():
                    watch()
            if is_due(config.save_every) or stop:
                if trainer.is_sharded or processes.is_main_process:
                    save_checkpoint(folder, state, processes.is_main_process)
                processes.wait_for_everyone()
            if is_due(config.shots_every):
                with saved_on_error(), trainer.averaged_weights():
                    draw_sheet()
        return interrupted()


@contextmanager
def _finish_step_on_ctrl_c(is_main: bool) -> Iterator[Callable[[], bool]]:
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
        if is_main:
            sys.stderr.write("\nfinishing and saving the current step; press Ctrl-C again to stop at once\n")
            sys.stderr.flush()

    signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(received)
    finally:
        signal.signal(signal.SIGINT, before)


CLIPS = 4  # rows of a sheet
WIDEST = 1600  # pixels of a sheet


@torch.no_grad()
def draw_sheet(trainer: Trainer, parts: WorldParts, vae: nn.Module | None, out: Path) -> None:
    """Write the sheet of this step, if the stage can show shots and a decoder is loaded; all processes must call this.

    It shows held-out clips, or training clips if none are held out: three frames of each to the left, three of its shot
    to the right. vae: the decoder's, which may be on the CPU.
    """
    learner, data, config, device = trainer.learner, trainer.data, trainer.config, trainer.device
    clips = data.clips(held_out=True) or data.clips()
    count = min(CLIPS, len(clips))
    rows = torch.tensor([clips[number * len(clips) // count] for number in range(count)])
    learner.eval()
    with autocast(device, config.precision):
        states = learner.states(data, rows, device)
        if states is None or vae is None:
            return
        motion, seeds = motion_condition(data.motion[rows], config), rows.tolist()
        steps = min(config.shots_steps, step_count(parts.decoder.spec.decoder.steps))
        if hasattr(learner, "sample"):
            latents = learner.sample(states.float(), motion, seeds, steps)
        else:
            with on_device(parts.decoder, device):
                latents = parts.decoder.eval().sample(states.float(), motion, seeds, steps=steps)
    reshard(learner)
    if not trainer.processes.is_main_process:
        return
    with decoding(parts.decoder, vae, device) as decode:
        shots = list(map(to_uint8, decode(latents)))
        if "latents" in data.store and "frames" not in data.store:  # then the clips' files may be missing
            true = list(map(to_uint8, decode(data.gather("latents", rows, device)[:, 0].float())))
        else:
            true = list(clip_frames(data, seeds, "cpu").numpy())
    picture = strips(true, shots)
    picture.thumbnail((WIDEST, WIDEST))
    save_picture(picture, out / SHEETS / f"step-{trainer.state.step:07d}.png")


@contextmanager
def decoding(decoder: ShotDecoder, vae: nn.Module, device: torch.device) -> Iterator[Callable[[Tensor], Tensor]]:
    """Yield a function from (B, T, C, H, W) latents to (B, F, 3, H, W) frames, decoded one at a time.

    vae: the decoder's, which may be on the CPU.
    """
    before = decoder.vae, decoder.tiled
    with on_device(vae, device), autocast(device):
        decoder.vae, decoder.tiled = vae.eval(), device.type != "cpu"  # tiles save a GPU's memory
        yield lambda latents: torch.cat([decoder.decode_latents(row[None]) for row in latents])
        decoder.vae, decoder.tiled = before
