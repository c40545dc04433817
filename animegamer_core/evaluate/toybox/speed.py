"""Measures how long playing takes on a CPU, in a new process with two threads.

Run as a module it is that process: it plays, prints one line of json and ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

THREADS = 2
LIMIT_S = 600
MODULE = "animegamer_core.evaluate.toybox.speed"  # not __name__, which is longer when ComfyUI loads the package


@dataclass(frozen=True)
class Speed:
    """turns: seconds of each turn (prediction, shot at default steps, clip written). loading: seconds to load engine
    and decoder, after imports. first_prediction: seconds from the process's start. memory: peak MB, None if the system
    does not report it.
    """

    turns: list[float]
    loading: float
    first_prediction: float
    memory: float | None


def measure_speed(world: Path, instructions: Sequence[str]) -> Speed:
    """Play the instructions in a new process; RuntimeError with its error output if it fails or takes too long."""
    environment = {**os.environ, "OMP_NUM_THREADS": str(THREADS), "MKL_NUM_THREADS": str(THREADS)}
    command = [sys.executable, "-m", MODULE, str(world.resolve()), repr(time.time()), *instructions]
    root = Path(__file__).resolve().parents[3]
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise RuntimeError(f"the timed process took more than {LIMIT_S} s for {len(instructions)} turns") from error
    if done.returncode:
        raise RuntimeError(f"the timed process failed with status {done.returncode}: {done.stderr.strip()[-500:]}")
    return Speed(**json.loads(done.stdout.strip().splitlines()[-1]))


def _timed(folder: str, started: float, instructions: Sequence[str]) -> Speed:
    """Load and play in this process. started: time.time() when the process was started."""
    import torch

    from ...checkpoint import open_world
    from ...media.video import clip_suffix, to_uint8, write_clip
    from ...model.decoder import ShotDecoder  # noqa: F401  imported now, so that `loading` excludes imports
    from ...model.engine import GameEngine  # noqa: F401
    from ...state import GameSession

    torch.set_num_threads(THREADS)
    begun = time.perf_counter()
    world = open_world(folder)
    engine, decoder = world.load_engine(), world.load_decoder()
    loading = time.perf_counter() - begun
    session, seconds, first = GameSession(), [], 0.0
    with TemporaryDirectory() as clips:
        for number, instruction in enumerate(instructions):
            begun = time.perf_counter()
            session = session.step(instruction, engine.predict(session.past(), instruction))
            first = first or time.time() - started
            state = session.turns[-1].state
            frames = decoder.shoot(state.representation, world.motion_table.value(state.motion), seed=number)
            write_clip(Path(clips) / f"{number}{clip_suffix()}", to_uint8(frames), world.spec.decoder.fps)
            seconds.append(time.perf_counter() - begun)
    return Speed(seconds, loading, first, _peak_memory())


def _peak_memory() -> float | None:
    """The peak memory of this process in MB (10^6 bytes)."""
    status = Path("/proc/self/status")
    if status.is_file():
        # Linux's ru_maxrss also counts what the parent held when it started this process.
        line = next(line for line in status.read_text(encoding="ascii").splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024 / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asdict(_timed(sys.argv[1], float(sys.argv[2]), sys.argv[3:]))) + "\n")
