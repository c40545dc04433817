"""Takes the optimizer steps of a stage: accumulation, clipping, averaged weights, and losses on held-out games."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

import torch
from accelerate.utils import reduce
from torch import Tensor, nn

from . import distributed
from .checkpoints import RunState
from .distributed import local_shard
from .learners import Learner, Losses
from .muon import Muon, is_muons
from .parts import set_trainable
from .sampling import MicroBatch, random_seed
from .stages import StageConfig
from .training_data import TrainingData, autocast

VALIDATION_BATCHES = 4
LR_FLOOR = 0.02
MATCHING_BETAS = (0.0, 0.95)  # AdamW's while students are matched: what they match moves with every step
_ALWAYS_FP32 = "encoder."  # 17 M values at the published size; the decoder's unconditional state is computed from them


def learning_rate(config: StageConfig, step: int) -> float:
    """The learning rate of step 0, 1, ...: a linear warm-up, then a cosine decay to LR_FLOOR times the peak; constant
    while a few-step student is matched.
    """
    if config.matches(step):
        return config.matching_lr
    last = config.pairs if config.timesteps else config.steps
    if step < config.lr_warmup:
        return config.lr * (step + 1) / config.lr_warmup
    progress = min(1.0, (step - config.lr_warmup) / max(1, last - config.lr_warmup))
    return config.lr * (LR_FLOOR + (1 - LR_FLOOR) * (1 + math.cos(math.pi * progress)) / 2)


class Trainer:
    """Takes a stage's steps in this process; the learner is plain, wrapped in DDP, or sharded by FSDP2."""

    def __init__(
        self, stage: str, config: StageConfig, learner: Learner, data: TrainingData, device: torch.device | None = None
    ) -> None:
        self.config, self.data = config, data
        self.processes = distributed.processes()
        self.device = device or self.processes.device
        torch.manual_seed(random_seed(config.seed, "updates"))
        names = set(set_trainable(learner, config))
        _set_precision(learner, config, self.device)
        self.is_sharded = distributed.fsdp_wanted()
        if self.is_sharded:
            learner = distributed.shard_learner(learner, self.device)
        else:
            _move(learner, self.device)
        self.learner = learner
        parameters = {name: value for name, value in learner.named_parameters() if name in names}
        decayed = {True: config.weight_decay, False: 0.0}  # vectors and scalars get no weight decay
        by_muon = [value for name, value in parameters.items() if config.muon and is_muons(name, value)]
        own = {id(value) for value in by_muon}
        others = [value for value in parameters.values() if id(value) not in own]
        groups = [
            {"params": params, "weight_decay": decay}
            for matrices, decay in decayed.items()
            if (params := [value for value in others if (value.dim() > 1) is matrices])
        ]
        fused = self.device.type == "cuda"
        adamw = torch.optim.AdamW(groups, fused=fused, lr=config.lr, betas=(0.9, config.beta2))
        optimizers: list[torch.optim.Optimizer] = [adamw]
        if by_muon:
            groups = [{"params": by_muon, "gain": config.muon}]
            optimizers.append(Muon(groups, config.lr, config.weight_decay))
        self._uses_ddp = not self.is_sharded and self.processes.num_processes > 1
        self._module = distributed.data_parallel(learner, learner.unused) if self._uses_ddp else learner
        average = {name: value.detach().clone() for name, value in parameters.items()} if config.ema else {}
        self.state = RunState(stage, config, parameters, optimizers, average)
        self._sampler = learner.sampler(data)

    def _micro_batches(self, step: int) -> list[MicroBatch]:
        """This process's slices of a step's batch."""
        rank, processes = self.processes.process_index, self.processes.num_processes
        count = self.config.micro_batches(processes)
        return [MicroBatch(step, rank, processes, index, count) for index in range(count)]

    def take_step(self) -> Losses:
        """Take one optimizer step; returns detached losses on the device, so that nothing waits for them."""
        config, state, found = self.config, self.state, []
        self.learner.train()
        rows, micros = self._sampler.batch(state.step), self._micro_batches(state.step)
        for group in (group for optimizer in state.optimizers for group in optimizer.param_groups):
            group["lr"] = learning_rate(config, state.step) * group.get("gain", 1.0)
            if config.matches(state.step) and "betas" in group:
                group["betas"] = MATCHING_BETAS
        for micro in micros:
            is_last = micro.index == micro.count - 1  # then processes exchange gradients
            if self.is_sharded:
                self._module.set_requires_gradient_sync(is_last)
            with self._module.no_sync() if self._uses_ddp and not is_last else nullcontext():
                torch.manual_seed(random_seed(config.seed, micro.step, micro.rank, micro.index, "dropout"))
                batch = self.learner.batch(self.data, micro.rows(rows), micro, self.device)
                with autocast(self.device, config.precision):
                    losses = self._module(batch)
                (losses["loss"] / micro.count).backward()
            found.append({name: value.detach() for name, value in losses.items()})
        norm = torch.nn.utils.clip_grad_norm_(list(state.parameters.values()), config.clip)
        for optimizer in state.optimizers:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if state.average:
            # faster in the first steps, when the average is mostly the initial weights
            decay = min(config.ema, (1 + state.step) / (10 + state.step))
            now = [local_shard(value.detach()) for value in state.parameters.values()]
            torch._foreach_lerp_([local_shard(value) for value in state.average.values()], now, 1 - decay)
        state.step += 1
        return {**_means(found), "grad_norm": distributed.full_tensor(norm.detach())}

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Use the averaged weights while the block runs, if the stage keeps an average."""
        average, parameters = self.state.average, self.state.parameters
        before = {name: parameters[name].detach().clone() for name in average}
        if average:
            copy_into(parameters, average)
        try:
            yield
        finally:
            distributed.reshard(self.learner)
            if before:
                copy_into(parameters, before)

    @torch.no_grad()
    def validate(self) -> dict[str, float]:
        """Mean losses on held-out games, with the averaged weights if there are any; empty if no game is held out."""
        if not self.data.clips(held_out=True):
            return {}
        sampler, found = self.learner.sampler(self.data, held_out=True), []
        self.learner.eval()
        with self.averaged_weights(), autocast(self.device, self.config.precision):
            lengths = getattr(sampler, "lengths", 1)  # of windows, which take turns: each as often
            for number in range(-(-VALIDATION_BATCHES // lengths) * lengths):
                rows = sampler.batch(number)
                for micro in self._micro_batches(number):
                    found.append(self.learner(self.learner.batch(self.data, micro.rows(rows), micro, self.device)))
        return {f"held_out_{name}": value for name, value in self.mean_losses(found).items()}

    def mean_losses(self, found: Sequence[Losses]) -> dict[str, float]:
        """Means of losses, over all processes too, each of which computed them for its part of the batch."""
        means = _means(found)
        values = torch.stack([value.float().to(self.device) for value in means.values()])
        if self.processes.num_processes > 1:
            values = reduce(values, reduction="mean")
        return dict(zip(means, values.tolist(), strict=True))

    def any_process(self, stop: bool) -> bool:
        """Whether any process wants to stop; every process must call this."""
        if self.processes.num_processes == 1:
            return stop
        return bool(reduce(torch.tensor([float(stop)], device=self.device), reduction="sum").item())

    def finish(self, learner: Learner) -> dict[str, Tensor]:
        """The trained tensors, averaged if the stage averages; gathers sharded weights back into the learner."""
        trained = self.state.average or {name: value.detach() for name, value in self.state.parameters.items()}
        if not self.is_sharded:
            return trained
        main = self.processes.is_main_process
        distributed.gather_into(learner, self.learner, main)
        gathered = ((name, distributed.full_tensor(value)) for name, value in trained.items())
        return {name: value.cpu() for name, value in gathered if main}


def _means(found: Sequence[Losses]) -> Losses:
    """The mean of each loss over the steps that have it."""
    names = dict.fromkeys(name for losses in found for name in losses)
    return {name: torch.stack([losses[name] for losses in found if name in losses]).mean() for name in names}


@contextmanager
def idle_on_cpu(learner: Learner) -> Iterator[dict[str, nn.Module]]:
    """Remove the models that no step reads from the learner while the block runs; yields them by name, on the CPU."""
    places = {name: name.rpartition(".") for name in learner.idle}
    idle = {name: learner.get_submodule(name) for name in places}
    for parent, _, own in places.values():
        setattr(learner.get_submodule(parent), own, None)
    with ExitStack() as stack:
        for module in idle.values():
            stack.enter_context(on_device(module, torch.device("cpu")))
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        try:
            yield idle
        finally:
            for name, (parent, _, own) in places.items():
                setattr(learner.get_submodule(parent), own, idle[name])


@contextmanager
def on_device(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Move a module to a device while the block runs, in place; then move it back."""
    before = next((value.device for value in module.parameters() if not value.is_meta), device)
    _move(module, device)
    try:
        yield
    finally:
        _move(module, before)
        if before != device and "cuda" in (before.type, device.type):
            torch.cuda.empty_cache()  # the stage needs this memory now


def _move(module: nn.Module, device: torch.device) -> nn.Module:
    """Move a module in place, without its meta tensors, such as those of encoders whose features are cached."""
    return module._apply(lambda tensor: tensor if tensor.is_meta else tensor.to(device))


@torch.no_grad()
def _set_precision(learner: nn.Module, config: StageConfig, device: torch.device) -> None:
    """Convert trained weights to fp32, and frozen ones to bf16 if the stage says so."""
    half = config.keeps_frozen_in_bf16(device)
    for name, parameter in learner.named_parameters():
        if not parameter.is_floating_point() or parameter.is_meta:
            continue
        if parameter.requires_grad:
            parameter.data = parameter.data.float()
        elif half and not name.startswith(_ALWAYS_FP32):
            parameter.data = parameter.data.bfloat16()


def copy_into(parameters: Mapping[str, Tensor], values: Mapping[str, Tensor]) -> None:
    """Copy tensors into the parameters of the same names; for sharded ones, this process's shards."""
    with torch.no_grad():
        into = [local_shard(value) for value in parameters.values()]
        torch._foreach_copy_(into, [local_shard(values[name]) for name in parameters])
