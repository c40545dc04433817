"""How closely a stopped and continued training follows an unbroken one; for a machine with two GPUs or more.

    python tests/measure/resume.py --work DIR

Trains stage joint of the shipped Toybox on a few drawn games, without a stop and stopped half-way and continued, with
DDP and with FSDP2; then a run that a single GPU continues. Prints the largest relative difference between the losses
after the stop and the unbroken run's, and the one between two unbroken runs.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.train.cache import FeatureStore
from animegamer_core.train.log import read_log
from animegamer_core.train.loop import RunOptions
from animegamer_core.train.parts import WorldParts
from animegamer_core.train.run import train_stage
from animegamer_core.train.stages import stage_config
from animegamer_core.train.training_data import TrainingData
from animegamer_core.weights import open_world

STAGE = "joint"
GAMES = DatasetGames(games=24, held_out=2)
MODES = {"ddp": ("--multi_gpu",), "fsdp2": ("--use_fsdp", "--fsdp_version", "2")}
FIXED = "--num_machines 1 --mixed_precision no --dynamo_backend no --main_process_port 0".split()


def train(args: argparse.Namespace) -> None:
    """Run in each process of a launch the jobs NAME:STEPS in turn, each stopping after STEPS more (0: never)."""
    folder = write_dataset(args.work / "dataset", GAMES)  # drawn before
    given = {"steps": args.steps, "batch": args.batch, "log_every": 1, "validate_every": 0, "lr_warmup": 1}
    config = dataclasses.replace(stage_config(STAGE), **given)
    for job in args.jobs:
        name, _, steps = job.partition(":")
        data = TrainingData(folder, FeatureStore(), cache=args.work / "features")
        parts = WorldParts.load(open_world("toybox"))
        options = RunOptions(resume=(args.work / name).is_dir(), should_stop=_after(int(steps)))
        train_stage(STAGE, config, parts, data, args.work / name, options)


def _after(steps: int) -> Callable[[], bool]:
    taken = []

    def enough() -> bool:
        taken.append(None)
        return len(taken) == steps

    return enough


def launch(args: argparse.Namespace, mode: str, cards: int, *jobs: str) -> None:
    """Run the jobs in that many processes."""
    how = [*MODES[mode], *FIXED, "--num_processes", str(cards)] if cards > 1 else ["--num_processes", "1", *FIXED]
    given = ["--work", str(args.work), "--steps", str(args.steps), "--batch", str(args.batch)]
    command = [sys.executable, "-m", "accelerate.commands.launch", *how, __file__, *given, "--jobs", *jobs]
    subprocess.run(command, check=True)


def differences(args: argparse.Namespace, name: str, unbroken: str, since: int) -> tuple[float, float]:
    """(the largest relative difference of two runs' losses after step `since`, the last step's)."""
    left, right = ([line["loss"] for line in read_log(args.work / run / "log.jsonl")] for run in (name, unbroken))
    assert len(left) == len(right) == args.steps, (name, len(left))
    relative = [abs(one - other) / other for one, other in zip(left, right, strict=True)]
    return max(relative[since:]), relative[-1]


def measure(args: argparse.Namespace) -> None:
    """Measure all rows; prints them and writes them to rows.jsonl."""
    if (args.work / "rows.jsonl").is_file():
        raise ValueError(f"{args.work} holds such runs already; choose another folder")
    write_dataset(args.work / "dataset", GAMES)
    half = args.steps // 2
    for mode in MODES:
        names = {what: f"{mode}-{what}" for what in ("unbroken", "again", "stopped", "fewer")}
        launch(args, mode, args.cards, *(f"{names[what]}:0" for what in ("unbroken", "again")))
        launch(args, mode, args.cards, *(f"{names[what]}:{half}" for what in ("stopped", "fewer")))
        launch(args, mode, args.cards, f"{names['stopped']}:0")
        launch(args, mode, 1, f"{names['fewer']}:0")
        for what, since in (("again", 0), ("stopped", half), ("fewer", half)):
            most, last = differences(args, names[what], names["unbroken"], since)
            row = {"mode": mode, "cards": args.cards, "run": what, "most": most, "last": last}
            row |= {"steps": args.steps, "batch": args.batch}
            sys.stdout.write(f"{json.dumps(row)}\n")
            sys.stdout.flush()
            with (args.work / "rows.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def main() -> None:
    """Measure; or train, when this script started itself under `accelerate launch`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder")
    parser.add_argument("--cards", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--jobs", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    train(args) if args.jobs else measure(args)


if __name__ == "__main__":
    main()
