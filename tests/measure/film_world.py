"""Shows what a world that was trained on a real film draws, next to the truth, and how much of it is memory.

    python tests/measure/film_world.py --dataset films/bunny/dataset --world worlds/bunny --out out/bunny_world

Not collected by pytest. Plays games of the dataset from their instructions (`--games` of each split), draws every shot,
and compares it with the true clip, with what the VAE and the decoder make of the true clip, and with the training clip
that looks most like it. `--instructions FILE`: also one game with a turn for each of its lines. Writes report.md and
pictures: of each shot the frame in the middle.
"""

# ruff: noqa: T201

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from numpy.typing import NDArray  # noqa: E402
from PIL import Image  # noqa: E402
from torch import nn  # noqa: E402

from animegamer_core.data.dataset import DatasetFolder  # noqa: E402
from animegamer_core.data.motion import motion_value  # noqa: E402
from animegamer_core.data.records import ClipRecord, GameRecord  # noqa: E402
from animegamer_core.evaluate.estimates import psnr  # noqa: E402
from animegamer_core.evaluate.toybox.context import Clips, EvalContext, Script, play_games  # noqa: E402
from animegamer_core.evaluate.world.scores import BACKEND, flow_of  # noqa: E402
from animegamer_core.game.state import GameState  # noqa: E402
from animegamer_core.train.training_data import pictures  # noqa: E402
from animegamer_core.weights import open_world  # noqa: E402

SPLITS = ("held out", "trained on")
LOOK = 4  # pixels along each side that are averaged before two clips are compared by how they look
CAST_LEAST = 8  # training clips that show a character, for the probe to learn it
PROBE_STEPS = 600


@dataclass(frozen=True)
class Shots:
    """M turns of one split. played: as the engine plays; decoded: from true representations; rebuilt: by the VAE."""

    turns: tuple[ClipRecord, ...]
    states: tuple[GameState, ...]
    true: Clips
    rebuilt: Clips
    decoded: Clips
    played: Clips
    nearest: NDArray[np.int64]


