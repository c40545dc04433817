"""Trains and scores the paper's ablations on all GPUs of one machine, and prints when each part ends.

    python tests/measure/ablations_on_gpus.py --work runs/ablations --world runs/toybox1/world --cards 4 --seeds 0 1 2

The clips are drawn by all cores, their features are computed once, and then three processes train each seed: each has
other variants, and waits for the stages of `full` that its own ones begin with. The same command continues a killed
run. docs/evaluation.md has the figures. A world of edition 1 (docs/training.md) makes it three times as fast.
"""
# ruff: noqa: T201

import argparse
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from animegamer_core.research.ablations.budgets import BUDGETS  # noqa: E402
from animegamer_core.toybox.dataset import write_dataset  # noqa: E402

PROGRAM = (sys.executable, "-m", "animegamer_core")
LANES = (  # about equally long; the three rows that the paper tried and dropped are left out
    "full window_0 window_1 window_2 window_8".split(),
    "random_frame no_warm_up cosine_loss no_adaptation".split(),
    "no_motion_scope text_history".split(),
)
TRIES = 3  # of a process that was killed or found no memory; it continues where it was


def card_of(lane: int, seed: int, cards: int, seeds: int) -> int:
    """The GPU of a process: a seed's own; if there are more GPUs than seeds, all third ones share the last."""
    return cards - 1 if lane == 2 and cards > seeds else seed % cards


def run(name: str, words: list[str], card: int, options: argparse.Namespace) -> bool:
    """Run one command of the program on one GPU, its output in a file; returns whether it succeeded."""
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": str(card)} if options.device != "cpu" else dict(os.environ)
    environment |= {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "PYTHONPATH": os.pathsep.join(sys.path)}
    path = options.work / "logs" / f"{name}.txt"
    for attempt in range(1, TRIES + 1):
        with path.open("a") as log:
            status = subprocess.run([*PROGRAM, *words], env=environment, stdout=log, stderr=log).returncode
        print(f"{time.monotonic() - options.began:5.0f} s  {name}, try {attempt}: status {status}", flush=True)
        if status == 0:
            return True
    return False


def features(names: str, card: int, options: argparse.Namespace) -> bool:
    """Compute some features of all clips."""
    folders = [options.work / "dataset", "--world", options.world, "--out", options.work / "features"]
    words = ["dataset", "cache", *map(str, folders), "--features", *names.split(), "--device", options.device]
    return run(f"features-{names.split()[0]}", words, card, options)


def lane(index: int, seed: int, options: argparse.Namespace) -> bool:
    """Train and score one seed's variants of a lane."""
    count = len(options.seeds)
    words = ["evaluate", "ablations", "--work", options.work, "--world", options.world, "--budget", options.budget]
    words += ["--seeds", seed, "--variants", *LANES[index], "--device", options.device, "--workers", options.workers]
    words += ["--out", options.work / "tables" / f"seed-{seed}-{index}", *(["--compile"] if options.compile else [])]
    card = card_of(index, options.seeds.index(seed), options.cards, count)
    return run(f"seed-{seed}-{index}", [str(word) for word in words], card, options)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, metavar="DIR")
    parser.add_argument("--world", default="toybox", help="the base world (default %(default)s)")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--cards", type=int, default=1, help="GPUs (default %(default)s)")
    parser.add_argument("--budget", default="short", choices=tuple(BUDGETS))
    parser.add_argument("--workers", type=int, default=4, help="processes that draw and measure, for each of ours")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    options.began = time.monotonic()
    (options.work / "logs").mkdir(parents=True, exist_ok=True)
    write_dataset(options.work / "dataset", BUDGETS[options.budget].casting)
    print(f"{time.monotonic() - options.began:5.0f} s  clips are there", flush=True)
    with ThreadPoolExecutor(max_workers=2 + len(LANES) * len(options.seeds)) as pool:
        first = pool.submit(features, "latents", 0, options)
        second = pool.submit(features, "text image image_random", options.cards - 1, options)
        if not (first.result() and second.result()):
            return 1
        started = [pool.submit(lane, index, seed, options) for index in range(len(LANES)) for seed in options.seeds]
        return 0 if all([one.result() for one in started]) else 1


if __name__ == "__main__":
    sys.exit(main())
