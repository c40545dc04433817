"""The rows of the table: what each figure is, where its definition comes from, and how it is read off played turns.

The paper names its metrics and gives no formulas; each definition here is ours where its source does not say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from ..figures import Figure, mean_over_games, share_over_games
from .paper import PAPER
from .records import GameRecord, TurnRecord
from .scores import CEILINGS, SHOWN, TRUTH

GAUGES = ("social", "entertainment", "stamina")
Value = float | bool | None


@dataclass(frozen=True)
class Metric:
    """One row. value: a turn's own, None where the turn has none. higher: whether more is better. unit: how it is
    written. share: counted as right or wrong, with Wilson's interval for games; others with the bootstrap over games.
    tower: its name tells which towers computed it. about, source: its definition in words. paper: the key of the
    paper's figure to stand beside it, where that is another row's too.
    """

    key: str
    name: str
    value: Callable[[TurnRecord], Value]
    about: str
    source: str
    higher: bool = True
    unit: str = ""
    share: bool = False
    tower: bool = False
    paper: str = ""

    def published(self, player: str) -> float | None:
        """The paper's figure of one of its players; None where it gives none."""
        return PAPER[player].get(self.paper or self.key)


def figure_of(metric: Metric, games: Sequence[GameRecord]) -> Figure:
    """A row's figure over all turns of the games that have a value."""
    values = [[metric.value(turn) for turn in game.turns] for game in games]
    told = [[value for value in row if value is not None] for row in values]
    if metric.share:
        return share_over_games([[bool(value) for value in row] for row in told])
    return mean_over_games(told)


def figures_of(games: Sequence[GameRecord]) -> dict[str, Figure]:
    """All rows' figures by key."""
    return {metric.key: figure_of(metric, games) for metric in METRICS}


def ceilings_of(games: Sequence[GameRecord]) -> dict[str, Figure]:
    """What the true shots of these games score, by the keys of the rows that have such a ceiling."""
    keys = [metric.key for metric in METRICS if f"{TRUTH}{metric.key}" in CEILINGS]
    found = {}
    for key in keys:
        values = [[turn.scores.get(f"{TRUTH}{key}") for turn in game.turns] for game in games]
        found[key] = mean_over_games([[value for value in row if value is not None] for row in values])
    return {key: figure for key, figure in found.items() if figure.count}


def confusion(games: Sequence[GameRecord]) -> tuple[tuple[int, ...], ...]:
    """Shots by the level asked for (row 1..5) and the level measured (column 1..5)."""
    counts = [[0] * 5 for _ in range(5)]
    for turn in (turn for game in games for turn in game.turns):
        if turn.motion_level is not None:
            counts[turn.asked.level - 1][turn.motion_level - 1] += 1
    return tuple(tuple(row) for row in counts)


def _score(name: str) -> Callable[[TurnRecord], Value]:
    return lambda turn: turn.scores.get(name)


def _motion_right(name: str) -> Callable[[TurnRecord], Value]:
    """Whether a measured level, one of the record's fields, is the one that the line asks for."""
    return lambda turn: None if (level := getattr(turn, name)) is None else level == turn.asked.level


def _motion_off(name: str) -> Callable[[TurnRecord], Value]:
    """How far a measured level, one of the record's fields, is from the one that the line asks for."""
    return lambda turn: None if (level := getattr(turn, name)) is None else float(abs(level - turn.asked.level))


def _scope_right(turn: TurnRecord) -> Value:
    return None if turn.level is None else turn.level == turn.asked.level


def _gauge_right(name: str) -> Callable[[TurnRecord], Value]:
    return lambda turn: None if turn.change is None else getattr(turn.change, name) == getattr(turn.asked.change, name)


def _state_right(turn: TurnRecord) -> Value:
    return None if turn.change is None else turn.change == turn.asked.change


def _state_off(turn: TurnRecord) -> Value:
    if turn.change is None:
        return None
    told, asked = asdict(turn.change), asdict(turn.asked.change)
    return sum(abs(told[name] - asked[name]) for name in GAUGES) / len(GAUGES)


def _seconds(turn: TurnRecord) -> Value:
    return None if turn.warm_up else turn.seconds


_FRAMES = f"{SHOWN} evenly spaced frames of a shot, the first and the last among them"
_CLIP = "CLIP: Radford et al. 2021; as a similarity of pictures, Ruiz et al. 2023 (DreamBooth's CLIP-I)"
_DREAMSIM = "DreamSim: Fu et al. 2023; its similarity is 1 minus its distance"
_FLOW = (
    "The paper (its levels: supplement, section 1) names metric and measure; that the level measured on the shot is "
    "compared with the level of the benchmark's line, by the world's own backend and edges, is our reading"
)
_UNCALIBRATED = (
    "at the medians of the training data in place of motion values found by inverting the decoder's measured response; "
    "the same as without the word for players that have no such calibration, such as the baselines."
)
_CALIBRATION = (
    "Ours: the Toybox is calibrated, the baselines cannot be, and the paper says of no calibration, so that these rows "
    "are the ones to compare"
)
_STATE = "The three changes of the benchmark's line (supplement, section 4); the paper's tables give no such figure"
_ACROSS = "Ours: the paper has no figure of its own for consistency from turn to turn"
_TRUE = "Ours: only a world that is drawn knows its true shots"

