"""A build's folder, the log of its stages, time limits and progress messages."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...data.dataset import TURNS
from ...data.jsonl_tables import read_rows
from ...data.motion import level_edges, median_by_level
from ...data.records import ClipRecord
from ...files import write_text
from ...json_files import read_json
from ...state import MotionTable
from ...toybox.dataset import OnClip
from ...train.distributed import processes
from .recipe import Recipe

Say = Callable[[str], object]


class Deadline:
    """The time at which work must stop. minutes: from now; None for no limit."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether the time has run out."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def minutes(self) -> float:
        """The minutes left, as in StageConfig: above 0, or 0 for no limit."""
        return 0.0 if self._end is None else max(0.001, (self._end - time.monotonic()) / 60)


def clip_progress(say: Say, name: str) -> OnClip:
    """A callback that reports every thousandth clip of a dataset that is drawn."""

    def show(done: int, total: int) -> None:
        if done % 1000 == 0 or done == total:
            say(f"{name}: {done} of {total} clips")

    return show


@dataclass(frozen=True)
class BuildDir:
    """A build's folder: dataset/, games/ (first pictures), world/ (fp16, as shipped), runs/<stage>/, stages.json.

    say: shows a line of progress. vae: a file with weights from which stage `vae` starts, instead of random ones.
    """

    folder: Path
    recipe: Recipe
    device: str
    say: Say
    vae: Path | None = None

    @property
    def dataset(self) -> Path:
        """The dataset folder."""
        return self.folder / "dataset"

    @property
    def games(self) -> Path:
        """The dataset folder that the engine is trained on."""
        return self.folder / "games"

    @property
    def world(self) -> Path:
        """The world folder that the stages fill."""
        return self.folder / "world"

    def measured_table(self) -> MotionTable:
        """The motion table of the dataset: its level edges and medians, without calibration."""
        values = [ClipRecord.from_dict(row).motion_value for _, row in read_rows(self.dataset / TURNS)]
        edges = level_edges(values)
        return MotionTable("toybox", median_by_level(values, edges), edges)

    def settings(self, stage: str) -> dict[str, object]:
        """The recipe's settings of a stage, as plain JSON values."""
        recipe = self.recipe
        own = {
            "data": recipe.dataset_games.facts,
            "games": recipe.engine_games.facts,
            "probes": asdict(recipe.probes),
            "frames": None if recipe.frames is None else asdict(recipe.frames),
            "scorers": asdict(recipe.scoring),
            "calibrate": recipe.calibrated_on,
        }
        return json.loads(json.dumps({"recipe": own.get(stage, recipe.changes.get(stage, {}))}))

    def check_recipe(self, stage: str) -> None:
        """ValueError if this folder's stage was started with another recipe, such as `--quick`."""
        before = self.log().get(stage, {}).get("settings")
        if before is not None and before != self.settings(stage):
            raise ValueError(
                f"stage {stage} in {self.folder} was built with {json.dumps(before)}, now it is "
                f"{json.dumps(self.settings(stage))}; build in another --work folder"
            )

    def log(self) -> dict[str, dict[str, object]]:
        """For each stage, its seconds over all calls, whether it is finished, and its settings."""
        path = self.folder / "stages.json"
        return read_json(path, dict[str, dict[str, Any]]) if path.is_file() else {}

    def is_finished(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return bool(self.log().get(stage, {}).get("finished"))

    def note(self, stage: str, seconds: float, finished: bool) -> None:
        """Add to a stage's seconds in the log, and note whether it is finished; only the main process writes."""
        if not processes().is_main_process:
            return
        before = self.log()
        total = before.get(stage, {}).get("seconds", 0.0) + round(seconds, 1)
        log = {**before, stage: {"seconds": total, "finished": finished, "settings": self.settings(stage)}}
        write_text(self.folder / "stages.json", json.dumps(log, indent=1))
