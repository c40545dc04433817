"""Features that training reads in every epoch, computed once: frames, latents, encoder features, representations.

A feature is one tensor with a row for each clip, in equal shards of safetensors. Features of a small dataset are on the
training device, where a batch is one indexing; those of a large one are mapped from disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from ..files import replacing, write_text
from ..json_files import JsonError, read_json
from ..messages import brief

SHARD_BYTES = 256 * 2**20


@dataclass(frozen=True)
class Feature:
    """One row a clip, in shards of `rows` rows (the last may be shorter)."""

    shards: tuple[Tensor, ...]

    @property
    def rows(self) -> int:
        """Rows of a full shard."""
        return len(self.shards[0])

    def __len__(self) -> int:
        return self.rows * (len(self.shards) - 1) + len(self.shards[-1])

    def gather(self, indices: Tensor) -> Tensor:
        """The rows at `indices` (B,), on the device of the shards."""
        if len(self.shards) == 1:
            return self.shards[0][indices.to(self.shards[0].device)]
        number, row = indices.cpu() // self.rows, indices.cpu() % self.rows
        out = torch.empty((len(indices), *self.shards[0].shape[1:]), dtype=self.shards[0].dtype)
        for shard in number.unique().tolist():
            chosen = number == shard
            out[chosen] = self.shards[shard][row[chosen]]
        return out

    def to(self, device: torch.device | str) -> Feature:
        """All rows as one tensor on a device."""
        whole = self.shards[0] if len(self.shards) == 1 else torch.cat(self.shards)
        return Feature((whole.to(device),))


@dataclass(frozen=True)
class FeatureStore:
    """Features by name, all with the same number of rows."""

    features: Mapping[str, Feature] = field(default_factory=dict)

    @classmethod
    def of(cls, **tensors: Tensor) -> FeatureStore:
        """A store of tensors in memory."""
        return cls({name: Feature((tensor,)) for name, tensor in tensors.items()})

    def __contains__(self, name: object) -> bool:
        return name in self.features

    def with_feature(self, name: str, feature: Feature | Tensor) -> FeatureStore:
        """The store with one feature added or replaced."""
        feature = Feature((feature,)) if isinstance(feature, Tensor) else feature
        return FeatureStore({**self.features, name: feature})

    def to(self, device: torch.device | str) -> FeatureStore:
        """All features on a device."""
        return FeatureStore({name: feature.to(device) for name, feature in self.features.items()})

    def gather(self, names: Sequence[str], indices: Tensor, device: torch.device | str) -> dict[str, Tensor]:
        """The named features' rows at `indices` (B,), on `device`."""
        return {name: self.features[name].gather(indices).to(device, non_blocking=True) for name in names}


def write_feature(
    folder: str | Path,
    name: str,
    count: int,
    compute: Callable[[range], Tensor],
    *,
    digest: str,
    shard_bytes: int = SHARD_BYTES,
) -> Feature:
    """Compute a feature in shards, except those that an earlier run with the same `digest` finished.

    compute(rows) returns those rows on any device. digest: a checksum of everything that the feature depends on.
    """
    folder = Path(folder)
    index_path = folder / f"{name}.json"
    index = read_index(index_path)
    if index is None or (index.digest, index.count) != (digest, count):
        first = compute(range(1))
        index = FeatureIndex(digest, count, max(1, shard_bytes // max(1, first.nbytes)), 0)
        write_text(index_path, msgspec.json.encode(index).decode())
    rows = index.rows
    for number in range(index.done, -(-count // rows)):
        rows_of_shard = range(number * rows, min(count, (number + 1) * rows))
        shard = compute(rows_of_shard).detach().cpu().contiguous()
        with replacing(_shard_path(folder, name, number)) as part:
            save_file({"rows": shard}, part, metadata={"digest": digest})
        write_text(index_path, msgspec.json.encode(msgspec.structs.replace(index, done=number + 1)).decode())
    return open_feature(folder, name)


def _shard_path(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number:05d}.safetensors"


class FeatureIndex(msgspec.Struct):
    """A feature's index. done: shards of `rows` rows that are finished, of `count` rows."""

    digest: str
    count: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    rows: Annotated[int, msgspec.Meta(ge=1, le=1 << 40)]
    done: Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]

    @property
    def is_done(self) -> bool:
        """Whether all rows are finished."""
        return self.done * self.rows >= self.count


def read_index(path: Path) -> FeatureIndex | None:
    """A feature's index; None without the file, ValueError for a damaged one."""
    try:
        return read_json(path, FeatureIndex) if path.is_file() else None
    except JsonError as error:
        raise ValueError(f"{error}; delete it to compute the feature again") from error


def open_feature(folder: Path, name: str) -> Feature:
    """A feature that `write_feature` wrote, mapped from disk; ValueError if it is missing, unfinished or truncated."""
    index = read_index(folder / f"{name}.json")
    if index is None or not index.is_done:
        raise ValueError(f"feature {name!r} in {folder} is missing or unfinished; run `dataset cache` again")
    shards = []
    for number in range(-(-index.count // index.rows)):
        path = _shard_path(folder, name, number)
        try:
            with safe_open(path, framework="pt") as file:
                if (file.metadata() or {}).get("digest") != index.digest:
                    raise ValueError(f"{path} belongs to another dataset; delete the cache folder {folder}")
                shards.append(file.get_tensor("rows"))
        except (SafetensorError, OSError) as error:
            raise ValueError(f"{path} cannot be read ({brief(error)}); delete {folder} and compute it again") from error
    rows = [len(shard) if shard.dim() else 0 for shard in shards]
    expected = [min(index.rows, index.count - start) for start in range(0, index.count, index.rows)]
    if rows != expected or len({(shard.shape[1:], shard.dtype) for shard in shards}) > 1:
        raise ValueError(
            f"feature {name!r} in {folder} has {sum(rows)} rows; expected {index.count} of one shape; delete it"
        )
    return Feature(tuple(shards))
