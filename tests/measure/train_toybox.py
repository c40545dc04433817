"""Trains the Toybox's engine and decoder on one or two GPUs while its games are drawn, as the shipped ones were.

    python tests/measure/train_toybox.py out/run --cards cuda:0 cuda:1 --until 480 1160 1500

The recipe (`animegamer_core.toybox.build`) draws its games first and trains on films of them. Here processes draw
games, the engine learns on the first card from pictures as they come, and the decoder on the last one from clips; from
the first time on, both cards train the decoder, on predictions too; then it is distilled, new probes are trained, and
the new world, in WORK/world, is calibrated. The shipped Toybox's VAE and encoder stay; its decoder is the start.
`--until`: seconds since the start at which engine, decoder and distillation end; with 0 for the engine, the shipped one
stays. Probes are trained if the shipped ones are not those of the recipe. Every part logs into WORK/log and
saves into WORK, the decoder every three minutes. Not collected by pytest.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import itertools
import math
import multiprocessing
import os
import queue
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import msgspec  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from torch import Tensor  # noqa: E402

from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.motion import motion_value  # noqa: E402
from animegamer_core.data.records import ClipRecord, GameRecord  # noqa: E402
from animegamer_core.evaluate.toybox.rows import _in_another_colour  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.probes import build_probes  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.recipe import FULL, MINIATURE  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.recipe import QUICK as QUICK_RECIPE  # noqa: E402
from animegamer_core.evaluate.toybox_recipe.stages import calibrate_world  # noqa: E402
from animegamer_core.model.engine import GameEngine  # noqa: E402
from animegamer_core.model.prompt import Levels  # noqa: E402
from animegamer_core.toybox.calibration import uncalibrated_table  # noqa: E402
from animegamer_core.toybox.dataset import OPENINGS, DatasetGames, _record, _with_adverb  # noqa: E402
from animegamer_core.toybox.drawing.draw import draw_frame, draw_shot  # noqa: E402
from animegamer_core.toybox.games import sample_game  # noqa: E402
from animegamer_core.toybox.probes import read_card  # noqa: E402
from animegamer_core.toybox.world import Scene  # noqa: E402
from animegamer_core.train import trainer as trainer_module  # noqa: E402
from animegamer_core.train.engine_learner import EngineLearner, PromptTable, add_predictions  # noqa: E402
from animegamer_core.train.few_steps import FewStepLearner  # noqa: E402
from animegamer_core.train.learners import DiffusionLearner  # noqa: E402
from animegamer_core.train.parts import WorldParts  # noqa: E402
from animegamer_core.train.stages import stage_config  # noqa: E402
from animegamer_core.train.trainer import Trainer  # noqa: E402
from animegamer_core.train.training_data import (  # noqa: E402
    TrainingData,
    add_encoder_features,
    add_latents,
    add_states,
    autocast,
    pictures,
)
from animegamer_core.weights import open_world  # noqa: E402

CLIPS, PICTURES = DatasetGames(3000, 0, first=40_000, unmatched_adverbs=0.8), DatasetGames(20_000, 60, first=100_000)
QUICK = DatasetGames(4, 0, first=40_000, unmatched_adverbs=0.8), DatasetGames(12, 4, first=100_000)
COUPLES = 60  # games of two turns that the engine is checked on: couples of two films, which training never shows
SHARD = 24  # games in a file of latents
ROOM = 400  # games of clips that wait for the VAE, at most
SAVED_EVERY = 180  # seconds


def main() -> None:
    """Start the processes, each of which is this program with a role, and wait for them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--cards", nargs="+", default=["cpu"], help="one or two devices")
    parser.add_argument("--until", nargs=3, type=float, default=(480, 1160, 1500))
    parser.add_argument("--batch", nargs=2, type=int, default=(512, 128), help="windows a step; clips a step and card")
    parser.add_argument("--go-on", action="store_true", help="train the shipped engine on, not one of random weights")
    parser.add_argument("--drawing", type=int, default=max(1, (os.cpu_count() or 1) - 6), help="processes that draw")
    parser.add_argument("--quick", action="store_true", help="a few games and steps, to test the program")
    parser.add_argument("--role", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        role, _, rank = args.role.partition(":")
        run = Run(args, int(rank or 0))
        ROLES[role](run)
        os._exit(0)  # threads may wait for files that never come
    for name in ("pictures", "clips", "latents", "log"):
        (args.work / name).mkdir(parents=True, exist_ok=True)
    (args.work / "start").write_text(repr(time.time()))

    running: list[subprocess.Popen[bytes]] = []

    def start(role: str) -> subprocess.Popen[bytes]:
        with (args.work / "log" / role.replace(":", "")).open("wb") as log:
            command = [sys.executable, *sys.argv, "--role", role]
            threads = {"OMP_NUM_THREADS": "1" if role == "draw" else "4"}
            running.append(subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **threads}))
        return running[-1]

    def done(*processes: subprocess.Popen[bytes]) -> None:
        if any([process.wait() for process in processes]):
            sys.exit(f"a process failed; look into {args.work}/log")

    try:
        start("draw")
        start("encode:1")
        decoders = [start("decode:1")] if len(args.cards) > 1 else []
        done(start("engine:0"))
        decoders.append(start("decode:0"))
        for rank in range(len(args.cards)):
            start(f"predict:{rank}")
        done(*decoders)
        for process in running:
            process.kill()  # those that draw, encode and predict
        done(start("distill:1"), start("probes:0"))
        done(start("finish:0"))
    finally:
        for process in running:
            process.kill()


