"""The training loop, the same for every stage: one process or several (DDP or FSDP2), AdamW, warm-up and cosine decay,
clipping, accumulation, an average of the weights, log, checkpoints.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from accelerate.utils import reduce
from torch import Tensor, nn

from . import spread
from .adapters import set_trainable
from .checkpoints import CHECKPOINTS, RunState, list_checkpoints, load_checkpoint, save_checkpoint
from .learners import Learner, Losses
from .log import LOG, RunLog
from .material import TrainingData, autocast
from .optimizers import make_optimizer, set_rate
from .order import Place, random_seed
from .stages import StageConfig
from .weights import copy_into, move, set_aside, set_precision

VALIDATION_BATCHES = 4
COMPILED_OFF = 0.5  # how far a compiled gradient may lie from the plain one, in lengths of that; rounding takes less
OnStep = Callable[[int, int, dict[str, float]], None]  # (steps done, steps in all, latest logged values)
DrawShots = Callable[[Learner, "nn.Module | None", int, torch.device], None]  # (learner, idle VAE, steps done, device)


@dataclass(frozen=True)
class RunOptions:
    """How a stage is run, apart from what it computes.

    resume: go on from the last checkpoint in the folder, if there is one. should_stop: asked after each step; True
    saves a checkpoint and stops. on_step: told the values of each logged step. What either raises goes on to the
    caller, once a checkpoint is saved. device: where to train, None for what accelerate finds. draw: writes a contact
    sheet; train_stage puts it there. on_interrupt: told of the first Ctrl-C, within the signal's handler.
    """

    resume: bool = True
    on_step: OnStep | None = None
    should_stop: Callable[[], bool] | None = None
    device: torch.device | None = None
    draw: DrawShots | None = None
    on_interrupt: Callable[[], object] | None = None


@dataclass(frozen=True)
class LoopResult:
    """done: whether all steps are taken. trained: the trained tensors by name, averaged where the stage averages.

    Where FSDP2 spread the weights, only the main process has `trained`, and the learner's weights, on the CPU.
    """

    done: bool
    step: int
    seconds: float
    trained: dict[str, Tensor]


def learning_rate(config: StageConfig, step: int) -> float:
    """The rate of step 0, 1, ...: a straight rise over `lr_warmup` steps, then a cosine down to `lr_floor` of it."""
    if step < config.lr_warmup:
        return config.lr * (step + 1) / config.lr_warmup
    progress = min(1.0, (step - config.lr_warmup) / max(1, config.steps - config.lr_warmup))
    return config.lr * (config.lr_floor + (1 - config.lr_floor) * (1 + math.cos(math.pi * progress)) / 2)


def run_loop(
    stage: str, config: StageConfig, learner: Learner, data: TrainingData, out: Path, options: RunOptions
) -> LoopResult:
    """Train until the last step, the time limit, Ctrl-C (a signal ends the step first) or `should_stop`."""
    with set_aside(learner) as idle:
        loop = _Loop(stage, config, learner, data, out, options.device)
        if options.resume and (found := list_checkpoints(out / CHECKPOINTS)):
            load_checkpoint(found[-1], loop.state)
        with _gentle_interrupt(options.on_interrupt) as interrupted:
            loop.run(options, interrupted, idle)
        state = loop.state
        result = LoopResult(state.step >= config.steps, state.step, state.seconds, loop.leave(learner))
        if interrupted():  # perhaps in this process alone, and the others wait for it to leave with them
            raise KeyboardInterrupt
        return result


class _Loop:
    """One stage on one process: what was set up, and the steps."""

    def __init__(
        self,
        stage: str,
        config: StageConfig,
        learner: Learner,
        data: TrainingData,
        out: Path,
        device: torch.device | None = None,
    ) -> None:
        self.config, self.data, self.out = config, data, out
        self.processes = spread.processes()
        self.device = device or self.processes.device
        torch.manual_seed(random_seed(config.seed, "updates"))
        names = set(set_trainable(learner, config))
        set_precision(learner, config, self.device)
        self.is_spread = spread.wanted()
        if self.is_spread:
            learner = spread.spread(learner, self.device)
        else:
            move(learner, self.device)
        self.learner = learner
        parameters = {name: value for name, value in learner.named_parameters() if name in names}
        self.optimizer = make_optimizer(config, parameters, self.device)
        self.is_shared = not self.is_spread and self.processes.num_processes > 1
        repeats = config.deterministic or self.device.type == "cpu"
        self.module = spread.share(learner, learner.unused, repeats) if self.is_shared else learner
        average = {name: value.detach().clone() for name, value in parameters.items()} if config.ema else {}
        self.state = RunState(stage, config, parameters, self.optimizer, average)
        self.parts = config.parts(self.processes.num_processes)
        self.order = learner.order(data)

    def run(self, options: RunOptions, interrupted: Callable[[], bool], idle: Mapping[str, nn.Module]) -> None:
        config, state = self.config, self.state
        log = RunLog(self.out / LOG, state.step) if self.processes.is_main_process else None
        started, before, sums = time.monotonic(), state.seconds, _Means()
        if config.compile and state.step < config.steps:
            self.check_compiled()
        while state.step < config.steps:
            self.learner.train()
            sums.add(self.take_step())
            state.step += 1
            state.seconds = before + time.monotonic() - started
            last = state.step == config.steps
            over = config.minutes and state.seconds - before > 60 * config.minutes
            with self._saved_if_it_raises():
                asked = options.should_stop is not None and options.should_stop()
            stop = self._agreed(bool(over or interrupted() or asked))
            validated = config.validate_every > 0 and (state.step % config.validate_every == 0 or last)
            if state.step % config.log_every == 0 or state.step == 1 or validated or last or stop:
                values = {**self._over_processes(sums.take()), "lr": learning_rate(config, state.step - 1)}
                state.seconds = before + time.monotonic() - started  # taking the sums waited for the device
                values["seconds"] = state.seconds
                if validated:
                    values |= self.validate()
                self._report(log, values, options)
            if state.step % config.save_every == 0 or last or stop:
                self._save()
            if options.draw and config.shots_every and (state.step % config.shots_every == 0 or last):
                with self._saved_if_it_raises(), self._averaged():
                    options.draw(self.learner, idle.get("decoder.vae"), state.step, self.device)
            if stop:
                break

    def take_step(self) -> Losses:
        """One optimizer step; returns detached losses, which stay on the device so that nothing waits for them."""
        config, state, means = self.config, self.state, _Means()
        batch_rows = self.order.batch(state.step)
        set_rate(self.optimizer, learning_rate(config, state.step))
        for part in range(self.parts):
            with self._gradients_shared(part == self.parts - 1):
                means.add(self._add_gradients(self._place(state.step, part), batch_rows))
        norm = torch.nn.utils.clip_grad_norm_(list(state.parameters.values()), config.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._average()
        return {**means.means(), "grad_norm": spread.whole(norm.detach())}

    def check_compiled(self) -> None:
        """ValueError where torch compiles this stage wrongly: the next batch's first part is taken compiled, plain, and
        compiled once more.

        Such errors are silent, and may come and go: torch 2.11 made gradients thousands of times too long, at times the
        second ones alone, since it read what nobody had written yet (compiling.py).
        """
        self.learner.train()
        compiled = self._first_gradients()
        with torch.compiler.set_stance("force_eager"):
            plain = self._first_gradients()
        _refuse_far(compiled, plain)
        del compiled
        _refuse_far(self._first_gradients(), plain)

    def _first_gradients(self) -> dict[str, Tensor]:
        """The gradients of the next batch's first part, by name; the weights keep none."""
        with self._gradients_shared(True):
            self._add_gradients(self._place(self.state.step, 0), self.order.batch(self.state.step))
        found = {name: value.grad for name, value in self.state.parameters.items() if value.grad is not None}
        self.optimizer.zero_grad(set_to_none=True)
        return found

    def _add_gradients(self, place: Place, batch_rows: Tensor) -> Losses:
        """Take one part of a batch forwards and backwards; returns its losses, detached."""
        torch.manual_seed(random_seed(self.config.seed, place.step, place.rank, place.part, "dropout"))
        batch = self.learner.batch(self.data, place.rows(batch_rows), place, self.device)
        with autocast(self.device, self.config.precision):
            losses = self.module(batch)
        (losses["loss"] / self.parts).backward()
        return {name: value.detach() for name, value in losses.items()}

    @contextmanager
    def _gradients_shared(self, final: bool) -> Iterator[None]:
        """Processes exchange gradients in the backward pass of a step's last part only."""
        if self.is_spread:
            self.module.set_requires_gradient_sync(final)
        with self.module.no_sync() if self.is_shared and not final else nullcontext():
            yield

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mean losses on held-out games with the averaged weights; none if nothing is held out."""
        if not self.data.clips(held_out=True):
            return {}
        order, means = self.learner.order(self.data, held_out=True), _Means()
        self.learner.eval()
        with self._averaged(), autocast(self.device, self.config.precision):
            for number in range(VALIDATION_BATCHES):
                rows = order.batch(number)
                for place in (self._place(number, part) for part in range(self.parts)):
                    means.add(self.learner(self.learner.batch(self.data, place.rows(rows), place, self.device)))
        return {f"held_out_{name}": value for name, value in self._over_processes(means.take()).items()}

    def leave(self, learner: Learner) -> dict[str, Tensor]:
        """The trained tensors as the stage leaves them; weights that were spread go back into the learner."""
        trained = self.state.average or {name: value.detach() for name, value in self.state.parameters.items()}
        if not self.is_spread:
            return trained
        main = self.processes.is_main_process
        spread.gather_into(learner, self.learner, main)
        gathered = ((name, spread.whole(value)) for name, value in trained.items())
        return {name: value.cpu() for name, value in gathered if main}

    def _place(self, step: int, part: int) -> Place:
        return Place(step, self.processes.process_index, self.processes.num_processes, part, self.parts)

    def _over_processes(self, values: dict[str, float]) -> dict[str, float]:
        """The means of logged values over all processes, each of which computed a share of the batch."""
        if self.processes.num_processes == 1:
            return values
        mean = reduce(torch.tensor(list(values.values()), device=self.device), reduction="mean")
        return dict(zip(values, mean.tolist(), strict=True))

    def _average(self) -> None:
        """Move the average towards the weights; it follows faster in the first steps, when it is mostly the start."""
        if not self.state.average:
            return
        kept = min(self.config.ema, (1 + self.state.step) / (10 + self.state.step))
        now = [spread.local(value.detach()) for value in self.state.parameters.values()]
        torch._foreach_lerp_([spread.local(value) for value in self.state.average.values()], now, 1 - kept)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """The learner with its averaged weights, where the stage averages, for a while."""
        average, parameters = self.state.average, self.state.parameters
        kept = {name: parameters[name].detach().clone() for name in average}
        if average:
            copy_into(parameters, average)
        try:
            yield
        finally:
            spread.let_go(self.learner)
            if kept:
                copy_into(parameters, kept)

    def _agreed(self, stop: bool) -> bool:
        """Whether any process wants to stop."""
        if self.processes.num_processes == 1:
            return stop
        return bool(reduce(torch.tensor([float(stop)], device=self.device), reduction="sum").item())

    def _report(self, log: RunLog | None, values: dict[str, float], options: RunOptions) -> None:
        if not math.isfinite(values["loss"]):
            raise ValueError(f"the loss is {values['loss']} at step {self.state.step}; lower lr or check the data")
        if log is not None:
            log.write(self.state.step, values)
            if options.on_step is not None:
                with self._saved_if_it_raises():
                    options.on_step(self.state.step, self.config.steps, values)

    @contextmanager
    def _saved_if_it_raises(self) -> Iterator[None]:
        """What the caller's function raises, such as an interrupt, costs no step."""
        returned = False
        try:
            yield
            returned = True
        finally:
            if not returned and self.processes.is_main_process and not self.is_spread:  # alone it has a share only
                save_checkpoint(self.out / CHECKPOINTS, self.state)

    def _save(self) -> None:
        if self.is_spread or self.processes.is_main_process:
            save_checkpoint(self.out / CHECKPOINTS, self.state, self.processes.is_main_process)
        self.processes.wait_for_everyone()


