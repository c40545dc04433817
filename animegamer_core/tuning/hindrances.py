"""What a machine lacks for a way, as the end of a sentence; empty where it lacks nothing."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from types import ModuleType

HOPPER = (9, 0)  # compute capability
TRITON_FROM = (7, 0)  # torch's compiler refuses older GPUs
FLASH3_MODULES = (
    "flash_attn_interface",
    "fa3_fwd_interface",
)  # FlashAttention-3 as its authors build it, and as PyPI has it


def no_compiler(device: str) -> str:
    """torch compiles for a GPU with triton, which Windows lacks, and triton with a C compiler."""
    if importlib.util.find_spec("triton") is None:
        return "since triton is not installed"
    if _capability(device) < TRITON_FROM:
        return f"since {device} is too old for triton"
    if sys.platform == "linux" and not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "since triton finds no C compiler (gcc, clang, or CC)"
    return ""


def _capability(device: str) -> tuple[int, int]:
    """A GPU's compute capability; of AMD's, which count otherwise, and where there is none, one that serves."""
    import torch

    known = device.startswith("cuda") and torch.cuda.is_available() and not torch.version.hip
    return torch.cuda.get_device_capability(device) if known else TRITON_FROM


def no_onednn(device: str) -> str:
    """oneDNN is a choice of those who build torch."""
    import torch

    return "" if torch.backends.mkldnn.is_available() else "since this torch was built without oneDNN"


def no_torchao(device: str = "") -> str:
    """Numbers of 8 bits are torchao's, a package of its own."""
    return "" if importlib.util.find_spec("torchao") else "since torchao is not installed (pip install torchao)"


def no_flash3(device: str) -> str:
    """FlashAttention-3 is written for Hopper GPUs."""
    import torch

    if not torch.cuda.is_available() or _capability(device) != HOPPER:
        return f"since {device} is no Hopper GPU"
    module = flash3_module()
    return "" if isinstance(module, ModuleType) else module


def flash3_module() -> ModuleType | str:
    """The module that has FlashAttention-3's function, or why there is none."""
    name = next((name for name in FLASH3_MODULES if importlib.util.find_spec(name)), None)
    if name is None:
        absent = " nor ".join(FLASH3_MODULES)
        return f"since neither {absent} is installed (torch 2.10 or later with CUDA 13: pip install fa3-fwd)"
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        return f"since {name} does not fit this torch ({str(error).splitlines()[0]})"