METRICS: tuple[Metric, ...] = (
    Metric(
        "clip_i",
        "CLIP-I",
        _score("clip_i"),
        f"Mean cosine of {_FRAMES} with every reference picture of the game's main character; mean over shots.",
        _CLIP,
        tower=True,
    ),
    Metric(
        "dreamsim",
        "DreamSim",
        _score("dreamsim"),
        "As CLIP-I, with DreamSim's similarity in place of CLIP's.",
        _DREAMSIM,
        tower=True,
    ),
    Metric(
        "clip_t",
        "CLIP-T",
        _score("clip_t"),
        f"Mean cosine of {_FRAMES} with the text `ADVERB MOTION, BACKGROUND` of the turn's line; mean over shots.",
        "CLIP: Radford et al. 2021; Hessel et al. 2021 (CLIPScore), neither scaled nor cut off at 0",
        tower=True,
    ),
    Metric(
        "acc_f",
        "ACC-F",
        _motion_right("motion_level"),
        "Share of shots whose measured motion level is the level that the benchmark's line asks for.",
        _FLOW,
        share=True,
    ),
    Metric(
        "mae_f",
        "MAE-F",
        _motion_off("motion_level"),
        "Mean distance, in levels, between the measured motion level and the one that the line asks for.",
        _FLOW,
        higher=False,
    ),
    Metric(
        "acc_f_uncalibrated",
        "ACC-F, uncalibrated",
        _motion_right("uncalibrated_level"),
        f"As ACC-F, of the same shots drawn {_UNCALIBRATED}",
        _CALIBRATION,
        share=True,
        paper="acc_f",
    ),
    Metric(
        "mae_f_uncalibrated",
        "MAE-F, uncalibrated",
        _motion_off("uncalibrated_level"),
        f"As MAE-F, of the same shots drawn {_UNCALIBRATED}",
        _CALIBRATION,
        higher=False,
        paper="mae_f",
    ),
    Metric(
        "state",
        "State accuracy",
        _state_right,
        "Share of turns whose three predicted changes (social, entertainment, stamina) are all those of the line.",
        _STATE,
        share=True,
    ),
    *(
        Metric(
            name,
            f"State accuracy, {name}",
            _gauge_right(name),
            f"Share of turns whose predicted change of {name} is that of the line.",
            _STATE,
            share=True,
        )
        for name in GAUGES
    ),
    Metric(
        "state_mae",
        "State MAE",
        _state_off,
        "Mean distance between predicted and told change in units, averaged over the three gauges (a wrong stamina is "
        "off by 2, the others by 1); one unit is 5 points of a gauge.",
        _STATE,
        higher=False,
    ),
    Metric(
        "scope",
        "Motion scope predicted as asked",
        _scope_right,
        "Share of turns whose predicted motion scope, before anything is drawn, is the level that the line asks for.",
        "Ours: ACC-F looks at the shot, this at the prediction alone",
        share=True,
    ),
    Metric(
        "seconds",
        "Seconds a turn",
        _seconds,
        "Wall-clock time from the instruction to the shot's frames, one game at a time; each process's first turn "
        "after loading is left out.",
        "The paper's inference time per turn; its machine is not told",
        higher=False,
        unit="s",
    ),
    Metric(
        "clip_i_across",
        "CLIP-I across turns",
        _score("clip_i_across"),
        f"Mean cosine of {_FRAMES} with such frames of the shot before it in the game; mean over shots from turn 2 on.",
        _ACROSS,
        tower=True,
    ),
    Metric(
        "dreamsim_across",
        "DreamSim across turns",
        _score("dreamsim_across"),
        "As CLIP-I across turns, with DreamSim's similarity.",
        _ACROSS,
        tower=True,
    ),
    Metric(
        "clip_i_true",
        "CLIP-I to the true shot",
        _score("clip_i_true"),
        f"Mean cosine of {_FRAMES} with the same frames of the true shot, each with its own; mean over shots.",
        _TRUE,
        tower=True,
    ),
    Metric(
        "dreamsim_true",
        "DreamSim to the true shot",
        _score("dreamsim_true"),
        "As CLIP-I to the true shot, with DreamSim's similarity.",
        _TRUE,
        tower=True,
    ),
)
BY_KEY = {metric.key: metric for metric in METRICS}
