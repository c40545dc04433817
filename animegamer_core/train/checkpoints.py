"""A run's folder: what it starts from, and checkpoints: all that it needs to continue as if it had never stopped.

`checkpoints/step-0000120.safetensors` holds the trained weights, their average and AdamW's moments, and as metadata the
rest of the state. A file is renamed into place when it is complete, so a killed run keeps the one before. The order of
samples and the noise depend only on seed and step (`sampling.py`), so they need no stored state.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import msgspec
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from ..data.dataset import DatasetFolder
from ..files import UNFINISHED, locked, replacing
from ..messages import quoted, shortened
from ..weights import World, storage
from ..weights.adapter_files import GAME_STAGES
from ..weights.storage import note_of, write_json
from .distributed import distributed_like, full_tensor, local_shard, processes
from .stages import STAGES, StageConfig

CHECKPOINTS = "checkpoints"  # folder in a run's folder
JOB, RESULT, LOCK = "job.json", "result.json", ".lock"  # files in it: what it starts from, and how it ended
CLIPS = "clips' content"  # key of the job
MOMENTS = ("exp_avg", "exp_avg_sq", "momentum_buffer")  # AdamW's, and the last Muon's
KEPT = 2  # checkpoints that are kept
# fields that may differ between a run and its continuation, since they change results by rounding at most
SPLITTING = "per_card"  # only if the loss does not compare the samples of a micro-batch
FREE_FIELDS = {
    *("shots_every", "shots_steps", "minutes", "log_every", "save_every", "validate_every", "compile", "checkpointing"),
    SPLITTING,
}


@dataclasses.dataclass
class RunState:
    """What changes while a stage runs. parameters: the trained ones, by name. average: their EMA, empty without EMA.

    Tensors may be sharded over several processes (FSDP2). A checkpoint holds full tensors, so that any number of
    processes can continue from it.
    """

    stage: str
    config: StageConfig
    parameters: dict[str, nn.Parameter]
    optimizers: list[torch.optim.Optimizer]
    average: dict[str, Tensor]
    step: int = 0
    seconds: float = 0.0


class StoredState(msgspec.Struct):
    """What a checkpoint holds besides tensors. optimizer_steps: AdamW's, by the parameter's name."""

    stage: str
    step: Annotated[int, msgspec.Meta(ge=0)]
    seconds: float
    optimizer_steps: dict[str, float]
    config: dict[str, Any]


def save_checkpoint(folder: Path, state: RunState, writes: bool = True) -> None:
    """Write a checkpoint; then remove all but the last two, and the partial ones of a killed run.

    If tensors are sharded, every process of the run must call this; only those with `writes` write.
    """
    tensors: dict[str, Tensor] = {}
    steps: dict[str, float] = {}
    owners = _owners(state)
    for name, parameter in state.parameters.items():
        moments = owners[parameter].state.get(parameter, {})
        found = {"weight": parameter, **({"average": state.average[name]} if state.average else {})}
        found |= {moment: moments[moment] for moment in MOMENTS if moment in moments}
        for kind, value in found.items():  # sharded tensors are gathered one at a time
            full = full_tensor(value.detach())
            if not full.isfinite().all():
                raise ValueError(
                    f"{name} holds NaN or infinity at step {state.step}, so no checkpoint is written; lower lr or "
                    "check the data, and continue from the checkpoint before with --resume"
                )
            if writes:
                tensors[f"{kind}.{name}"] = full.cpu().contiguous()
        if "step" in moments:
            steps[name] = float(moments["step"])
    if not writes:
        return
    info = StoredState(state.stage, state.step, state.seconds, steps, dataclasses.asdict(state.config))
    with replacing(folder / f"step-{state.step:07d}.safetensors") as part:
        save_file(tensors, part, {"state": msgspec.json.encode(info).decode()})
    for old in {*folder.glob("step-*"), *folder.glob(f"{UNFINISHED}*")} - {*list_checkpoints(folder)[-KEPT:]}:
        old.unlink()


def _owners(state: RunState) -> dict[nn.Parameter, torch.optim.Optimizer]:
    """The optimizer of each parameter."""
    return {own: each for each in state.optimizers for group in each.param_groups for own in group["params"]}


def list_checkpoints(folder: Path) -> list[Path]:
    """The whole checkpoints of a run, oldest first; a damaged one is left out, so that the one before it counts."""
    return [path for path in sorted(folder.glob("step-*.safetensors")) if _damage(path) is None]


def _damage(path: Path) -> str | None:
    """What is wrong with a checkpoint; None if it is whole."""
    try:
        with _opened(path):
            return None
    except ValueError as error:
        return str(error)


def step_of(path: Path) -> int:
    """The number of steps that were done at a checkpoint."""
    return int(path.stem.removeprefix("step-"))


@contextmanager
def _opened(path: Path) -> Iterator[tuple[StoredState, Any]]:
    """(the stored state, the file of tensors) of a checkpoint; ValueError for a damaged one."""
    try:
        with safe_open(path, framework="pt") as file:
            yield msgspec.json.decode((file.metadata() or {}).get("state", ""), type=StoredState), file
    except (SafetensorError, msgspec.MsgspecError) as error:
        raise ValueError(f"{path} is cut off or damaged ({shortened(error)})") from error


def load_checkpoint(path: Path, state: RunState) -> None:
    """Load a checkpoint into a run that was just set up; ValueError names a tensor that does not fit."""
    with _opened(path) as (info, file):
        names = set(file.keys())

        def stored(name: str, like: Tensor) -> Tensor:
            """A stored tensor, placed like another; ValueError if it is missing or has another shape."""
            if name not in names or tuple(file.get_slice(name).get_shape()) != tuple(like.shape):
                raise ValueError(f"{path}: {name} is missing or not {tuple(like.shape)}; it is for another spec")
            return distributed_like(file.get_tensor(name), like)

        owners = _owners(state)
        for name, parameter in state.parameters.items():
            targets = {"weight": parameter, **({"average": state.average[name]} if state.average else {})}
            for kind, into in targets.items():
                with torch.no_grad():
                    local_shard(into).copy_(local_shard(stored(f"{kind}.{name}", into)))
            owner = owners[parameter]
            moments = {kind: stored(f"{kind}.{name}", parameter) for kind in MOMENTS if f"{kind}.{name}" in names}
            if (steps := info.optimizer_steps.get(name)) is not None:
                fused = owner.param_groups[0].get("fused")
                moments["step"] = torch.tensor(steps, device=parameter.device if fused else "cpu")
            if moments:
                owner.state[parameter] = moments
    state.step, state.seconds = info.step, info.seconds


def continued_config(stage: str, config: StageConfig, out: Path) -> StageConfig:
    """The configuration with which the run in `out` continues; the given one if nothing was trained there yet.

    A run may get more steps; its warm-up then keeps its length. ValueError if the run is of another stage, or if a
    setting differs that is not in FREE_FIELDS.
    """
    found = list_checkpoints(out / CHECKPOINTS)
    for path in sorted({*(out / CHECKPOINTS).glob("step-*.safetensors")} - {*found}):
        begins = f"the run continues from step {step_of(found[-1])}" if found else "the run begins again"
        warnings.warn(f"{_damage(path)}; {begins}", stacklevel=2)
    if not found:
        return config
    with _opened(found[-1]) as (info, _):
        pass
    if info.stage != stage:
        raise ValueError(f"{found[-1]} is from stage {info.stage!r}, not {stage!r}; choose another folder")
    if info.config["steps"] < config.steps:
        config = dataclasses.replace(config, lr_warmup=info.config["lr_warmup"])
    free = FREE_FIELDS - ({SPLITTING} if STAGES[stage].contrasts else set())
    for name, value in dataclasses.asdict(config).items():
        before = info.config.get(name)
        before = tuple(before) if isinstance(before, list) else before
        if name not in free and before != value and not (name == "steps" and before < value):
            raise ValueError(
                f"{out} was trained with {name} {quoted(before)}, now it is {quoted(value)}; continue with the same "
                "settings, or use another folder"
            )
    return config


@contextmanager
def hold_run_folder(
    out: Path,
    stage: str,
    folder: DatasetFolder,
    start: Sequence[tuple[Path, float]],
    world: World,
    in_place: bool = False,
) -> Iterator[None]:
    """Lock a run's folder while the block runs, and note in its job.json what the run starts from.

    world: as the stage reads it. in_place: whether the run writes to the world, which then differs afterwards, so that
    it is not noted.
    ValueError if another training is running in the folder, or if the run there has a checkpoint and another origin.
    """
    origin = {
        "stage": stage,
        "profile": world.profile.name if stage in GAME_STAGES else None,
        "world": None if in_place else world.fingerprint,
        "dataset": folder.digest(captions=True),
        CLIPS: folder.content,
        # digits of the hash, since many adapters have the same name; reading a missing file fails later
        "start": [
            [path.name, strength, note_of(path).sha256[:12] if path.is_file() else ""] for path, strength in start
        ],
    }
    refusal = f"{out}: another training is running here; wait for it, stop it, or choose another folder"
    with locked(out / LOCK, refusal) if processes().is_main_process else nullcontext():
        with processes().main_process_first():
            path = out / JOB
            if path.is_file() and list_checkpoints(out / CHECKPOINTS):
                before = storage.read_json(path)
                origin[CLIPS] = origin[CLIPS] or before.get(CLIPS)  # unknown where files are missing
                for name, value in origin.items():
                    if before.get(name) != value and (name != CLIPS or before.get(CLIPS)):
                        raise ValueError(
                            f"{out} holds a run with another {name} ({shortened(before.get(name), 40)}, now "
                            f"{shortened(value, 40)}); choose another folder for this run"
                        )
            else:
                (out / RESULT).unlink(missing_ok=True)  # of a run whose checkpoints were removed
            write_json(path, origin)
        yield
