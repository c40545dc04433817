"""Counting the bytes of the tensors that live at once, on any device, the meta device too."""

import weakref

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class LiveBytes(TorchDispatchMode):
    """peak: the most bytes at once of storages that operations made inside."""

    def __init__(self):
        super().__init__()
        self.peak = self._live = 0
        self._sizes = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if storage._cdata not in self._sizes:
                    self._sizes[storage._cdata] = storage.nbytes()
                    self._live += storage.nbytes()
                    self.peak = max(self.peak, self._live)
                    weakref.finalize(storage, self._drop, storage._cdata)
        return result

    def _drop(self, key):
        self._live -= self._sizes.pop(key, 0)
