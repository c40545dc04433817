"""Moves an unfinished build to another machine, in a few small files.

These hold the world so far, the tables of its datasets, and the latest checkpoint of each unfinished stage: averaged
weights in 16 bits, without AdamW's moments. Clips are left out, since the build draws the same ones again.
"""

from __future__ import annotations

import gzip
import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

from ...checkpoint.storage import read_json
from ...data.dataset import CLIPS
from ...files import make_folder, replacing, room_for
from ...train.checkpoints import CHECKPOINTS, list_checkpoints

PART_BYTES = 15 * 10**6
NAME = "build-{:02d}.part"


def pack(build: Path, out: Path) -> list[Path]:
    """Write a build's folder, without clips, to files of at most 15 MB in `out`; returns their paths."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for path in sorted(_travelling(build)):
            tar.add(path, path.relative_to(build).as_posix())
        for run in sorted(build.glob(f"runs/*/{CHECKPOINTS}")):
            if not (run.parent / "result.json").is_file():
                for newest in list_checkpoints(run)[-1:]:
                    _add_checkpoint(tar, newest, newest.relative_to(build).as_posix())
    content = packed.getvalue()
    paths = []
    for number, start in enumerate(range(0, len(content), PART_BYTES)):
        paths.append(out / NAME.format(number))
        with replacing(paths[-1]) as part:
            part.write_bytes(content[start : start + PART_BYTES])
    return paths


def unpack(parts: Path, build: Path) -> None:
    """Unpack the files that `pack` wrote to `parts` into a build's folder; ValueError if missing or damaged."""
    paths = sorted(parts.glob(NAME.format(0).replace("00", "[0-9][0-9]")))
    if not paths:
        raise ValueError(f"{parts} holds no build-00.part; give the folder that --pack wrote")
    make_folder(build)
    content = io.BytesIO(b"".join(path.read_bytes() for path in paths))
    try:
        with room_for(build), tarfile.open(fileobj=content, mode="r:gz") as tar:
            tar.extractall(build, filter="data")  # never writes outside of the folder
    except (tarfile.TarError, EOFError, gzip.BadGzipFile) as error:
        raise ValueError(f"{parts}: its parts are damaged or incomplete ({error}); copy them again") from error


def _travelling(build: Path) -> Iterator[Path]:
    """Yield the files to pack: the world's, both datasets' without clips, and the JSON files of runs."""
    for path in build.rglob("*"):
        parts = path.relative_to(build).parts
        if (
            path.is_file()
            and CLIPS not in parts
            and (parts[0] != "runs" or path.suffix == ".json")
            and (CHECKPOINTS not in parts)
        ):
            yield path


def _add_checkpoint(tar: tarfile.TarFile, checkpoint: Path, name: str) -> None:
    """Add a checkpoint: its averaged weights in 16 bits, named like its weights, and its state without moments."""
    from safetensors.torch import load_file, save

    tensors = {
        key: value for path in sorted(checkpoint.glob("*.safetensors")) for key, value in load_file(path).items()
    }
    weights = {key: value for key, value in tensors.items() if key.startswith("weight.")}
    averaged = {key: tensors.get(f"average.{key.removeprefix('weight.')}", value) for key, value in weights.items()}
    state = {**read_json(checkpoint / "state.json"), "optimizer_steps": {}}
    files = {
        "model.safetensors": save({key: value.half().contiguous() for key, value in averaged.items()}),
        "state.json": json.dumps(state).encode(),
    }
    for file, content in files.items():
        entry = tarfile.TarInfo(f"{name}/{file}")
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))
