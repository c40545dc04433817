"""The processes of a run, DDP and FSDP2, which shards a learner's weights over them.

FSDP2 is chosen with accelerate's launcher: `accelerate launch --use_fsdp --fsdp_version 2`, or a configuration file.
Instead of accelerate's `prepare`, we call torch's DDP, and `fully_shard` with accelerate's settings: `prepare` supports
FSDP only on GPUs, and would apply the launcher's mixed precision and accumulation in addition to the StageConfig's. A
shard holds both frozen weights in bf16 and trained weights in fp32.
"""

from __future__ import annotations

import atexit
import copy

import torch
from accelerate import PartialState
from accelerate.utils import FullyShardedDataParallelPlugin, parse_flag_from_env
from torch import Tensor, nn

_BLOCK_LISTS = ("layers", "block", "transformer_blocks")  # names of ModuleLists whose blocks are sharded one by one


def processes() -> PartialState:
    """The processes of this run, from accelerate; on the CPU if its launcher chose that."""
    return PartialState(cpu=parse_flag_from_env("ACCELERATE_USE_CPU"))


def close_at_exit() -> None:
    """Destroy the process group when the program ends; otherwise torch warns.

    Only for a run that succeeded: after a failure, the processes would wait for one another.
    """
    if processes().num_processes > 1:
        atexit.register(processes().destroy_process_group)


def fsdp_wanted() -> bool:
    """Whether the launcher chose FSDP and there are several processes; ValueError for a version other than 2."""
    if not parse_flag_from_env("ACCELERATE_USE_FSDP"):
        return False
    version = getattr(FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=False), "fsdp_version", 1)
    if version != 2:
        raise ValueError(f"the launcher chose FSDP version {version}; give --fsdp_version 2 (accelerate >= 1.6)")
    return processes().num_processes > 1


def data_parallel(learner: nn.Module, unused: bool) -> nn.Module:
    """The learner under DDP, complete on every process. unused: whether some trained parameters may get no gradient."""
    trained = {name for name, value in learner.named_parameters() if value.requires_grad}
    names = (*dict(learner.named_parameters()), *dict(learner.named_buffers()))
    # DDP cannot hold meta tensors, and does not need the frozen ones
    learner._ddp_params_and_buffers_to_ignore = [name for name in names if name not in trained]
    return nn.parallel.DistributedDataParallel(learner, find_unused_parameters=unused)


def shard_learner(learner: nn.Module, device: torch.device) -> nn.Module:
    """A copy of the learner with this process's shard of every tensor; the learner itself moves to the meta device.

    The copy is trained; `gather_into` copies its weights back. Blocks are moved to the device one at a time, so that no
    GPU ever holds the whole model.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method

    plugin = FullyShardedDataParallelPlugin(cpu_ram_efficient_loading=False)
    shared = {id(tensor): tensor for tensor in (*learner.parameters(), *learner.buffers())}
    sharded = copy.deepcopy(learner, shared)
    shared.clear()
    for module in learner.modules():
        for name, value in module.named_parameters(recurse=False):
            empty = torch.empty_like(value, device="meta")
            module.register_parameter(name, nn.Parameter(empty, requires_grad=value.requires_grad))
    mesh = init_device_mesh(device.type, (torch.distributed.get_world_size(),))
    settings = {"mesh": mesh, "offload_policy": plugin.cpu_offload}
    for name, module in sharded.named_modules():
        if isinstance(module, nn.ModuleList) and name.rpartition(".")[2] in _BLOCK_LISTS:
            for block in module:
                fully_shard(block, reshard_after_forward=plugin.reshard_after_forward, **settings)
    fully_shard(sharded, **settings)
    for method in {"states", "sample", "drawn"} & set(dir(sharded)):  # contact sheets and the watch call these
        register_fsdp_forward_method(sharded, method)
    return sharded


def reshard(learner: nn.Module) -> None:
    """Free the full tensors that a forward pass without backward leaves, so that the next pass reads the shards."""
    from torch.distributed.fsdp import FSDPModule

    for module in learner.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@torch.no_grad()
def gather_into(learner: nn.Module, sharded: nn.Module, keep: bool) -> None:
    """Copy the weights of a sharded copy back into the learner, on the CPU; every process must call this.

    keep: whether this process keeps them; otherwise the learner's parameters stay on the meta device.
    """
    places: dict[int, list[str]] = {}  # a tied tensor has several names
    for name, value in sharded.named_parameters(remove_duplicate=False):
        places.setdefault(id(value), []).append(name)
    for value in sharded.parameters():
        full = full_tensor(value)
        if keep:
            plain = nn.Parameter(full.detach().cpu(), requires_grad=value.requires_grad)
            for parent, _, own in (name.rpartition(".") for name in places[id(value)]):
                learner.get_submodule(parent).register_parameter(own, plain)


def all_gather(rows: Tensor) -> Tensor:
    """The rows of all processes, in the order of a step's batch; gradients flow back to each process's own rows."""
    if processes().num_processes == 1:
        return rows
    from torch.distributed.nn.functional import all_gather as gather_with_gradients

    return torch.cat(gather_with_gradients(rows.contiguous()))


def local_shard(tensor: Tensor) -> Tensor:
    """This process's shard of a sharded tensor, sharing its memory; any other tensor itself."""
    return tensor.to_local() if is_sharded(tensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The full tensor of a sharded one; any other tensor itself. Every process must call this."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def distributed_like(full: Tensor, like: Tensor) -> Tensor:
    """A copy of a full tensor with the dtype, device and sharding of another; every process must call this."""
    placed = full.to(device=like.device, dtype=like.dtype, copy=True)
    if not is_sharded(like):
        return placed
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(placed, like.device_mesh, like.placements)


def is_sharded(tensor: Tensor) -> bool:
    """Whether this process holds only a shard of the tensor."""
    from torch.distributed.tensor import DTensor

    return isinstance(tensor, DTensor)
