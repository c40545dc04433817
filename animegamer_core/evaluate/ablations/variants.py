"""The variants: rows of overrides over the Toybox's recipe. Imports no torch.

The paper's ablations are in its ablation table and supplement 3.3. Those of what it calls tokenization are scored on
held-out clips that are encoded and decoded again without the engine; the others on games that the engine plays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...game.state import DEFAULT_WINDOW
from ...spec import EncoderVariant
from ..world.metrics import ABLATIONS, PAPER

RECONSTRUCTION, GAMES = FAMILIES = ("reconstruction", "games")
# Stage joint of a decoder that knows no motion values, as CogVideoX does not, so that every variant begins with a
# decoder that can draw. Its encoder is discarded afterwards.
PRETRAIN = "pretrain"
STAGES = {  # training stages before a world is scored
    RECONSTRUCTION: (PRETRAIN, "warmup", "joint"),
    GAMES: (PRETRAIN, "warmup", "joint", "predict", "adapt"),
}
NOTHING: Mapping[str, Any] = MappingProxyType({})
READS_SHOTS = "project_in"  # the engine's module that reads past representations


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    families: how it is scored. own: the first stage that it trains itself; `full` trains those before it, and all if it
    is "". paper: its name in the paper's ablation table, "" if it is not there. skipped: stages that are left out;
    stage joint gets their steps. encoder: the variant in EncoderSpec. changes: fields of StageConfig by stage. window:
    past turns that the engine reads in play. reads_shots: whether it reads their representations as well as their text.
    """

    name: str
    about: str
    families: tuple[str, ...]
    own: str = ""
    paper: str = ""
    skipped: tuple[str, ...] = ()
    encoder: EncoderVariant = "mlp"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: NOTHING)
    window: int = DEFAULT_WINDOW
    reads_shots: bool = True

    def published(self, family: str) -> Mapping[str, float]:
        """The paper's values for this variant in a family, by metric.

        For games, `full` has the main table's, since the ablation table's row `full` is for clips that are decoded
        without the language model.
        """
        return PAPER["AnimeGamer"] if (self.name, family) == (FULL, GAMES) else ABLATIONS.get(self.paper, NOTHING)

    def path(self, family: str) -> list[tuple[Variant, str]]:
        """All stages up to the scored models, in order, each with the variant that trains it."""
        stages = [stage for stage in STAGES[family] if stage not in self.skipped]
        shared = stages.index(self.own) if self.own else len(stages)
        return [(VARIANTS[FULL] if index < shared else self, stage) for index, stage in enumerate(stages)]


FULL = "full"
_CLIPS, _PLAYED = (RECONSTRUCTION,), (GAMES,)
_ROWS = (
    Variant(FULL, f"the whole recipe (window {DEFAULT_WINDOW})", FAMILIES, PRETRAIN, "full"),
    Variant(
        "random_frame",
        "the encoder reads a random frame of the clip, in training and in scoring",
        _CLIPS,
        "warmup",
        "w/ random frame",
        changes=dict.fromkeys(("warmup", "joint"), {"encoder_frame": "random"}),
    ),
    Variant("less_parameters", "one linear layer instead of each MLP", _CLIPS, "warmup", encoder="linear"),
    Variant("addition", "each side's tokens receive the other's mean", _CLIPS, "warmup", encoder="addition"),
    Variant("cross_attention", "each side's tokens attend to the other's", _CLIPS, "warmup", encoder="cross_attention"),
    Variant(
        "no_warm_up",
        "no stage warmup; stage joint takes its steps too",
        _CLIPS,
        "joint",
        "w/o warm-up",
        skipped=("warmup",),
    ),
    Variant(
        "no_motion_scope",
        "the decoder gets one motion value for all clips, in training and in scoring",
        _CLIPS,
        "warmup",
        "w/o f_ms",
        changes=dict.fromkeys(("warmup", "joint"), {"motion_scope": False}),
    ),
    Variant(
        "no_adaptation",
        "stage adapt reads true representations only, never the engine's predictions",
        _PLAYED,
        "adapt",
        "w/o adapt",
        changes={"adapt": {"true_states": 1.0}},
    ),
    Variant(
        "text_history",
        "of past turns, the engine reads the instructions and the state changes, but not the representations",
        _PLAYED,
        "predict",
        changes={"predict": {"trainable": (rf"^engine\.(?!{READS_SHOTS}\.)",)}},
        reads_shots=False,
    ),
    Variant(
        "cosine_loss",
        "squared error and 1 - cosine at weight 0.5 each, and a decoder adapted to that engine",
        _PLAYED,
        "predict",
        changes={"predict": {"alpha": 0.5, "beta": 0.5}},
    ),
    *(
        Variant(f"window_{size}", f"full, but the engine reads {size} past turns in play", _PLAYED, window=size)
        for size in (0, 1, 2, 8)
    ),
)
VARIANTS: Mapping[str, Variant] = MappingProxyType({row.name: row for row in _ROWS})


def chosen(names: Sequence[str] | None) -> tuple[Variant, ...]:
    """The named variants (None: all) in the table's order."""
    return tuple(row for row in _ROWS if names is None or row.name in names)
