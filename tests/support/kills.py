"""Work that is killed at random moments, in a process that is forked so that it need not import everything again."""

import multiprocessing
import os
import random
import signal
import time
from pathlib import Path


def forked(work, log: Path, seconds: float | None = None) -> bool:
    """Whether the work, in a process of its own, was killed so many seconds after its start; None lets it end.

    AssertionError with what it printed if it failed.
    """
    child = multiprocessing.get_context("fork").Process(target=_run, args=(work, log))
    child.start()
    if seconds is not None:
        time.sleep(seconds)
        child.kill()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL), log.read_text()[-3000:]
    return child.exitcode != 0


def _run(work, log: Path) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    work()


def kill_often(begin, work, finished, check, log: Path, kills: int, seed: int) -> None:
    """Kill the work so many times at random moments, and let it end between where it comes that far.

    begin(): starts anew, called first and after an end. finished(): what is done so far, which may never get less.
    check(): fails unless an end is that of work that nobody killed; every end is checked.
    """
    moments, rng = 0, random.Random(seed)
    begin()
    begun = time.monotonic()
    forked(work, log)
    whole = time.monotonic() - begun
    check()
    begin()
    while moments < kills:
        before = finished()
        if forked(work, log, rng.uniform(0, whole / 3)):
            moments += 1
            assert finished() >= before, f"kill {moments}, seed {seed}: something finished was lost"
        else:
            check()
            begin()
    forked(work, log)
    check()
