"""Optimizations: other ways to compute the same turn, each by name. Most only change rounding; some approximate.

`bench --each NAME...` measures them one by one and `bench --with NAME...` together; `presets` has the useful
combinations. They change a loaded model in place and for good: do not train or save an optimized model. Importing this
package does not import torch.
"""

from .table import (
    CACHES,
    COMPILING,
    OPTIMIZATIONS,
    Optimization,
    approximations,
    check_names,
    compiled_modules,
    missing_requirement,
    optimize,
    supported,
)
from .transformer import FLASH3

__all__ = [
    "CACHES",
    "COMPILING",
    "FLASH3",
    "OPTIMIZATIONS",
    "Optimization",
    "approximations",
    "check_names",
    "compiled_modules",
    "missing_requirement",
    "optimize",
    "supported",
]
