"""Other ways to compute the same turn, each by name. Most only round otherwise; those that approximate say so.

Each is tried alone, and beside the others, with `bench --each NAME...` and `bench --with NAME...`; `presets` names the
sets of them that paid. They change a loaded model in place and for good: a tuned model is neither trained nor saved.
Their names are known without importing torch.
"""

from .caches import TAYLOR_INTERVAL, cache_attention, cache_first_block
from .table import (
    CACHES,
    COMPILING,
    EXCLUSIVE,
    TUNINGS,
    Tuning,
    approximations,
    check_names,
    compiled_parts,
    lacking,
    tune,
    usable,
)
from .ways import COMPILED, FLASH3

__all__ = [
    "CACHES",
    "COMPILED",
    "COMPILING",
    "EXCLUSIVE",
    "FLASH3",
    "TAYLOR_INTERVAL",
    "TUNINGS",
    "Tuning",
    "approximations",
    "cache_attention",
    "cache_first_block",
    "check_names",
    "compiled_parts",
    "lacking",
    "tune",
    "usable",
]
