"""What optimizations need: each `..._reason` says why a device does not meet a requirement; empty if it does."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from types import ModuleType

COMPILE_OPTIONS = {"emulate_precision_casts": True}  # rounds where uncompiled operations round
HOPPER = (9, 0)  # compute capability
TRITON_FROM = (7, 0)  # compute capability; torch's compiler refuses older GPUs


def compiler_reason(device: str) -> str:
    """Compiling for a GPU needs triton, which needs a C compiler and is not available for Windows."""
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if _capability(device) < TRITON_FROM:
        return f"{device} is too old for triton"
    if sys.platform == "linux" and not (shutil.which("gcc") or shutil.which("clang")):
        return "triton cannot find a C compiler (gcc or clang)"
    return ""


def onednn_reason(device: str) -> str:
    """oneDNN is missing in some builds of torch."""
    import torch

    return "" if torch.backends.mkldnn.is_available() else "this torch was built without oneDNN"


def flash3_reason(device: str) -> str:
    """FlashAttention-3 needs a Hopper GPU and a package of its own."""
    import torch

    if not torch.cuda.is_available() or _capability(device) != HOPPER:
        return f"{device} is not a Hopper GPU"
    module = flash3_module()
    return "" if isinstance(module, ModuleType) else module


def flash3_module() -> ModuleType | str:
    """The module with FlashAttention-3's function, or the reason why there is none."""
    try:
        try:
            import flash_attn_interface as found  # the name that its authors give it
        except ModuleNotFoundError:
            import fa3_fwd_interface as found  # the name on PyPI
    except ModuleNotFoundError:
        return "FlashAttention-3 is not installed (torch 2.10 or later with CUDA 13: pip install fa3-fwd)"
    except (ImportError, OSError) as error:
        return f"FlashAttention-3 does not fit this torch ({str(error).splitlines()[0]})"
    return found


def _capability(device: str) -> tuple[int, int]:
    """An NVIDIA GPU's compute capability; TRITON_FROM for other devices, and for AMD's, which count differently."""
    import torch

    is_nvidia = device.startswith("cuda") and torch.cuda.is_available() and not torch.version.hip
    return torch.cuda.get_device_capability(device) if is_nvidia else TRITON_FROM
