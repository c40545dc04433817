"""What a second GPU saves, at the published sizes with random weights: one row for each measurement.

    python tests/measure/two_gpus.py --out rows.jsonl
    python tests/measure/two_gpus.py --with fused blocks --out rows.jsonl

step: seconds of a guided step. engine: seconds of a turn's prediction, in one pass over all replies and, to compare,
with a pass for each number. turn: seconds of a whole turn without its VAE. Each is a median; drift is the root
mean square difference from one plain GPU, as a fraction of its latents' root mean square.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from animegamer_core.evaluate.benchmark.run import drifts
from animegamer_core.evaluate.benchmark.turn import INSTRUCTION, past_turns, random_models, torch_defaults
from animegamer_core.game.state import Turn
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.runtime.cfg_parallel import enable_cfg_parallel
from animegamer_core.runtime.optimizations import optimize
from animegamer_core.spec import PROFILES, get_spec


def wait() -> None:
    """Wait until every GPU is done."""
    for index in range(torch.cuda.device_count()):
        torch.cuda.synchronize(index)


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The median of some runs after a warm-up run."""
    taken = []
    for _ in range(repeats + 1):
        wait()
        begun = time.perf_counter()
        work()
        wait()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])


def shoot(decoder: ShotDecoder, steps: int, guidance: str = "constant") -> Tensor:
    """Latents of one shot, whose steps are all guided (or, `distilled`, none)."""
    state = past_turns(decoder.spec)[0].state.representation
    return decoder.sample(state[None], torch.tensor([10.0]), [1], steps=steps, guidance=guidance)


@torch.inference_mode()
def one_by_one(engine: GameEngine, past: tuple[Turn, ...]) -> None:
    """A prediction with one pass over the prompt, then one for each number after the first."""
    hidden_LH, cache = engine._read(engine.prompt(past, INSTRUCTION), engine.past_states(past))
    engine.project_out(hidden_LH[-engine.spec.state.tokens :]).float().cpu()
    for _ in range(3):
        int(engine._logits(hidden_LH).argmax())
        hidden_LH = engine._feed([5, 6, 7], cache)
    int(engine._logits(hidden_LH).argmax())


def turns(engine: GameEngine, decoder: ShotDecoder, steps: int, count: int) -> None:
    """Some turns."""
    for _ in range(count):
        state = engine.predict(past_turns(engine.spec), INSTRUCTION)
        decoder.sample(state.representation[None], torch.tensor([10.0]), [1], steps=steps).cpu()


def measure(args: argparse.Namespace, row: Callable[..., None]) -> None:
    """All rows."""
    spec, dtype = get_spec(args.spec), torch.float32 if args.device == "cpu" else torch.bfloat16
    engine, decoder = random_models(spec, PROFILES["paper"], torch.device(args.device), dtype)
    with torch_defaults(torch.device(args.second), dtype):
        other = GameEngine(spec, engine.tokenizer, PROFILES["paper"]).eval()
    past, steps = past_turns(spec), args.steps
    for name, model in (("own", engine), ("second", other)):
        row("engine", name, "all replies at once", seconds(partial(model.predict, past, INSTRUCTION), 5))
    row("engine", "own", "one pass a number", seconds(partial(one_by_one, engine, past), 5))
    optimize(decoder, args.optimizations)
    alone = shoot(decoder, 10)
    row("step", "own", "guided", seconds(partial(shoot, decoder, steps), args.repeats) / steps)
    row("step", "own", "one half", seconds(partial(shoot, decoder, steps, "distilled"), args.repeats) / steps)
    whole = spec.decoder.steps
    row("turn", "own", "whole", seconds(partial(turns, engine, decoder, whole, 2), 1) / 2)
    del decoder
    _, decoder = random_models(spec, PROFILES["paper"], torch.device(args.device), dtype)
    plain = shoot(decoder, 10)
    enable_cfg_parallel(decoder, args.second)
    optimize(decoder, args.optimizations)  # both copies alike
    taken = seconds(partial(shoot, decoder, steps), args.repeats) / steps
    row("step", "both", "guided in halves", taken, drift=drifts((shoot(decoder, 10),), (plain,))[0])
    row("turn", "both", "whole", seconds(partial(turns, engine, decoder, whole, 2), 1) / 2)
    assert alone.isfinite().all()


def main() -> None:
    """Print and keep the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spec", default="release")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--second", default="cuda:1")
    parser.add_argument("--with", nargs="+", default=(), dest="optimizations", metavar="NAME")
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()

    def row(part: str, device: str, how: str, taken: float, **more: float) -> None:
        values = {
            "part": part,
            "device": device,
            "how": how,
            "seconds": taken,
            "with": list(args.optimizations),
            **more,
        }
        print(json.dumps(values), flush=True)
        if args.out is not None:
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(values) + "\n")

    measure(args, row)


if __name__ == "__main__":
    sys.exit(main())