class Film:
    """A dataset and the world that was trained on it."""

    def __init__(self, dataset: Path, world: str) -> None:
        self.dataset = DatasetFolder.open(dataset)
        self.world = open_world(world)
        self.context = EvalContext(self.world, "cuda" if torch.cuda.is_available() else "cpu", on_progress=_progress)

    def clips(self, numbers: Sequence[int]) -> Clips:
        """Clips of the dataset."""
        return np.stack([self.dataset.frames(number) for number in numbers])

    @cached_property
    def trained(self) -> Clips:
        """The clips that were trained on."""
        return self.clips(self.dataset.training_clips)

    def nearest(self, clips: Clips, without: Sequence[int] | None = None) -> NDArray[np.int64]:
        """(M,) the place among the training clips of the one that looks most like each clip; never its own."""
        small, known = _look(clips), _look(self.trained)
        distance = ((small[:, None] - known[None]) ** 2).mean((2, 3, 4, 5))
        if without is not None:
            places = {number: place for place, number in enumerate(self.dataset.training_clips)}
            for row, number in enumerate(without):
                if number in places:
                    distance[row, places[number]] = np.inf
        return distance.argmin(1)

    @torch.inference_mode()
    def shots(self, games: Sequence[GameRecord]) -> Shots:
        """All turns of some games."""
        states, turns = [], []
        for game in games:
            rows = [self.dataset.turns[number] for number in game.clips]
            (played,) = play_games(self.context.engine, [Script(tuple(row.instruction for row in rows))], 4)
            states += [turn.state for turn in played]
            turns += rows
        numbers = [self.dataset.turns.index(turn) for turn in turns]
        true = self.clips(numbers)
        texts = [turn.motion_text for turn in turns]
        firsts = pictures(torch.from_numpy(true[:, 0]))
        known = torch.cat(
            [self.context.encoder([text], firsts[row : row + 1]).float() for row, text in enumerate(texts)]
        )
        decoded = self.context.shoot(known, [turn.motion_value for turn in turns], numbers)
        played = self.draw(states, numbers)
        return Shots(
            tuple(turns),
            tuple(states),
            true,
            self.context.reconstruct(true),
            decoded,
            played,
            self.nearest(played),
        )

    def levels(self, clips: Clips) -> list[int]:
        """The motion level of each clip, measured as the dataset was."""
        if self.world.provenance.get(BACKEND, "dis") != "dis":
            raise ValueError("the dataset's motion was not measured with OpenCV's DIS, which this script uses")
        left_out = flow_of(self.world).left_out
        return [int(self.world.motion_table.level(motion_value(clip, **left_out))) for clip in clips]

    def draw(self, states: Sequence[GameState], seeds: Sequence[int]) -> Clips:
        """The shots of predicted states, at the values of their motion levels."""
        values = [self.world.motion_table.value(state.motion) for state in states]
        return self.context.shoot([state.representation for state in states], values, seeds)


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--world", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--games", type=int, default=3, help="games of each split (default %(default)s)")
    parser.add_argument("--instructions", type=Path, help="a text file: one turn a line")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    film, lines = Film(args.dataset, args.world), []
    probe, names = train_probe(film)
    for split in SPLITS:
        games = [game for game in film.dataset.games if game.held_out == (split == "held out")][: args.games]
        shots = film.shots(games)
        lines += report(film, split, shots, probe, names)
        columns = (shots.true, shots.rebuilt, shots.decoded, shots.played, film.trained[shots.nearest])
        save_rows(args.out / f"{split.replace(' ', '_')}.png", columns)
        print("\n".join(lines), flush=True)
    if args.instructions:
        texts = tuple(args.instructions.read_text(encoding="utf-8").splitlines())
        states = [play_games(film.context.engine, [Script((text,))], 4)[0][0].state for text in texts]
        drawn = film.draw(states, range(len(texts)))
        nearest = film.nearest(drawn)
        save_rows(args.out / "instructions.png", (drawn, film.trained[nearest]))
        np.savez_compressed(args.out / "instructions.npz", drawn=drawn)
        lines += [f"| {text} | {astuple(state.change)} |" for text, state in zip(texts, states, strict=True)]
    (args.out / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def report(film: Film, split: str, shots: Shots, probe: nn.Module, names: Sequence[str]) -> list[str]:
    """The figures of one split."""
    measured, true_levels = film.levels(shots.played), film.levels(shots.true)
    error = [
        np.abs(np.subtract(astuple(state.change), astuple(turn.change)))
        for state, turn in zip(shots.states, shots.turns, strict=True)
    ]
    labels = labels_of(shots.turns, names)
    near = film.trained[shots.nearest]
    numbers = [film.dataset.turns.index(turn) for turn in shots.turns]
    other = film.trained[film.nearest(shots.true, without=numbers)]
    rows = {
        "shots": len(shots.turns),
        "VAE, PSNR to the true clip": _mean_psnr(shots.rebuilt, shots.true),
        "decoded from the true representation": _mean_psnr(shots.decoded, shots.true),
        "played": _mean_psnr(shots.played, shots.true),
        "the most similar training clip to what was played: PSNR to what was played": _mean_psnr(near, shots.played),
        "the most similar other training clip to the true clip: PSNR to the true clip": _mean_psnr(other, shots.true),
        "predicted level is the true one": np.mean([s.motion == t.motion_level for s, t in _pairs(shots)]),
        "measured level is the predicted one (ACC-F)": np.mean(
            [one == round(state.motion) for one, state in zip(measured, shots.states, strict=True)]
        ),
        "measured level of the true clip is its label": np.mean(
            [one == turn.motion_level for one, turn in zip(true_levels, shots.turns, strict=True)]
        ),
        "state changes, all three right": np.mean([not row.any() for row in error]),
        "characters, balanced accuracy of the probe: true clips": balanced(probe, shots.true, labels),
        "rebuilt": balanced(probe, shots.rebuilt, labels),
        "decoded": balanced(probe, shots.decoded, labels),
        "as played": balanced(probe, shots.played, labels),
    }
    return [
        f"## {split}",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {key} | {value:.3g} |" for key, value in rows.items()),
        "",
    ]


def train_probe(film: Film) -> tuple[nn.Module, list[str]]:
    """A small classifier of who is seen in a frame, trained on the training clips; the names that it knows."""
    turns = [film.dataset.turns[number] for number in film.dataset.training_clips]
    cast = sorted({name for turn in turns for name in turn.character if name[0].isupper()})
    names = [name for name in cast if sum(name in turn.character for turn in turns) >= CAST_LEAST]
    labels, clips = labels_of(turns, names), film.trained
    random = np.random.default_rng(0)
    torch.manual_seed(0)
    widths = (3, 24, 48, 96, 128)
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
    net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3), nn.Linear(128, len(names)))
    optimizer = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, PROBE_STEPS)
    weight = torch.from_numpy((1 - labels).sum(0) / labels.sum(0)).float()
    for _ in range(PROBE_STEPS):
        rows = random.integers(len(clips), size=48)
        frames = pictures(torch.from_numpy(clips[rows, random.integers(clips.shape[1], size=48)]))
        if random.random() < 0.5:
            frames = frames.flip(-1)
        top, left = random.integers(0, 24), random.integers(0, 36)
        frames = frames[..., top : top + 72, left : left + 108] * float(random.uniform(0.8, 1.2))
        loss = nn.functional.binary_cross_entropy_with_logits(
            net(frames), torch.from_numpy(labels[rows]).float(), pos_weight=weight
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    return net.eval(), names


@torch.inference_mode()
def balanced(probe: nn.Module, clips: Clips, labels: NDArray[np.float64]) -> float:
    """The mean over characters of (recall + specificity) / 2; 0.5 is chance."""
    seen = np.stack([probe(pictures(torch.from_numpy(clip))).sigmoid().mean(0).numpy() > 0.5 for clip in clips])
    values = []
    for name in range(labels.shape[1]):
        there = labels[:, name] > 0
        if there.any() and not there.all():
            values.append((seen[there, name].mean() + (~seen[~there, name]).mean()) / 2)
    return float(np.mean(values))


def labels_of(turns: Sequence[ClipRecord], names: Sequence[str]) -> NDArray[np.float64]:
    """(M, K) 1 where a turn's caption names the character."""
    return np.array([[float(name in turn.character) for name in names] for turn in turns])


def save_rows(path: Path, columns: Sequence[Clips]) -> None:
    """A picture with a row for each shot and a column for each set of clips; two shots beside each other."""
    middle = len(columns[0][0]) // 2
    rows = [np.concatenate([clip[middle] for clip in shot], 1) for shot in zip(*columns, strict=True)]
    if len(rows) % 2:
        rows.append(np.zeros_like(rows[0]))
    pairs = [
        np.concatenate([left, np.full_like(left[:, :4], 255), right], 1)
        for left, right in zip(rows[::2], rows[1::2], strict=True)
    ]
    Image.fromarray(np.concatenate(pairs)).save(path)


def _pairs(shots: Shots) -> list[tuple[GameState, ClipRecord]]:
    return list(zip(shots.states, shots.turns, strict=True))


def _look(clips: Clips) -> NDArray[np.float32]:
    """The clips in coarse, every fourth frame."""
    count, _, height, width, _ = clips.shape
    coarse = clips[:, ::4].astype(np.float32)
    return coarse.reshape(count, -1, height // LOOK, LOOK, width // LOOK, LOOK, 3).mean((3, 5))


def _mean_psnr(clips: Clips, true: Clips) -> float:
    return float(np.mean([psnr(*pair) for pair in zip(clips, true, strict=True)]))


def _progress(what: str, done: int, count: int) -> None:
    print(f"  {what}: {done} of {count}", file=sys.stderr)


if __name__ == "__main__":
    main()
