"""The rows of the table: each metric's definition, its source, the paper's values, and how it is computed.

The paper names its metrics without formulas; a definition is ours unless its source says otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ..estimates import Estimate, fraction_over_games, mean_over_games
from .records import FRAMES_COMPARED, GameRecord, TurnRecord

# The paper's automatic metrics, by where the paper gives them. The three places do not agree, because they measure
# different things, so a value of one place is never printed as one of another. Keys are those of METRICS.
SOURCE = "AnimeGamer, ICCV 2025, arXiv 2504.01014"
MAIN_TABLE = "main table"


def _row(names: str, *values: float) -> dict[str, float]:
    return dict(zip(names.split(), values, strict=True))


_MAIN = "clip_i dreamsim clip_t acc_f mae_f seconds"
_ABLATION = "clip_i dreamsim acc_f mae_f"
PAPER: dict[str, dict[str, float]] = {  # MAIN_TABLE: games played by the whole system, with characters of all films
    "AnimeGamer": _row(_MAIN, 0.813, 0.740, 0.416, 0.674, 0.424, 24),
    "GC": _row(_MAIN, 0.796, 0.642, 0.334, 0.425, 0.722, 25),
    "GFC": _row(_MAIN, 0.766, 0.580, 0.333, 0.292, 1.021, 63),
    "GSC": _row(_MAIN, 0.786, 0.502, 0.333, 0.316, 0.826, 50),
}
# Models trained on one film (supplement 3.3); all but `w/o adapt` are scored without the language model.
ABLATIONS: dict[str, dict[str, float]] = {
    "w/ random frame": _row(_ABLATION, 0.845, 0.450, 0.474, 0.562),
    "w/o warm-up": _row(_ABLATION, 0.831, 0.511, 0.703, 0.458),
    "w/o f_ms": _row(_ABLATION, 0.853, 0.689, 0.182, 1.219),
    "w/o adapt": _row(_ABLATION, 0.683, 0.494, 0.365, 0.847),
    "full": _row(_ABLATION, 0.867, 0.793, 0.729, 0.403),
}

Value = float | bool | None


@dataclass(frozen=True)
class Metric:
    """One row of the table.

    value: computes it for one turn, None if the turn has no value; by default the score named `key`, which scoring
    models compute. about, source: its definition, and where that is from. better: the better end. unit: as
    printed. fraction: whether values are True or False, so that the interval is Wilson's; other rows have a bootstrap
    interval over games. paper: the key of the paper's value if it differs from `key`.
    """

    key: str
    name: str
    about: str
    source: str
    value: Callable[[TurnRecord], Value] | None = None
    better: str = "higher"
    unit: str = ""
    fraction: bool = False
    paper: str = ""

    @property
    def model(self) -> str | None:
        """The scoring model that the row needs, as its option is named; None if it needs none."""
        return self.key.split("_")[0] if self.value is None else None

    def of_turn(self, turn: TurnRecord) -> Value:
        return turn.scores.get(self.key) if self.value is None else self.value(turn)

    def published(self, player: str) -> float | None:
        """The paper's value for one of its players; None if the paper gives none."""
        return PAPER[player].get(self.paper or self.key)


def estimates_of(games: Sequence[GameRecord]) -> dict[str, Estimate]:
    """The estimates of all rows by key, each over all turns that have a value."""
    estimates = {}
    for metric in METRICS:
        rows = [[metric.of_turn(turn) for turn in game.turns] for game in games]
        known: list[list[Any]] = [[found for found in row if found is not None] for row in rows]
        estimates[metric.key] = fraction_over_games(known) if metric.fraction else mean_over_games(known)
    return estimates


def _right(found: object, asked: object) -> Value:
    """Whether a value is the requested one; None if there is none."""
    return None if found is None else found == asked


