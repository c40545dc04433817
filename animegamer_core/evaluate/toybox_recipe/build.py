"""Build the Toybox's shipped world: `python -m animegamer_core.toybox.build --work DIR`.

    data       draw the games, measure their motion, write a dataset folder
    games      the same games for the engine, which needs only each clip's first picture, with their own adverbs
    probes     train the probes on true clips of other seeds; frozen before any decoder is trained
    vae towers warmup joint predict adapt    the stages of `animegamer_core.train`, each from the last one's world
    played     `adapt` with latents that the decoder drew itself
    distill    teach it to draw in one step; a part of the way makes two enough
    tiny       train only the VAE's tiny decoder, which play draws with
    calibrate  measure how much the decoder's shots move, set the world's motion table accordingly, and write all
               weights in 8 bits

The same command again skips finished stages and continues an unfinished one; `--minutes` limits the time, and
`--part 0.2` takes a fifth of all games, clips and steps. `--quick` runs everything in miniature, to test the pipeline.
`accelerate launch --num_processes 2 -m animegamer_core.toybox.build` trains each stage on two GPUs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ...files import make_folder
from .recipe import FULL, QUICK, STAGES

UNFINISHED = 3  # exit status


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns 0 if all requested stages are finished, 3 if the time ran out."""
    parser = argparse.ArgumentParser(prog="python -m animegamer_core.toybox.build", description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="the build's folder")
    parser.add_argument("--stages", default=",".join(STAGES), help="comma-separated, in order (default: all)")
    parser.add_argument("--minutes", type=float, help="stop after this many minutes; the same command continues")
    parser.add_argument("--quick", action="store_true", help="miniature run that tests the pipeline and learns nothing")
    parser.add_argument("--part", type=float, default=1.0, help="take this part of games, clips and steps, such as 0.2")
    args = parser.parse_args(argv)
    stages = args.stages.split(",")
    if unknown := [stage for stage in stages if stage not in STAGES]:
        raise ValueError(f"unknown stage {unknown[0]!r}; choose from {', '.join(STAGES)}")
    from ...train.distributed import close_at_exit, processes
    from .stages import BuildDir, Deadline, build

    started = time.monotonic()

    def say(line: str) -> None:
        if processes().is_main_process:
            sys.stderr.write(f"[{time.monotonic() - started:6.1f} s] {line}\n")

    make_folder(args.work)
    work = BuildDir(args.work, (QUICK if args.quick else FULL).part(args.part), str(processes().device), say)
    done = build(work, stages, Deadline(args.minutes))
    close_at_exit()
    return 0 if done else UNFINISHED


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.exit(f"build: {error}")
