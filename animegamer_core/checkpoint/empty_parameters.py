"""Builds models whose parameters take no memory, while other threads build models of their own.

accelerate's init_empty_weights replaces nn.Module.register_parameter for all threads: in ComfyUI, a model that another
thread builds meanwhile would get empty parameters too, and if two threads overlap, the one that leaves last puts the
other's replacement back, so that every later model of the process stays empty. Here the calling thread alone is meant.
"""

from __future__ import annotations

import threading
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager

if typing.TYPE_CHECKING:
    from torch import nn

_here = threading.local()  # depth: how many of this thread's contexts are open
_lock = threading.Lock()
_users = 0  # open contexts of all threads
_original: Callable[..., None] | None = None  # torch's own method


@contextmanager
def empty_parameters() -> Iterator[None]:
    """Within it, parameters that this thread registers are on the meta device; buffers keep their memory."""
    _begin()
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        _end()


def _begin() -> None:
    global _users, _original  # noqa: PLW0603
    from torch import nn

    with _lock:
        _original = _original or nn.Module.register_parameter  # kept: taken again, it could be one that calls ours
        nn.Module.register_parameter = _register
        _users += 1


def _end() -> None:
    global _users  # noqa: PLW0603
    from torch import nn

    with _lock:
        _users -= 1
        # Another library may have replaced it meanwhile; it puts ours back later, which then changes nothing.
        if not _users and nn.Module.register_parameter is _register:
            nn.Module.register_parameter = _original


def _register(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
    _original(module, name, param)
    if param is None or not getattr(_here, "depth", 0) or param.is_meta:
        return
    import torch

    empty = torch.empty_like(param, device="meta")
    module._parameters[name] = torch.nn.Parameter(empty, requires_grad=param.requires_grad)