def _motion_rows(suffix: str, of: str, source: str, level: Callable[[TurnRecord], int | None]) -> tuple[Metric, Metric]:
    """ACC-F and MAE-F by `level`, the measured level of a turn's shot; None if it was not measured."""

    def off(turn: TurnRecord) -> Value:
        found = level(turn)
        return None if found is None else float(abs(found - turn.asked.level))

    key, name = suffix and f"_{suffix}", suffix and f", {suffix}"
    accuracy = f"Fraction of {of} whose measured motion level is the one that the benchmark's line asks for."
    error = f"Mean distance, in levels, between the measured motion level of {of} and the one that the line asks for."
    return (
        Metric(
            f"acc_f{key}",
            f"ACC-F{name}",
            accuracy,
            source,
            lambda turn: _right(level(turn), turn.asked.level),
            fraction=True,
            paper="acc_f",
        ),
        Metric(f"mae_f{key}", f"MAE-F{name}", error, source, off, better="lower", paper="mae_f"),
    )


_FRAMES = f"{FRAMES_COMPARED} evenly spaced frames of a shot, the first and the last among them"
_FLOW = (
    "The paper names this metric (its levels: supplement, section 1); that it compares the level measured on the shot, "
    "with the world's own flow backend and edges, with the level of the benchmark's line, is our reading"
)
_UNCALIBRATED = (
    "shots drawn at the medians of the training data instead of calibrated motion values (the inverse of the decoder's "
    "measured response; without calibration, as for the baselines, these are the same shots)"
)
_CALIBRATION = (
    "Ours: the Toybox is calibrated, the baselines cannot be, and the paper mentions no calibration, so compare "
    "systems by these rows"
)
_STATE = "The three changes of the benchmark's line (supplement, section 4); the paper's tables have no such row"
_ACROSS = "Ours: the paper has no metric of consistency from turn to turn"

METRICS: tuple[Metric, ...] = (
    Metric(
        "clip_i",
        "CLIP-I",
        f"Mean cosine of {_FRAMES} with every reference picture of the game's main character; mean over shots.",
        "CLIP: Radford et al. 2021; as a similarity of pictures, Ruiz et al. 2023 (DreamBooth's CLIP-I)",
    ),
    Metric(
        "dreamsim",
        "DreamSim",
        "Like CLIP-I, with DreamSim's similarity instead of CLIP's.",
        "DreamSim: Fu et al. 2023; its similarity is 1 minus its distance",
    ),
    Metric(
        "clip_t",
        "CLIP-T",
        f"Mean cosine of {_FRAMES} with the text `ADVERB MOTION, BACKGROUND` of the turn's line; mean over shots.",
        "CLIP: Radford et al. 2021; Hessel et al. 2021 (CLIPScore), neither scaled nor cut off at 0",
    ),
    *_motion_rows("", "shots", _FLOW, lambda turn: turn.motion_level),
    *_motion_rows("uncalibrated", _UNCALIBRATED, _CALIBRATION, lambda turn: turn.uncalibrated_level),
    Metric(
        "state",
        "State accuracy",
        "Fraction of turns whose three predicted changes (social, entertainment, stamina) are all those of the line.",
        _STATE,
        lambda turn: _right(turn.change, turn.asked.change),
        fraction=True,
    ),
    Metric(
        "scope",
        "Motion scope predicted as asked",
        "Fraction of turns whose predicted motion scope is the level that the line asks for.",
        "Ours: ACC-F looks at the shot, this only at the prediction",
        lambda turn: _right(turn.level, turn.asked.level),
        fraction=True,
    ),
    Metric(
        "seconds",
        "Seconds a turn",
        "Wall-clock time from the instruction to the shot's frames, one game at a time; each process's first turn "
        "after loading is not counted.",
        "The paper's inference time per turn; it does not name its machine",
        lambda turn: None if turn.warm_up else turn.seconds,
        better="lower",
        unit="s",
    ),
    Metric(
        "clip_i_across",
        "CLIP-I across turns",
        f"Mean cosine of {_FRAMES} with such frames of the shot before it in the game; mean over shots from turn 2 on.",
        _ACROSS,
    ),
    Metric("dreamsim_across", "DreamSim across turns", "As CLIP-I across turns, with DreamSim's similarity.", _ACROSS),
)