class Run:
    """The settings of a process, and the shipped Toybox."""

    def __init__(self, args: argparse.Namespace, rank: int) -> None:
        self.work, self.quick, self.rank, self.cards = args.work, args.quick, min(rank, len(args.cards) - 1), args.cards
        self.device, self.drawing, self.batch = args.cards[self.rank], args.drawing, args.batch
        self.go_on = args.go_on
        self.ends = args.until
        self.clips, self.pictures = QUICK if args.quick else (CLIPS, PICTURES)
        self.couples = 4 if args.quick else COUPLES
        self.began = float((self.work / "start").read_text())
        self.world = open_world(ROOT / "animegamer_core" / "toybox" / "weights")

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.time() - self.began

    def say(self, *words: object) -> None:
        """Print a line with the time."""
        print(f"[{self.now:7.1f}]", *words, flush=True)

    def names(self, games: DatasetGames) -> list[str]:
        """The names of training games."""
        return [f"train-{number:06d}" for number in range(games.first, games.first + games.games)]

    def rate(self, began: float, end: float, lr: float) -> Callable[..., float]:
        """A learning rate that rises for 60 steps, and falls to 2 % by the time `end`."""

        def rate(config: object, step: int) -> float:
            done = min(1.0, max(0.0, (self.now - began) / max(1e-3, end - began)))
            return lr * min(1, (step + 1) / 60) * (0.02 + 0.98 * (1 + math.cos(math.pi * done)) / 2)

        return rate

    def scenes(self, name: str) -> Sequence[Scene]:
        """The scenes of a game."""
        split, number = name.split("-")
        if split == "couple":
            return sample_game(int(number), turns=2, split=split).scenes
        return DatasetGames(1, 1)._game(int(number), split)

    def records(self, name: str, values: Sequence[float], unmatched: float = 0.0) -> list[ClipRecord]:
        """The records of a game's clips with these measured motion values.

        Half of the pictures that open games have another colour than their words, so that an engine trusts the picture.
        """
        found, scenes = [], self.scenes(name)
        if name.startswith("train") and int(name.split("-")[1]) % (2 * OPENINGS) == 0:
            scenes = (_in_another_colour(scenes[0]), *scenes[1:])
        for turn, (scene, value) in enumerate(zip(scenes, values, strict=True)):
            record = _record(f"clips/{name}-{turn:02d}.mp4", scene, float(value))
            record = msgspec.structs.replace(record, motion_level=int(self.world.motion_table.level(float(value))))
            found.append(_with_adverb(record, scene, unmatched))
        return found

    def save(self, name: str, tensors: Mapping[str, Tensor]) -> None:
        """Write tensors as WORK/name.safetensors."""
        path = self.work / f"{name}.safetensors"
        save_file({key: value.detach().float().cpu().clone() for key, value in tensors.items()}, f"{path}.part")
        os.replace(f"{path}.part", path)
        self.say("saved", path.name)