class _Means:
    """Running means of named values that stay on their device until they are taken."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._count = 0

    def add(self, values: Losses) -> None:
        for name, value in values.items():
            self._sums[name] = self._sums[name] + value if name in self._sums else value
        self._count += 1

    def means(self) -> Losses:
        return {name: value / self._count for name, value in self._sums.items()}

    def take(self) -> dict[str, float]:
        """The means as numbers; starts anew."""
        values = {name: float(value) for name, value in self.means().items()}
        self._sums, self._count = {}, 0
        return values


def _length(tensors: Iterable[Tensor]) -> float:
    """The length of all of them as one vector; every process has to ask for that of spread ones."""
    return math.hypot(*(float(spread.whole(torch.linalg.vector_norm(value))) for value in tensors))


def _refuse_far(compiled: Mapping[str, Tensor], plain: Mapping[str, Tensor]) -> None:
    """ValueError where gradients of compiled models are not those of plain ones; what one lacks is zero there."""
    pairs = ((compiled.get(name), plain.get(name)) for name in dict.fromkeys((*plain, *compiled)))
    distance = _length(one if other is None else other if one is None else one - other for one, other in pairs)
    length = _length(plain.values())
    if not distance <= COMPILED_OFF * length:
        raise ValueError(
            f"torch {torch.__version__} compiles this stage wrongly: a first gradient lies {distance:.3g} from the "
            f"plain one, which is {length:.3g} long; train without --compile, or with a smaller --per-card"
        )


@contextmanager
def _gentle_interrupt(on_interrupt: Callable[[], object] | None) -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends the running step and saves; a second one ends at once. Only a program's main thread can hear it."""
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    heard = []
    before = signal.getsignal(signal.SIGINT)

    def hear(number: int, frame: object) -> None:
        heard.append(number)
        signal.signal(signal.SIGINT, before)
        if on_interrupt is not None:
            on_interrupt()

    signal.signal(signal.SIGINT, hear)
    try:
        yield lambda: bool(heard)
    finally:
        signal.signal(signal.SIGINT, before)
