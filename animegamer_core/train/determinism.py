"""Deterministic kernels: a GPU always adds in the same order, which is slower."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

CUBLAS_WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
DETERMINISTIC = (":4096:8", ":16:8")  # values with which cuBLAS is deterministic (torch.use_deterministic_algorithms)


def set_cublas_workspace() -> None:
    """Set cuBLAS's workspace for `deterministic` unless it is set. Call this before the first matrix product."""
    os.environ.setdefault(CUBLAS_WORKSPACE, DETERMINISTIC[0])


@contextmanager
def deterministic(wanted: bool, device: torch.device) -> Iterator[None]:
    """Let torch use only deterministic kernels while the block runs, if wanted.

    ValueError on a GPU if cuBLAS's workspace is set to another value. torch raises RuntimeError for an operation that
    has no deterministic kernel.
    """
    if not wanted:
        yield
        return
    if device.type == "cuda" and os.environ.get(CUBLAS_WORKSPACE) not in DETERMINISTIC:
        raise ValueError(
            f"deterministic kernels need {CUBLAS_WORKSPACE}={DETERMINISTIC[0]}, but it is "
            f"{os.environ.get(CUBLAS_WORKSPACE, 'not set')}; set it before Python starts, or train without them"
        )
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
