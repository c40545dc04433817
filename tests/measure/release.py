"""Memory and time of training steps at the published sizes, with random weights, on GPUs.

    python tests/measure/release.py --out rows.jsonl
    accelerate launch --multi_gpu --num_processes 2 tests/measure/release.py --out rows.jsonl
    accelerate launch --use_fsdp --fsdp_version 2 --num_processes 2 tests/measure/release.py --out rows.jsonl

Each row is one stage of a recipe at one batch size per GPU: real steps of the training loop with random features, so
that no text or image encoder and no VAE is needed. A row is printed as soon as it is measured and added to --out; later
runs read the row of one GPU there, to compute how well more GPUs scale. Rows of lora24 are limited to 23 GiB.
"""

import argparse
import dataclasses
import gc
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import nn

from animegamer_core.data.dataset import DatasetFolder, GameRecord
from animegamer_core.data.records import ClipRecord
from animegamer_core.spec import PROFILES, SPECS, ModelSpec, get_spec
from animegamer_core.train import distributed as spread
from animegamer_core.train.parts import WorldParts
from animegamer_core.train.run import LEARNERS
from animegamer_core.train.stages import StageConfig, matching, stage_config
from animegamer_core.train.trainer import Trainer, idle_on_cpu
from animegamer_core.train.training_data import TrainingData
from animegamer_core.train.world_setup import words_tokenizer
from animegamer_core.weights.parts import build_model

GIB = 2**30
SMALL_GPU = 23 * GIB  # what a GPU of 24 GB leaves to a program
TURNS = 8
USED = {  # the models that a stage's steps read
    "warmup": ("encoder", "decoder"),
    "joint": ("encoder", "decoder"),
    "predict": ("engine",),
    "adapt": ("decoder",),
    "distill": ("decoder",),
}
FOUR_STEPS = (999, 937, 833, 624)  # timesteps that `distill` teaches here; its rows count a whole turn of steps, five
# of the fake score and one of the student
ROWS = [("lora", stage, batch) for stage in ("warmup", "joint", "adapt", "predict", "distill") for batch in (1, 2)]
ROWS += [("lora24", stage, 1) for stage in ("joint", "adapt", "predict")]


@dataclass(frozen=True)
class Row:
    """batch: samples per GPU. peak, reserved: the most GiB of any GPU during the steps; setup: before them."""

    recipe: str
    stage: str
    batch: int
    cards: int
    mode: str
    seconds: float
    peak: float
    reserved: float
    setup: float
    trained: float  # millions
    loss: float

    @property
    def samples(self) -> float:
        """Samples a second, over all cards."""
        return self.batch * self.cards / self.seconds


def random_data(spec: ModelSpec, folder: Path, device: torch.device) -> TrainingData:
    """One game whose features are noise of the right shapes."""
    motion = "fly on a broomstick over the town"
    turn = ClipRecord(
        film="noise", start=0, end=2, clip="clips/0.mp4", character=("Qiqi",), motion=motion, background="day sky",
        adverb="quickly", motion_value=10.0, motion_level=3, stats={"social": 0, "entertainment": 1, "stamina": -1},
    )  # fmt: skip
    turns = tuple(msgspec.structs.replace(turn, clip=f"clips/{number}.mp4") for number in range(TURNS))
    state, towers = spec.state, spec.encoder
    shapes = {
        "latents": (2, *spec.decoder.latent_shape),
        "text": (state.text_tokens, towers.text.width),
        "image": (state.image_tokens, towers.image.width),
        "states": (state.tokens, state.width),
        "predicted": (state.tokens, state.width),
    }
    made = {name: torch.randn(TURNS, *shape, dtype=torch.float16, device=device) for name, shape in shapes.items()}
    games = (GameRecord("game", tuple(range(TURNS))),)
    return TrainingData(DatasetFolder(folder, turns, games), made, made["text"][0] * 0)


def random_parts(spec: ModelSpec, stage: str, config: StageConfig, data: TrainingData, device: torch.device):
    """The models of a stage as loaded from a world, with random weights; weights that no step reads take no memory."""
    tokenizer = words_tokenizer(data.folder.turns, spec)
    parts = build_model(lambda: WorldParts.new(spec, tokenizer, PROFILES["paper"], models=USED[stage]))
    half = torch.bfloat16 if config.keeps_frozen_in_bf16(device) else torch.float32
    for model in USED[stage]:
        module = getattr(parts, model)
        names = [name for name, _ in module.named_parameters() if "_tower." not in name and not name.startswith("vae.")]
        wide = set(matching((*config.trainable, r"^encoder\."), [f"{model}.{name}" for name in names]))
        for name in names:
            _fill(module, name, torch.float32 if f"{model}.{name}" in wide else half, device)
    return parts


