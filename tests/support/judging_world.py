"""A little played benchmark on disk, and a stub's answers to what the tasks of judging ask."""

import re
from pathlib import Path

import numpy as np

from animegamer_core.evaluate.world.records import GameRecord, TurnRecord, begin_run, game_folder
from animegamer_core.media.video import write_clip

ADVERBS = ("barely", "slowly", "calmly", "quickly", "wildly")


def line(character: str = "Miko", number: int = 1, other: str | None = None) -> str:
    """A right line of a story; `number` makes it differ."""
    level = 1 + number % 5
    who = character if other is None else f"{character}, {other}"
    return (
        f"<S>{who}</S><MD>walk round tree {number}</MD><EV>day forest</EV><ML>{level}</ML>"
        f"<MA>{ADVERBS[level - 1]}</MA><SC>{int(other is not None)}</SC><ET>{number % 2}</ET><ST>-1</ST>"
    )


def story(prompt: str) -> str:
    """What a faithful model writes for a story's prompt."""
    main, count = (
        re.search(r"with (.+?) as the main character", prompt)[1],
        int(re.search(r"story of (\d+)", prompt)[1]),
    )
    supporting = re.search(r"supporting character, one of: ([^,;]+)", prompt)
    others = [None, supporting[1].strip() if supporting else None]
    return "\n".join(line(main, number, others[number % 2]) for number in range(count))


def make_run(folder: Path, name: str, games: dict[str, int], shade: int) -> Path:
    """A finished run of a player: games by name with their number of turns, every clip of one shade."""
    begin_run(folder, {"player": {"name": name}, "benchmark": {"games": list(games)}, "seed": 0})
    for game, count in games.items():
        turns = []
        for number in range(1, count + 1):
            clip = f"turn-{number:02d}.mp4"
            frames = np.full((9, 32, 48, 3), (shade, 20 * number, 40), np.uint8)
            frames[:, :, :8] = np.linspace(0, 255, 9, dtype=np.uint8)[:, None, None, None]  # time can be seen
            write_clip(game_folder(folder, game) / clip, frames, 8)
            asked = line("Miko", number)
            turns.append(TurnRecord(number, asked, None, None, 1.0, 2, 1.0, 2, {}, 1.0, number == 1, clip))
        GameRecord(game, name, 0, 8.0, tuple(turns)).save(folder)
    return folder
