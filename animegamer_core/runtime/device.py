"""Chooses the device that models run on."""

from __future__ import annotations


def choose_device(name: str) -> str:
    """The torch device for a name such as `auto`, `cpu` or `cuda:1`; ValueError if it is not available."""
    import torch

    available = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available, "cpu": lambda: True}
    if name == "auto":
        return next(kind for kind, is_available in available.items() if is_available())
    kind, _, index = name.partition(":")
    count = torch.cuda.device_count() if kind == "cuda" else 1
    index_exists = ":" not in name or (index.isdecimal() and int(index) < count)
    if kind not in available or not available[kind]() or not index_exists:
        raise ValueError(f"device {name!r} is not available here; choose auto or cpu")
    return name
