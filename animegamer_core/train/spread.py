"""The processes of a run, and FSDP2: a learner whose weights are spread over them, a share of every tensor on each.

FSDP2 is asked for as accelerate asks for it: `accelerate launch --use_fsdp --fsdp_version 2`, or a configuration file.
We call torch's own DDP, and `fully_shard` with accelerate's settings, rather than accelerate's `prepare`: it knows FSDP
on GPUs only, and would follow the launcher's mixed precision and accumulation beside those of a StageConfig. Frozen
weights in bf16 and trained ones in fp32 lie in one shard.
"""

from __future__ import annotations

import atexit
import copy
from collections.abc import Iterable

import torch
from accelerate import PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, parse_flag_from_env
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx

_REPEATED = ("layers", "block", "transformer_blocks")  # lists of a model's equal blocks, each of which is one shard


def processes() -> PartialState:
    """The processes of this run as accelerate counts them, also where its launcher asked for the CPU."""
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


def close_at_exit() -> None:
    """Let the processes part as the program ends; torch warns of those that do not.

    For a run that succeeded: one that failed would wait for the others, and they for it.
    """
    if processes().num_processes > 1:
        atexit.register(processes().destroy_process_group)


def wanted() -> bool:
    """Whether the launcher asked for FSDP and there are processes to spread over; ValueError for another version."""
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    version = getattr(FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=False), "fsdp_version", 1)
    if version != 2:
        raise ValueError(f"the launcher asked for FSDP version {version}; give --fsdp_version 2 (accelerate >= 1.6)")
    return processes().num_processes > 1


def share(learner: nn.Module, unused: bool, repeats: bool) -> nn.Module:
    """The learner under DDP, whole on every process. unused: whether some trained parameters may get no gradient.

    repeats: gradients are added in one order, whenever the run began. DDP packs them anew after its first step, and
    where three or more processes add, a number's place in its package decides whose is added first. DDP that looks for
    unused parameters keeps its packages, and says once that there were none.
    """
    trained = {name for name, value in learner.named_parameters() if value.requires_grad}
    names = (*dict(learner.named_parameters()), *dict(learner.named_buffers()))
    # DDP can neither hold tensors without memory nor needs the frozen ones
    learner._ddp_params_and_buffers_to_ignore = [name for name in names if name not in trained]
    keep = repeats and processes().num_processes > 2
    return nn.parallel.DistributedDataParallel(learner, find_unused_parameters=unused or keep)


def spread(learner: nn.Module, device: torch.device) -> nn.Module:
    """A copy of the learner that holds this process's share of every tensor; the learner itself keeps none.

    The copy trains; `gather_into` brings its weights back. Blocks go to the device one at a time, so that no card ever
    holds the whole.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    plugin = FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=False)
    shared = {id(tensor): tensor for tensor in (*learner.parameters(), *learner.buffers())}
    sharded = copy.deepcopy(learner, shared)
    shared.clear()
    _empty(learner)
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    settings = {"mesh": mesh, "offload_policy": plugin.cpu_offload}
    for block in _blocks(sharded):
        fully_shard(block, reshard_after_forward=plugin.reshard_after_forward, **settings)
    fully_shard(sharded, **settings)
    for method in {"states", "sample"} & set(dir(sharded)):  # that contact sheets call
        register_fsdp_forward_method(sharded, method)
    return sharded


def _blocks(learner: nn.Module) -> Iterable[nn.Module]:
    """The blocks of the models in a learner, as lists of equal ones hold them."""
    for name, module in learner.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in _REPEATED:
            yield from module


def _empty(learner: nn.Module) -> None:
    """Leave a module's parameters without memory."""
    for module in learner.modules():
        for name, value in module.named_parameters(recurse=False):
            bare = torch.empty_like(value, device="meta")
            module.register_parameter(name, nn.Parameter(bare, requires_grad=value.requires_grad))


def let_go(learner: nn.Module) -> None:
    """Drop whole tensors that a pass without a backward one left, so that the next pass sees what is in the shards."""
    from torch.distributed.fsdp import FSDPModule

    for module in learner.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@torch.no_grad()
def gather_into(learner: nn.Module, sharded: nn.Module, keep: bool) -> None:
    """Bring the weights of a spread copy back into the learner, on the CPU; every process has to call it.

    keep: whether this process wants them; elsewhere the learner's parameters stay without memory.
    """
    places: dict[int, list[str]] = {}  # a tied tensor has several
    for name, value in sharded.named_parameters(remove_duplicate=False):
        places.setdefault(id(value), []).append(name)
    for value in sharded.parameters():
        full = whole(value)
        if keep:
            plain = nn.Parameter(full.detach().cpu(), requires_grad=value.requires_grad)
            for parent, _, own in (name.rpartition(".") for name in places[id(value)]):
                learner.get_submodule(parent).register_parameter(own, plain)


def gathered(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of a step's batch; gradients flow back to each process' own."""
    return rows if processes().num_processes == 1 else _Gathered.apply(rows)


class _Gathered(torch.autograd.Function):
    """All processes' rows; the gradient of a process' own rows is the sum of what all processes ask of them."""

    @staticmethod
    def forward(ctx: FunctionCtx, rows: Tensor) -> Tensor:
        ctx.count = len(rows)
        parts = [torch.empty_like(rows) for _ in range(processes().num_processes)]
        torch.distributed.all_gather(parts, rows.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: FunctionCtx, gradient: Tensor) -> Tensor:
        total = gradient.clone(memory_format=torch.contiguous_format)
        torch.distributed.all_reduce(total)
        return total.split(ctx.count)[processes().process_index]


def local(tensor: Tensor) -> Tensor:
    """This process's share of a spread tensor, in place; any other tensor itself."""
    return tensor.to_local() if is_spread(tensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a spread tensor, for which every process has to ask; any other tensor itself."""
    return tensor.full_tensor() if is_spread(tensor) else tensor


def on_place_of(full: Tensor, like: Tensor) -> Tensor:
    """A copy of a whole tensor with the type, device and share of another; every process has to call it."""
    placed = full.to(device=like.device, dtype=like.dtype, copy=True)
    if not is_spread(like):
        return placed
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(placed, like.device_mesh, like.placements)


def is_spread(tensor: Tensor) -> bool:
    """Whether this process holds a share of the tensor only."""
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)