def draw(run: Run) -> None:
    """Draw pictures and clips of games in many processes: pictures first, since the engine ends first."""
    pictures = [*(f"heldout-{number:06d}" for number in range(run.pictures.held_out))]
    pictures += [f"couple-{2_000_000 + number:06d}" for number in range(run.couples)]
    pictures = [] if run.ends[0] == 0 else pictures + run.names(run.pictures)
    clips, early = run.names(run.clips), len(pictures) // 3
    tasks = [*(("pictures", name) for name in pictures[:early])]
    rest, each = pictures[early:], -(-len(pictures) // len(clips))
    for index, name in enumerate(clips):
        tasks += [("clips", name), *(("pictures", own) for own in rest[each * index : each * (index + 1)])]
    started = time.time()
    with multiprocessing.get_context("spawn").Pool(run.drawing) as pool:
        for index, kind in enumerate(pool.imap_unordered(_drawn, ((run, *task) for task in tasks))):
            if index % 1000 == 0:
                run.say("drawn", index, kind, f"{time.time() - started:.0f} s")
    run.say("all drawn")


def _drawn(task: tuple[Run, str, str]) -> str:
    run, kind, name = task
    folder, scenes = run.work / kind, run.scenes(name)
    while kind == "clips" and len(os.listdir(folder)) > ROOM:
        time.sleep(1)
    shots = np.stack([draw_shot(scene) if kind == "clips" else draw_frame(scene, 0) for scene in scenes])
    values = np.array(
        [motion_value(shot) if kind == "clips" else scene.amplitude for shot, scene in zip(shots, scenes, strict=True)]
    )
    with (folder / f"{name}.part").open("wb") as file:
        np.savez(file, shots=shots, values=values)
    os.replace(folder / f"{name}.part", folder / f"{name}.npz")
    return kind


def _read(folder: Path, names: list[str]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    files = [np.load(folder / f"{name}.npz") for name in names]
    return [file["shots"] for file in files], [file["values"] for file in files]


@torch.no_grad()
def encode(run: Run) -> None:
    """Encode clips as they come: latents and true representations, in files of SHARD games each."""
    parts = WorldParts.load(run.world)
    decoder, encoder = parts.of("decoder").to(run.device), parts.of("encoder").to(run.device)
    waiting, folder, number = run.names(run.clips), run.work / "clips", 0
    while waiting:
        ready = [name for name in waiting if (folder / f"{name}.npz").is_file()][:SHARD]
        if len(ready) < min(SHARD, len(waiting)):
            time.sleep(0.5)
            continue
        clips, values = _read(folder, ready)
        rows = [record for name, own in zip(ready, values, strict=True) for record in run.records(name, own, 0.8)]
        turns = tuple(rows)
        data = TrainingData(DatasetFolder(run.work, turns, ()), {"frames": torch.from_numpy(np.concatenate(clips))})
        data = add_states(add_encoder_features(add_latents(data, decoder), encoder), encoder)
        shard = {name: data.store[name].cpu() for name in ("latents", "states")}
        path = run.work / "latents" / f"{number:05d}.pt"
        torch.save({**shard, "sizes": list(map(len, clips)), "records": msgspec.json.encode(rows)}, f"{path}.part")
        os.replace(f"{path}.part", path)
        for name in ready:
            (folder / f"{name}.npz").unlink()
            waiting.remove(name)
        number += 1
        run.say("encoded", number * SHARD, "games")


class Pictures:
    """The engine's data, which grows while it trains: what `EngineLearner` asks of TrainingData."""

    def __init__(self, run: Run, parts: WorldParts) -> None:
        self.run, self.encoder, self.engine = run, parts.of("encoder").to(run.device), parts.of("engine")
        scenes = run.scenes("train-000000")  # so that the engine's table has turns when it is made
        self.folder = SimpleNamespace(turns=run.records("train-000000", [scene.amplitude for scene in scenes]))
        self.windows: dict[str, list[tuple[int, ...]]] = {"train": [], "heldout": [], "couple": []}
        self._blocks: dict[Levels, tuple[Tensor, Tensor]] = {}
        state, most = run.world.spec.state, 11 * (run.pictures.games + run.pictures.held_out + run.couples)
        self.states = torch.zeros(most, state.tokens, state.width, dtype=torch.half, device=run.device)
        self.count, self.ready = 0, queue.Queue(4)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        """Read finished files, without end."""
        folder, seen = self.run.work / "pictures", set[str]()
        while True:
            names = [name for name in os.listdir(folder) if name.endswith(".npz") and name not in seen][:64]
            seen.update(names)
            games = [name.removesuffix(".npz") for name in names]
            if not games:
                time.sleep(0.5)
                continue
            shots, values = _read(folder, games)
            rows = [self.run.records(name, own) for name, own in zip(games, values, strict=True)]
            flat = [record for own in rows for record in own]
            pieces = [self.engine.prompt((), record.instruction) for record in flat]
            self.ready.put((games, list(map(len, rows)), flat, torch.from_numpy(np.concatenate(shots)), pieces))

    @torch.no_grad()
    def take(self, table: PromptTable) -> None:
        """Encode the next pictures that were read, and add their turns to the table."""
        games, sizes, records, shots, pieces = self.ready.get()
        with autocast(self.run.device):
            image = self.encoder.image_features(pictures(shots.to(self.run.device)))
        text = self.encoder.text_features(self.encoder.text_ids([record.motion_text for record in records]))
        self.states[self.count : self.count + len(records)] = self.encoder.mix(text.float(), image.float()).half()
        for record, piece in zip(records, pieces, strict=True):
            levels = table._levels(record)
            self._blocks.setdefault(levels, table._block(levels) if levels not in self._blocks else None)
            table._blocks.append(self._blocks[levels])
            table._scenes.append((piece.ids_L[1:], piece.query_L[1:]))
        for name, size in zip(games, sizes, strict=True):
            self.windows[name.split("-")[0]].append(tuple(range(self.count, self.count + size)))
            self.count += size

    def gather(self, name: str, rows: Tensor, device: object) -> Tensor:
        """(B, N, D): true representations."""
        return self.states[rows.to(self.states.device)]

    def clips(self, held_out: bool = False) -> tuple[int, ...]:
        """None, since losses on held-out games are printed by `engine`."""
        return ()


def engine(run: Run) -> None:
    """Train the engine on the pictures so far, and print its error in games that it never saw."""
    parts, end = WorldParts.load(run.world), run.ends[0]
    if end == 0:
        return run.save("engine", parts.engine.state_dict())
    torch.manual_seed(0)
    if not run.go_on:
        parts = replace(parts, engine=GameEngine(run.world.spec, parts.engine.tokenizer, parts.engine.profile))
    change = {"batch": 4 if run.quick else run.batch[0], "lr": 1.5e-3}
    config = replace(stage_config("predict"), **(FULL.changes["predict"] | change))
    data = Pictures(run, parts)
    learner = EngineLearner(config, parts.engine, data)
    table = learner._table
    table._scenes, table._blocks = [], []
    table._past_blocks = table._blocks  # a list that grows; the profile shows past states
    while not data.windows["train"] or data.count < (40 if run.quick else 6000):
        data.take(table)

    def windows(step: int) -> Tensor:
        draw, past = (
            random.Random(f"windows {step}"),
            random.Random(f"lengths {step // 5}").sample(range(5), 5)[step % 5],
        )
        games, found = data.windows["train"], []
        while len(found) < config.batch:
            game = draw.choice(games)
            end = draw.randrange(past, len(game))
            found.append(game[end - past : end + 1])
        return torch.tensor(found)

    learner.sampler = lambda *_: SimpleNamespace(batch=windows)
    trainer_module.learning_rate = run.rate(run.now, end, config.lr)
    trainer, losses = Trainer("predict", config, learner, data, torch.device(run.device)), []

    @torch.no_grad()
    def check() -> dict[str, float]:
        found = {}
        with trainer.averaged_weights(), autocast(run.device):
            for split, past in (("heldout", 0), ("heldout", 4), ("couple", 0), ("couple", 1)):
                ends = [game[at - past : at + 1] for game in data.windows[split] for at in range(past, len(game), 3)]
                states = data.states[torch.tensor(ends, device=run.device)].float()
                prompts = [table.prompt(clips, answered=False) for clips in ends]
                error = learner.engine(prompts, list(states[:, :-1])).states_BND.float() - states[:, -1]
                found[f"{split} after {past}"] = round(error.square().mean().item(), 4)
        return found

    while run.now < end and not (run.quick and trainer.state.step >= 3):
        if not data.ready.empty():
            data.take(table)
        losses.append(trainer.take_step()["mse"])
        if trainer.state.step % (2 if run.quick else 100) == 0:
            run.say("step", trainer.state.step, torch.stack(losses).mean().item(), check(), data.count, "turns")
            losses.clear()
    with trainer.averaged_weights():
        run.save("engine", learner.engine.state_dict())


@torch.no_grad()
def predict(run: Run) -> None:
    """What the trained engine predicts for every clip, as clips are encoded; without end."""
    world, number = run.world, run.rank
    model = world.load_engine("cpu", torch.float32)
    model.load_state_dict(load_file(run.work / "engine.safetensors"))
    model.eval().to(run.device)
    while True:
        path = run.work / "latents" / f"{number:05d}.pt"
        if not path.is_file():
            time.sleep(0.5)
            continue
        shard = torch.load(path, weights_only=True)
        turns = tuple(msgspec.json.decode(shard["records"], type=list[ClipRecord]))
        ends = np.cumsum([0, *shard["sizes"]]).tolist()
        games = tuple(GameRecord(str(at), tuple(range(at, end))) for at, end in itertools.pairwise(ends))
        data = TrainingData(DatasetFolder(run.work, turns, games), {"states": shard["states"].to(run.device)})
        torch.save(add_predictions(data, model, window=4).store["predicted"].cpu(), path.with_suffix(".part"))
        os.replace(path.with_suffix(".part"), path.with_suffix(".predicted"))
        run.say("predicted", number)
        number += len(run.cards)


class Clips:
    """The decoder's data, which grows: what `DiffusionLearner` asks of TrainingData."""

    def __init__(self, run: Run) -> None:
        self.folder, self.device, self.count, self.ends = run.work / "latents", run.device, 0, [0]
        spec, most = run.world.spec, 11 * run.clips.games
        state = (spec.state.tokens, spec.state.width)
        rows = {"latents": (2, *spec.decoder.latent_shape), "states": state, "predicted": state}
        self.store = {name: torch.zeros(most, *row, dtype=torch.half, device=run.device) for name, row in rows.items()}
        self.motion, self.records, self.predicted = torch.zeros(most), list[ClipRecord](), 0

    def files(self, suffix: str) -> int:
        """How many files of this kind there are, from the first one without a gap."""
        return next(number for number in itertools.count() if not (self.folder / f"{number:05d}.{suffix}").is_file())

    def load(self, until: int) -> None:
        """Read the files of latents before this one."""
        for number in range(len(self.ends) - 1, until):
            shard = torch.load(self.folder / f"{number:05d}.pt", weights_only=True)
            records = msgspec.json.decode(shard["records"], type=list[ClipRecord])
            rows = slice(self.ends[-1], self.ends[-1] + len(records))
            for name in ("latents", "states"):
                self.store[name][rows] = shard[name].to(self.device)
            self.motion[rows] = torch.tensor([record.motion_value for record in records])
            self.records += records
            self.ends.append(rows.stop)
        self.count = self.ends[-1]

    def load_predicted(self, until: int) -> None:
        """Read the files before this one and their predictions; clips without one are left out from now on."""
        self.load(until)
        for number in range(self.predicted, until):
            rows = slice(self.ends[number], self.ends[number + 1])
            path = self.folder / f"{number:05d}.predicted"
            self.store["predicted"][rows] = torch.load(path, weights_only=True).to(self.device)
        self.predicted, self.count = until, self.ends[until]

    def gather(self, name: str, rows: Tensor, device: object) -> Tensor:
        """A feature's rows."""
        return self.store[name][rows.to(self.device)]

    def clips(self, held_out: bool = False) -> tuple[int, ...]:
        """None, since there are no losses on held-out games."""
        return ()


def decoder(run: Run) -> None:
    """Train the decoder: on the last card alone on true representations, then on all cards on predicted ones too.

    The gradients of two cards are averaged by hand, so that the first one can join a run that is under way.
    """
    parts, both, end = WorldParts.load(run.world), len(run.cards) > 1, run.ends[1]
    batch = 2 if run.quick else run.batch[1]
    change = {"batch": batch, "lr": 8e-4, "ema": 0.999, "true_states": 1.0, "compile": not run.quick}
    config = replace(stage_config("adapt"), **(FULL.changes["adapt"] | change))
    data, least = Clips(run), 20 if run.quick else 2000
    learner = DiffusionLearner(config, parts.of("decoder"), None)
    learner.idle, parts.decoder.vae = (), None
    cards, joined, saved = 1, False, run.now

    def rows(step: int) -> Tensor:
        draw = torch.Generator().manual_seed(step)
        return torch.randint(data.count, (cards * batch,), generator=draw)

    learner.sampler = lambda *_: SimpleNamespace(batch=rows)
    while data.count < least:
        data.load(data.files("pt"))
        time.sleep(0.2)
    trainer = Trainer("adapt", config, learner, data, torch.device(run.device))
    trainer_module.learning_rate = run.rate(run.now, end, config.lr)
    clip = torch.nn.utils.clip_grad_norm_

    def averaged(parameters: list[torch.nn.Parameter], most: float) -> Tensor:
        if cards > 1:
            gradients = [own.grad for own in parameters]
            flat = torch._utils._flatten_dense_tensors(gradients)
            dist.all_reduce(flat)
            torch._foreach_copy_(gradients, list(torch._utils._unflatten_dense_tensors(flat / cards, gradients)))
        return clip(parameters, most)

    torch.nn.utils.clip_grad_norm_ = averaged

    def load_predicted() -> None:
        """Read the predictions that every card finds."""
        found = torch.tensor(data.files("predicted"), device=run.device)
        if cards > 1:
            dist.all_reduce(found, dist.ReduceOp.MIN)
        data.load_predicted(int(found))

    def join() -> None:
        """All cards go on with the weights, averages and moments of the last one."""
        nonlocal cards
        learner.settings = replace(config, true_states=0.5)
        if both:
            backend = "gloo" if run.device == "cpu" else "nccl"
            dist.init_process_group(backend, f"file://{run.work}/store", rank=run.rank, world_size=2)
            values = [*trainer.state.parameters.values(), *trainer.state.average.values()]
            for optimizer in trainer.state.optimizers:
                for own in (own for group in optimizer.param_groups for own in group["params"]):
                    values += [value for _, value in sorted(optimizer.state[own].items()) if torch.is_tensor(value)]
            values.append(torch.tensor([trainer.state.step], dtype=torch.double))
            for value in values:
                there = value.detach().to(run.device).contiguous()
                dist.broadcast(there, 1)
                value.data.copy_(there)
            trainer.state.step, cards = int(values[-1]), 2
            trainer.processes = SimpleNamespace(process_index=run.rank, num_processes=2)
            trainer.config = replace(config, batch=2 * batch)
        load_predicted()
        run.say("joined with", data.count, "clips at step", trainer.state.step)

    def enough() -> bool:
        found = data.files("predicted")
        return found > 0 and found >= 0.9 * data.files("pt")

    if both and run.rank == 0:
        trainer.take_step()  # compiles, and makes the moments that `join` fills
        (run.work / "ready").touch()
    losses: list[Tensor] = []
    while True:
        if not joined and enough() and (not both or (run.work / "ready").is_file()):
            join()
            joined = True
        if both and run.rank == 0 and not joined:
            if run.now > end:
                return
            time.sleep(0.2)
            continue
        over = run.now > end or (run.quick and joined and len(losses) > 2)
        if cards > 1:
            stop = torch.tensor([float(over)], device=run.device)
            dist.all_reduce(stop)
            over = bool(stop.item())
        if over:
            break
        if not joined:
            data.load(min(data.files("pt"), len(data.ends)))
        elif trainer.state.step % 100 == 0:
            load_predicted()
        losses.append(trainer.take_step()["loss"])
        if len(losses) >= 100:
            run.say("step", trainer.state.step, torch.stack(losses).mean().item(), data.count, "clips")
            losses.clear()
        if run.rank == len(run.cards) - 1 and run.now > saved + SAVED_EVERY:
            with trainer.averaged_weights():
                run.save("teacher", parts.decoder.transformer.state_dict())
            saved = run.now
    if run.rank == len(run.cards) - 1:
        with trainer.averaged_weights():
            run.save("teacher", parts.decoder.transformer.state_dict())
    run.say("ends at step", trainer.state.step)


def distill(run: Run) -> None:
    """Few-step distillation by the recipe's stage, as far as the time goes; then the student and the mixture."""
    parts, data = WorldParts.load(run.world), Clips(run)
    data.load_predicted(data.files("predicted"))
    own = parts.decoder.transformer
    own.load_state_dict(load_file(run.work / "teacher.safetensors"))
    turns = tuple(data.records)
    stores = {name: rows[: len(turns)] for name, rows in data.store.items()}
    change = FULL.changes["distill"] | (MINIATURE | {"steps": 4, "batch": 2} if run.quick else {})
    config = replace(stage_config("distill"), **change, minutes=max(0.01, (run.ends[2] - run.now) / 60))
    folder = DatasetFolder(run.work, turns, ())
    learner = FewStepLearner(config, parts.decoder)
    trainer = Trainer("distill", config, learner, TrainingData(folder, stores), torch.device(run.device))
    while trainer.state.step < config.steps and run.now < run.ends[2]:
        losses = trainer.take_step()
        if trainer.state.step % 50 == 0:
            run.say("step", trainer.state.step, {name: round(value.item(), 5) for name, value in losses.items()})
    with trainer.averaged_weights():
        run.save("student", own.state_dict())


def probes(run: Run) -> None:
    """Train the probes of the new world on true clips, if the shipped ones are not those of the recipe."""
    world, recipe = run.work / "world", (QUICK_RECIPE if run.quick else FULL).probes
    shutil.copytree(run.world.folder, world, dirs_exist_ok=True)
    if read_card(world)["facts"]["recipe"] != asdict(recipe):
        build_probes(world, recipe, run.device, run.drawing)


def finish(run: Run) -> None:
    """The new world: the engine, the mixture of teacher and student, calibrated, in 8 bits."""
    parts = WorldParts.load(run.world).in_memory()
    engine, teacher, student = (
        load_file(run.work / f"{name}.safetensors") for name in ("engine", "teacher", "student")
    )
    mixed = {name: torch.lerp(value, student[name], FULL.student) for name, value in teacher.items()}
    parts.of("engine").load_state_dict(engine)
    parts.decoder.transformer.load_state_dict(mixed)
    world = open_world(run.work / "world")
    world = WorldParts(parts.spec, engine=parts.engine, decoder=parts.decoder).save(world, torch.float16)
    scenes = [sample_game(number).scenes[0] for number in range(1 if run.quick else FULL.calibrated_on)]
    run.say(calibrate_world(world, uncalibrated_table(world), scenes, run.device))


ROLES = {
    **{"draw": draw, "encode": encode, "engine": engine, "predict": predict, "decode": decoder},
    **{"distill": distill, "probes": probes, "finish": finish},
}

if __name__ == "__main__":
    main()
