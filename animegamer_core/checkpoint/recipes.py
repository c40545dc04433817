"""Recipes: how each of our tensors is made from tensors of a published file, by the tables in `keys`.

A table is a tuple of `Rule`s whose patterns must match a whole key. A key may feed several targets (fused matrices),
and a target may be fed by several keys (LoRA). A key that no rule matches is an error; target `None` drops a key.
"""

from __future__ import annotations

import math
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from .lora_files import LoraUpdate, LoraUpdates
from .storage import LONGEST, CheckpointError, TensorSource, finite_extremes

if typing.TYPE_CHECKING:
    import torch
    from torch import Tensor

BASE, LORA_A, LORA_B = "base", "lora_A", "lora_B"


class Rule(typing.NamedTuple):
    """One row of a table: a pattern of the whole key, our name (None drops it), chunks of the rows, and the role."""

    pattern: str
    target: str | None
    chunks: tuple[int, ...] = (0,)
    of: int = 1  # chunks that the rows are cut into
    role: str = BASE


@dataclass
class Recipe:
    """How one of our tensors is made: a base weight, and perhaps a LoRA of it, which is kept apart.

    alpha: the LoRA is scaled by alpha / rank; None scales it by 1.
    """

    source: TensorSource
    alpha: float | None
    steps: dict[str, tuple[TensorSource, str, Rule]] = field(default_factory=dict)  # role -> (source, key, rule)

    def add(self, source: TensorSource, key: str, rule: Rule) -> None:
        """Use `key` for the rule's role; CheckpointError if another key has it already."""
        if rule.role in self.steps:
            raise CheckpointError(
                f"{source.path}: {self.steps[rule.role][1]!r} and {key!r} both map to {rule.target!r}; expected only "
                "one"
            )
        self.steps[rule.role] = (source, key, rule)

    @property
    def key(self) -> str:
        """The published key of the base."""
        return self.steps[BASE][1]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor, without reading it."""
        source, key, rule = self.steps[BASE]
        rows, *rest = source.shape(key) or (1,)
        return tuple(source.shape(key)) if rule.of == 1 else (rows // rule.of * len(rule.chunks), *rest)

    @property
    def dtype(self) -> torch.dtype:
        """The type that `tensor` gives it."""
        import torch

        source, key, _ = self.steps[BASE]
        dtype = source.dtype(key)
        return torch.float32 if dtype.is_floating_point and dtype.itemsize == 1 else dtype

    def tensor(self) -> Tensor:
        """The tensor without its LoRA."""
        return self._piece(BASE)

    def lora(self) -> LoraUpdate | None:
        """Its LoRA, where the file has one: alpha / r * B A with r rows in A. CheckpointError for NaN or infinity."""
        if LORA_A not in self.steps:
            return None
        down, up = self._piece(LORA_A), self._piece(LORA_B)
        for role, tensor in ((LORA_A, down), (LORA_B, up)):
            finite_extremes(tensor, self.where(role))
        return LoraUpdate(down, up, 1.0 if self.alpha is None else self.alpha / len(down))

    @property
    def lora_bytes(self) -> int:
        """The bytes of its LoRA, without reading it; 0 where it has none."""
        pair = (self.steps[role][:2] for role in (LORA_A, LORA_B) if role in self.steps)
        return sum(math.prod(source.shape(key)) * source.dtype(key).itemsize for source, key in pair)

    def where(self, role: str = BASE) -> str:
        """The file and its own key of a tensor, for messages."""
        source, key, _ = self.steps[role]
        return source.where(key)

    def _piece(self, role: str) -> Tensor:
        import torch

        source, key, rule = self.steps[role]
        tensor = source.tensor(key)
        if tensor.is_floating_point() and tensor.dtype.itemsize == 1:
            tensor = tensor.float()  # float8 has no arithmetic
        if rule.of == 1:
            return tensor
        chunks = tensor.chunk(rule.of)
        return torch.cat([chunks[index] for index in rule.chunks])


class ComputedTensor(typing.NamedTuple):
    """A tensor that no file holds: its shape, its type and the function that makes it."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]