def _fill(module: nn.Module, name: str, dtype: torch.dtype, device: torch.device) -> None:
    parent, _, own = name.rpartition(".")
    holder = module.get_submodule(parent)
    value = torch.empty(getattr(holder, own).shape, dtype=dtype, device=device)
    value.normal_(std=0.02) if value.dim() > 1 else value.fill_(float(own == "weight"))
    holder.register_parameter(own, nn.Parameter(value))


def measured(recipe: str, stage: str, batch: int, spec: ModelSpec, steps: int, folder: Path) -> Row:
    """One row. Prompts differ in length, so the warm-up steps go through all lengths once."""
    run = spread.processes()
    device, cards = run.device, run.num_processes
    given = {"batch": batch * cards, "per_card": 0, "lr_warmup": 1, "steps": 1000}
    config = dataclasses.replace(stage_config(stage, recipe), **given)
    if stage == "distill":
        config = dataclasses.replace(config, timesteps=FOUR_STEPS, pairs=0)
        steps = 1 + config.fake_updates
    _fresh_memory(device, SMALL_GPU if recipe == "lora24" else None)
    data = random_data(spec, folder, device)
    learner = LEARNERS[stage](config, random_parts(spec, stage, config, data, device), data)
    with idle_on_cpu(learner):
        loop = Trainer(stage, config, learner, data)
        before = 5 if stage == "predict" else 2
        for _ in range(before):
            losses = loop.take_step()
        setup, begun = _peak(device)[0], _clock(device)
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        for _ in range(steps):
            losses = loop.take_step()
        seconds = (_clock(device) - begun) / steps
    peak, reserved = _peak(device)
    trained = sum(value.numel() for value in loop.state.parameters.values()) / 1e6
    mode = "-" if cards == 1 else "fsdp2" if loop.is_sharded else "ddp"
    facts = (_most(value, device) for value in (seconds, peak, reserved, setup))
    return Row(recipe, stage, batch, cards, mode, *facts, trained, float(losses["loss"]))


def _fresh_memory(device: torch.device, limit: int | None) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        total = torch.cuda.get_device_properties(device).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total) if limit else 1.0)


def _peak(device: torch.device) -> tuple[float, float]:
    if device.type != "cuda":
        return 0.0, 0.0
    return torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB


def _clock(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


def _most(value: float, device: torch.device) -> float:
    """The greatest value of all processes."""
    found = torch.tensor(value, device=device)
    if spread.processes().num_processes > 1:
        torch.distributed.all_reduce(found, torch.distributed.ReduceOp.MAX)
    return found.item()


def described(row: Row, alone: Row | None) -> str:
    """A row in words. alone: the row of one GPU."""
    scaling = "" if alone is None else f"  efficiency {row.samples / (row.cards * alone.samples):.0%}"
    return (
        f"{row.recipe:7s} {row.stage:8s} batch {row.batch} x {row.cards} {row.mode:5s}  {row.seconds:7.3f} s/step  "
        f"{row.samples:6.2f} samples/s  peak {row.peak:5.1f} GiB, reserved {row.reserved:5.1f}, setup {row.setup:5.1f} "
        f" trained {row.trained:.1f} M  loss {row.loss:.3f}{scaling}"
    )


def _alone(row: Row, out: Path) -> Row | None:
    """The row of one GPU that an earlier run wrote."""
    lines = out.read_text().splitlines() if row.cards > 1 and out.is_file() else []
    known = [Row(**json.loads(line)) for line in lines]
    same = (row.recipe, row.stage, row.batch, 1)
    return next((old for old in known[::-1] if (old.recipe, old.stage, old.batch, old.cards) == same), None)


def say(line: str) -> None:
    """Print a line at once, from the main process."""
    if spread.processes().is_main_process:
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()


def main() -> None:
    """Measure the rows that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", default="release", choices=tuple(SPECS))
    parser.add_argument("--rows", nargs="*", default=(), help="recipe:stage:batch, such as lora24:joint:1")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("rows.jsonl"))
    args = parser.parse_args()
    asked = [(recipe, stage, int(batch)) for recipe, stage, batch in (row.split(":") for row in args.rows)] or ROWS
    say(f"torch {torch.__version__}, {spread.processes().num_processes} processes on {spread.processes().device}")
    for recipe, stage, batch in asked:
        begun = time.perf_counter()
        try:
            row = measured(recipe, stage, batch, get_spec(args.spec), args.steps, args.out.parent)
        except torch.OutOfMemoryError as error:
            say(f"{recipe:7s} {stage:8s} batch {batch}: does not fit ({str(error).splitlines()[0][:160]})")
            if spread.processes().num_processes > 1:
                raise  # the other processes wait for this one
            continue
        say(f"{described(row, _alone(row, args.out))}  in {time.perf_counter() - begun:.0f} s")
        if spread.processes().is_main_process:
            with args.out.open("a") as file:
                file.write(json.dumps(dataclasses.asdict(row)) + "\n")
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
