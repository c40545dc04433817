"""Models that are larger than a GPU's memory: their weights wait on the host and pass through the card as they compute.

A turn computes with three stacks, one after another: the engine, the decoder's transformer and its VAE. As many blocks
of a stack stay on the card, while it computes, as the card's budget holds beside its working memory. The others pass
through one by one, the next copied while this one computes, which is diffusers' group offloading. What the stack at
work leaves free keeps blocks of the others, so that fewer have to come back. Where a stack is small enough nothing
passes through, and where two fit side by side nothing moves.
"""

from .card import Card, is_streamed, plan
from .shares import GIB, Share

__all__ = ["GIB", "Card", "Share", "is_streamed", "plan"]
