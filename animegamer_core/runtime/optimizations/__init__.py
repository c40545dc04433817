"""Optimizations: other ways to compute the same turn, each by name. They only change rounding.

`bench --with NAME...` measures them; `presets` has the useful combinations. They change a loaded model in place and for
good: do not train or save an optimized model. Importing this package does not import torch.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ...spec import dtype_name
from . import changes

if typing.TYPE_CHECKING:
    from torch import nn

    from ...model.decoder import ShotDecoder


@dataclass(frozen=True)
class Optimization:
    """One row of the table.

    apply: changes a loaded decoder. device, dtype: the kind of device and the number format that it is for; empty for
    any. reason: says why a device does not meet the requirements; empty if it does.
    """

    apply: Callable[[ShotDecoder], None]
    device: str = ""
    dtype: str = ""
    reason: Callable[[str], str] = lambda device: ""


OPTIMIZATIONS: dict[str, Optimization] = {
    # one matrix product for query, key and value
    "fused": Optimization(changes.fuse_projections),
    # channels-last convolutions in the VAE (on a GPU: only if compiled)
    "layout": Optimization(changes.use_channels_last),
    # FlashAttention-3, on Hopper (its authors' package, or fa3-fwd)
    "flash3": Optimization(changes.use_flash3, device="cuda", dtype="bfloat16", reason=changes.flash3_reason),
    # GELU fused into its matrix product
    "gelu": Optimization(changes.fuse_gelu, device="cuda"),
    # compiled transformer blocks, and a compiled VAE decoder
    "blocks": Optimization(changes.compile_blocks, device="cuda", reason=changes.compiler_reason),
    "vae": Optimization(changes.compile_vae, device="cuda", reason=changes.compiler_reason),
}
COMPILING = {"blocks", "vae"}  # with these, the first shot of each size is slow


def optimize(decoder: ShotDecoder, names: Sequence[str]) -> None:
    """Apply the named optimizations, in the table's order; ValueError for unknown names or missing changes."""
    import torch

    from ..cfg_parallel import replicas

    check_names(names)
    for name, optimization in OPTIMIZATIONS.items():
        for replica in replicas(decoder) if name in names else ():
            constant = replica.unconditional_ND
            device = str(constant.device)
            if device == "cpu" and optimization.device == "cuda" and torch.cuda.is_available():
                device = "cuda"  # an offloaded decoder is on the CPU for now
            if reason := missing_requirement(name, device, dtype_name(constant.dtype)):
                raise ValueError(f"optimization {name} is not available: {reason}; drop it")
            optimization.apply(replica)


def compiled_modules(decoder: ShotDecoder, names: Sequence[str]) -> list[nn.Module]:
    """The modules that these optimizations compile."""
    modules = list(decoder.transformer.transformer_blocks) if "blocks" in names else []
    return [*modules, decoder.vae.decoder] if "vae" in names else modules


def check_names(names: Sequence[str]) -> None:
    """ValueError for an unknown name."""
    for name in names:
        if name not in OPTIMIZATIONS:
            raise ValueError(f"unknown optimization {name!r}; choose from {', '.join(OPTIMIZATIONS)}")


def supported(names: Sequence[str], device: str, dtype: str = "") -> tuple[tuple[str, ...], dict[str, str]]:
    """(the names that speed up a device such as `cuda:0`; for each of the others, the reason why not).

    dtype: the number format, such as `bfloat16`; empty if unknown.
    """
    reasons = {name: reason for name in names if (reason := missing_requirement(name, device, dtype))}
    if "layout" in names and device.startswith("cuda") and "vae" not in set(names) - set(reasons):
        reasons["layout"] = "it is slower on a GPU unless the VAE is compiled"
    return tuple(name for name in names if name not in reasons), reasons


def missing_requirement(name: str, device: str, dtype: str = "") -> str:
    """Why an optimization does not help on a machine; empty if it does. dtype: as for `supported`."""
    optimization = OPTIMIZATIONS[name]
    if optimization.device not in ("", device.partition(":")[0]):
        return f"no benefit on {device}"
    if dtype and optimization.dtype not in ("", dtype):
        return f"no benefit with {dtype}"
    return optimization.reason(device)
