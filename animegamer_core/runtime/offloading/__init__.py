"""Offloading: models larger than a GPU's memory keep their weights on the host and copy them to the GPU to compute.

A turn runs three stacks of blocks, one after another: the engine, the decoder's transformer and its VAE. While a stack
computes, as many of its blocks stay on the GPU as fit into the memory budget besides its working memory. The others are
copied one by one, each while the one before computes, by diffusers' group offloading. The memory that the current stack
leaves free keeps blocks of the other stacks on the GPU, so that fewer must be copied again. A small stack stays whole,
and nothing is copied between stacks that fit side by side.
"""

from .budget import GIB, StackBudget
from .memory_plan import MemoryPlan

__all__ = ["GIB", "MemoryPlan", "StackBudget"]
