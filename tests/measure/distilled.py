"""How near one pass comes to the two passes of guidance, before and after stage `distill`.

    python -m animegamer_core train distill --recipe lora --dataset D --world W \\
        --teacher-guidance constant --out R
    python tests/measure/distilled.py R/distill.safetensors --world W --guidance constant

Held-out scenes of the Toybox, from their true representations and with the same noise: in two passes per step as by
the teacher, in one pass before distillation, and in one pass after it. PSNR is to the teacher's shots.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import torch

from animegamer_core.evaluate.estimates import fraction, motion_accuracy, psnr
from animegamer_core.evaluate.toybox.context import EvalContext, Sampling
from animegamer_core.evaluate.toybox.rows import SCORED
from animegamer_core.evaluate.toybox.run import FULL, EvalRun
from animegamer_core.runtime.device import choose_device
from animegamer_core.weights.adapters import open_with_adapters


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage_file", help="the file that stage distill wrote")
    parser.add_argument("--world", default="toybox")
    parser.add_argument("--guidance", default="constant", help="the teacher's (default %(default)s)")
    parser.add_argument("--shots", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, help="rows as JSON lines")
    args = parser.parse_args()

    device = choose_device(args.device)
    plain, taught = open_with_adapters(args.world, []), open_with_adapters(args.world, [args.stage_file], playing=True)
    plan = replace(FULL, shots=args.shots, true=args.shots)
    known = EvalRun(EvalContext(plain, device), plan, args.seed)
    teacher = None
    for name, world, guidance in (
        ("two passes", plain, args.guidance),
        ("one pass, untaught", plain, "distilled"),
        ("one pass, taught", taught, "distilled"),
    ):
        lab = EvalContext(world, device, sampling=Sampling(guidance=guidance, dtype=args.dtype))
        trial = known.with_context(lab)
        first_batch = slice(lab.batch)  # loads, and warms up at the size that is timed
        lab.shoot(
            trial.states[first_batch], trial.sources.values[first_batch], trial.seeds(len(trial.states))[first_batch]
        )
        begun = time.perf_counter()
        shots = trial.shots
        seconds = time.perf_counter() - begun
        teacher = shots if teacher is None else teacher
        seen, truth = lab.recognise(shots), trial.sources.labels
        row = {
            "row": name,
            "guidance": guidance,
            "shots": len(shots),
            "psnr": None if shots is teacher else round(psnr(shots, teacher), 2),
            "recognised": {head: round(fraction(seen[head] == truth[head]).value, 4) for head in SCORED},
            "acc_f": round(motion_accuracy(trial.asked_levels, trial.measured_levels).value, 4),
            "seconds": round(seconds, 2),
            "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else device,
        }
        print(json.dumps(row), flush=True)
        if args.out is not None:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    main()