@dataclass(frozen=True)
class RecipeSource:
    """A TensorSource of one part: tensors made by recipes, and computed ones, which replace others of their name."""

    path: Path
    half: str
    recipes: Mapping[str, Recipe]
    computed: Mapping[str, ComputedTensor] = field(default_factory=dict)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are read."""
        steps = [step for recipe in self.recipes.values() for step in recipe.steps.values()]
        return tuple(dict.fromkeys(file for source, _, _ in steps for file in source.files))

    def keys(self) -> Iterable[str]:
        """Our names."""
        return list({**self.recipes, **self.computed})

    def shape(self, key: str) -> tuple[int, ...]:
        """The shape of one tensor."""
        return (self.computed.get(key) or self.recipes[key]).shape

    def dtype(self, key: str) -> torch.dtype:
        """The type that `tensor` will have, without making it."""
        return (self.computed.get(key) or self.recipes[key]).dtype

    def tensor(self, key: str) -> Tensor:
        """One tensor without its LoRA, read or made."""
        return self.computed[key].make() if key in self.computed else self.recipes[key].tensor()

    def where(self, key: str) -> str:
        """The published file and its own key; our name for a computed tensor that stands for none."""
        return self.recipes[key].where() if key in self.recipes else f"{self.path}: {key!r}"

    def lora(self) -> LoraUpdates:
        """The LoRA of its layers."""
        updates = {name.removesuffix(".weight"): recipe.lora() for name, recipe in self.recipes.items()}
        return {name: update for name, update in updates.items() if update is not None}

    @property
    def lora_bytes(self) -> int:
        """The bytes that its LoRA takes to store; 0 without any."""
        return sum(recipe.lora_bytes for recipe in self.recipes.values())


def map_keys(
    source: TensorSource, table: Iterable[Rule], alpha: float | None = None, base: TensorSource | None = None
) -> dict[str, Recipe]:
    """Our tensor name -> recipe, for all keys of a source by one table.

    base is a second source by the same table, for targets that the first lacks a base of (trainable-only files).
    CheckpointError names the file and the first keys that no rule matches, or whose base or LoRA half is missing.
    """
    compiled = [(re.compile(rule.pattern), rule) for rule in table]
    recipes: dict[str, Recipe] = {}
    unknown = [key for key in source.keys() if not _apply(compiled, source, key, alpha, recipes)]  # noqa: SIM118
    if unknown:
        raise CheckpointError(f"{source.path}: {_first(unknown)} unknown; expected the published names only")
    if base is not None:
        stock: dict[str, Recipe] = {}
        for key in base.keys():  # noqa: SIM118
            _apply(compiled, base, key, alpha, stock)
        for name, recipe in recipes.items():
            if BASE not in recipe.steps and name in stock:
                recipe.steps[BASE] = stock[name].steps[BASE]
    _check_complete(source, recipes)
    return recipes


def _apply(
    compiled: list[tuple[re.Pattern[str], Rule]],
    source: TensorSource,
    key: str,
    alpha: float | None,
    recipes: dict[str, Recipe],
) -> bool:
    """Add one key to the recipes of every rule that matches it; False if none does."""
    matches = [(match, rule) for pattern, rule in compiled if (match := pattern.fullmatch(key))]
    for match, rule in matches:
        if rule.target is None:
            continue
        if rule.of > 1 and (not source.shape(key) or source.shape(key)[0] % rule.of):
            raise CheckpointError(
                f"{source.path}: {key!r} has shape {source.shape(key)}; expected rows that split into {rule.of}"
            )
        recipes.setdefault(match.expand(rule.target), Recipe(source, alpha)).add(source, key, rule)
    return bool(matches)


def _check_complete(source: TensorSource, recipes: dict[str, Recipe]) -> None:
    for name, recipe in recipes.items():
        roles = set(recipe.steps)
        if BASE not in roles:
            key = next(iter(recipe.steps.values()))[1]
            raise CheckpointError(
                f"{source.path}: {key!r} updates {name!r}, but its base weight is neither in this file nor in a base "
                "model; expected a full file, or the base model's weights in its folder"
            )
        if (LORA_A in roles) != (LORA_B in roles):
            raise CheckpointError(f"{source.path}: {recipe.key!r} has only one of lora_A and lora_B; expected both")
        if LORA_A in roles:
            _check_rank(source, recipe)


def _check_rank(source: TensorSource, recipe: Recipe) -> None:
    (a_source, a_key, _), (b_source, b_key, _) = recipe.steps[LORA_A], recipe.steps[LORA_B]
    shape_a, shape_b, shape = a_source.shape(a_key), b_source.shape(b_key), recipe.shape
    if len(shape) != 2 or shape_a[1:] != shape[1:] or shape_b[:1] != shape[:1] or shape_a[:1] != shape_b[1:]:
        raise CheckpointError(
            f"{source.path}: {a_key!r} {shape_a} and {b_key!r} {shape_b} do not multiply to {recipe.key!r} {shape}"
        )


def _first(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more are" if len(keys) > 3 else " is" if len(keys) == 1 else " are"
    return f"{', '.join(repr(key[:LONGEST]) for key in sorted(keys)[:3])}{more}"
