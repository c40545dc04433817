"""Run by test_train_many.py: stages of tiny worlds in groups of processes, as `accelerate launch` would start them.

They are forked from this process, which saves each of them seconds of imports. The job file has the
jobs of each kind. A job is [folder, stage, changes, steps to take], or {"command": [...]} for the command line.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import sys
import traceback
from multiprocessing.connection import wait
from pathlib import Path
from unittest import mock

import torch
from test_train import TINY, new_parts, small_world, tiny_config

from animegamer_core.cli.options import parse
from animegamer_core.cli.train import Options
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.train.distributed import processes
from animegamer_core.train.run import prepare, train_stage
from animegamer_core.train.training_data import TrainingData

KINDS = {"ddp": {}, "fsdp2": {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}}


def launch(kind: str, jobs: list, folder: Path) -> None:
    """Do the jobs below `folder` in two processes; AssertionError where one fails."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    group = [context.Process(target=member, args=(kind, rank, port, jobs, folder)) for rank in (0, 1)]
    for process in group:
        process.start()
    running = {process.sentinel: process for process in group}
    while running:
        for sentinel in wait(list(running)):
            if running.pop(sentinel).exitcode:
                for other in running.values():  # they would wait for this one
                    other.kill()
                raise AssertionError(f"a process of {kind} failed; see above")


def member(kind: str, rank: int, port: int, jobs: list, folder: Path) -> None:
    """One process of a group."""
    placed = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in placed.items()}, MASTER_ADDR="127.0.0.1", **KINDS[kind])
    try:
        with (folder / f"said-{rank}.txt").open("w") as sys.stdout:
            work(jobs, folder)
        torch.distributed.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def work(jobs: list, folder: Path) -> None:
    """Do the jobs below `folder`."""
    turns, games, frames = small_world()
    data = TrainingData(DatasetFolder(folder, turns, games), {"frames": frames})
    ready = prepare("adapt", tiny_config("adapt"), new_parts(data), data, torch.device("cpu"))
    for job in jobs:
        if isinstance(job, list):
            stage_run(ready, folder, *job)
        else:
            command(job["command"], folder)


def stage_run(ready: TrainingData, folder: Path, name: str, stage: str, changes: dict, steps: int) -> None:
    """Take some steps of a stage, or all of them where `steps` is 0."""
    changes = {key: tuple(value) if isinstance(value, list) else value for key, value in changes.items()}
    parts, taken = new_parts(ready), []
    for module in parts.encoder.text_tower.modules():  # dropout's masks are each process' own
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            module.dropout = 0.0

    def enough() -> bool:
        taken.append(None)
        is_last = processes().process_index == processes().num_processes - 1  # one asks, and all stop
        return is_last and len(taken) == steps

    result = train_stage(stage, tiny_config(stage, **changes), parts, ready, folder / name, should_stop=enough)
    if result and processes().is_main_process:
        models = result[0].models.values()
        bare = [name for model in models for name, value in model.state_dict().items() if value.is_meta]
        assert not bare, f"without memory: {bare}"


def command(words: list[str], folder: Path) -> None:
    """The command line; clips that this process reads are noted in a file of its own."""
    read, reading = [], DatasetFolder.frames
    with (
        mock.patch.dict("animegamer_core.spec.SPECS", {"tiny16": TINY}),
        mock.patch.object(DatasetFolder, "frames", lambda self, index: read.append(index) or reading(self, index)),
    ):
        parse(Options, words, "train", "").run()
    (folder / f"read-{processes().process_index}.json").write_text(json.dumps(read))


if __name__ == "__main__":
    torch.set_num_threads(1)
    file = Path(sys.argv[1])
    for kind, jobs in json.loads(file.read_text()).items():
        launch(kind, jobs, file.parent / kind)
