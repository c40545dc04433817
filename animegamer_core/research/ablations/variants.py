"""The variants of the recipe, and what the paper claims about them. Does not import torch.

The paper's ablations are in its ablation table and supplement 3.3. Those of what it calls tokenization are scored on
held-out clips that are encoded and decoded again without the engine; the others on games that the engine plays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from ...evaluate.world.paper import ABLATION_TABLE, ABLATIONS, ADAPTATION, MAIN_TABLE, PAPER, TEXT
from ...state import DEFAULT_WINDOW

RECONSTRUCTION, GAMES = FAMILIES = ("reconstruction", "games")
# The stage that trains a decoder that can draw, as CogVideoX can before the paper's training: stage joint, with an
# encoder that is discarded afterwards.
PRETRAIN = "pretrain"
STAGES = {  # training stages before a world is scored
    RECONSTRUCTION: (PRETRAIN, "warmup", "joint"),
    GAMES: (PRETRAIN, "warmup", "joint", "predict", "adapt"),
}
BUDGET_NAMES = ("full", "short", "quick")
NOTHING: Mapping[str, Any] = MappingProxyType({})
READS_SHOTS = "project_in"  # the engine's module that reads past representations


@dataclass(frozen=True)
class Published:
    """A row of the paper: its table, its name there, and its values by metric."""

    table: str
    row: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Variant:
    """One row of the table.

    families: how it is scored. paper: its name in the paper's ablation table, "" if it is not there. own: the stages
    that it trains itself; the other stages are `full`'s. skipped: stages that are left out. prolonged: the stage that
    gets the steps of skipped ones, so that the total stays the same. encoder: the variant in EncoderSpec. changes:
    fields of StageConfig by stage. window: past turns that the engine reads in play. reads_shots: whether it reads
    their representations as well as their text.
    """

    name: str
    about: str
    families: tuple[str, ...]
    paper: str = ""
    own: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    prolonged: str = ""
    encoder: str = "mlp"
    changes: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: NOTHING)
    window: int = DEFAULT_WINDOW
    reads_shots: bool = True

    def published(self, family: str) -> Published:
        """The paper's row for this variant in a family.

        For games, `full` has the main table's values, since the ablation table's row `full` is for clips that are
        decoded without the language model.
        """
        if self.name == FULL and family == GAMES:
            return Published(MAIN_TABLE, "AnimeGamer", PAPER["AnimeGamer"])
        return Published(ABLATION_TABLE, self.paper, ABLATIONS.get(self.paper, NOTHING))

    @property
    def encoder_frame(self) -> str:
        """Which frame of a clip its encoder reads: `first` or `random`."""
        return self.changes.get("joint", NOTHING).get("encoder_frame", "first")

    @property
    def motion_scope(self) -> bool:
        """Whether its decoder is conditioned on motion values."""
        return self.changes.get("joint", NOTHING).get("motion_scope", True)

    def path(self, family: str) -> tuple[tuple[str, str], ...]:
        """(variant, stage) of all stages up to the scored models, in order; `full` trains the others."""
        stages = (stage for stage in STAGES[family] if stage not in self.skipped)
        return tuple((self.name if stage in self.own else FULL, stage) for stage in stages)


def _both(**changes: Any) -> dict[str, dict[str, Any]]:
    """The same changes for both stages that train the encoder."""
    return {stage: changes for stage in _ENCODED}


def _window(size: int) -> Variant:
    return Variant(f"window_{size}", f"full, but the engine reads {size} past turns in play", (GAMES,), window=size)


FULL = "full"
_ENCODED = ("warmup", "joint")
_ROWS = (
    Variant(FULL, f"the whole recipe (window {DEFAULT_WINDOW})", FAMILIES, "full", own=STAGES[GAMES]),
    Variant(
        "random_frame",
        "the encoder reads a random frame of the clip, in training and in scoring",
        (RECONSTRUCTION,),
        "w/ random frame",
        own=_ENCODED,
        changes=_both(encoder_frame="random"),
    ),
    Variant(
        "less_parameters", "one linear layer instead of each MLP", (RECONSTRUCTION,), own=_ENCODED, encoder="linear"
    ),
    Variant(
        "addition", "each side's tokens receive the other's mean", (RECONSTRUCTION,), own=_ENCODED, encoder="addition"
    ),
    Variant(
        "cross_attention",
        "each side's tokens attend to the other's",
        (RECONSTRUCTION,),
        own=_ENCODED,
        encoder="cross_attention",
    ),
    Variant(
        "no_warm_up",
        "no stage warmup; stage joint takes its steps too",
        (RECONSTRUCTION,),
        "w/o warm-up",
        own=("joint",),
        skipped=("warmup",),
        prolonged="joint",
    ),
    Variant(
        "no_motion_scope",
        "the decoder gets one motion value for all clips, in training and in scoring",
        (RECONSTRUCTION,),
        "w/o f_ms",
        own=_ENCODED,
        changes=_both(motion_scope=False),
    ),
    Variant(
        "no_adaptation",
        "stage adapt reads true representations only, never the engine's predictions",
        (GAMES,),
        "w/o adapt",
        own=("adapt",),
        changes={"adapt": {"true_states": 1.0}},
    ),
    Variant(
        "text_history",
        "of past turns, the engine reads the instructions and the state changes, but not the representations",
        (GAMES,),
        own=("predict", "adapt"),
        changes={"predict": {"trainable": (rf"^engine\.(?!{READS_SHOTS}\.)",)}},
        reads_shots=False,
    ),
    Variant(
        "cosine_loss",
        "squared error and 1 - cosine at weight 0.5 each, and a decoder adapted to that engine",
        (GAMES,),
        own=("predict", "adapt"),
        changes={"predict": {"alpha": 0.5, "beta": 0.5}},
    ),
    *(_window(size) for size in (0, 1, 2, 8)),
)
VARIANTS: Mapping[str, Variant] = MappingProxyType({row.name: row for row in _ROWS})


@dataclass(frozen=True)
class Claim:
    """What the paper says about a variant compared with `full`: mostly by its values, sometimes only in its text.

    metric: a column of the scores. part: the claim is that the variant's value is below this fraction of full's (1:
    below full's value); for errors, above.
    """

    says: str
    variant: str
    metric: str
    part: float = 1.0

    @property
    def published(self) -> tuple[str, float, float] | None:
        """(place in the paper, the variant's value, full's value); None if the paper gives no such pair.

        For CLIP-I without adaptation, the text gives a pair of its own, which differs from the table's row.
        """
        row = VARIANTS[self.variant].paper
        in_text = self.metric in ADAPTATION.get(row, NOTHING)
        table, rows = (TEXT, ADAPTATION) if in_text else (ABLATION_TABLE, ABLATIONS)
        if self.metric not in rows.get(row, NOTHING):
            return None
        return table, rows[row][self.metric], rows["full"][self.metric]


CLAIMS = (
    Claim("no motion scope collapses ACC-F, to less than half", "no_motion_scope", "acc_f", 0.5),
    Claim("no motion scope raises MAE-F", "no_motion_scope", "mae_f"),
    Claim("a random frame lowers DreamSim", "random_frame", "dreamsim"),
    Claim("a random frame lowers CLIP-I", "random_frame", "clip_i"),
    Claim("a random frame lowers ACC-F", "random_frame", "acc_f"),
    Claim("no warm-up lowers DreamSim", "no_warm_up", "dreamsim"),
    Claim("no warm-up lowers CLIP-I", "no_warm_up", "clip_i"),
    Claim("a history of text alone lowers DreamSim", "text_history", "dreamsim"),
    Claim("a history of text alone lowers CLIP-I", "text_history", "clip_i"),
    Claim("with a history of text alone, fewer colours named before are kept", "text_history", "remembered"),
    Claim("no adaptation lowers CLIP-I", "no_adaptation", "clip_i"),
    Claim("no adaptation lowers DreamSim", "no_adaptation", "dreamsim"),
    Claim("no adaptation lowers ACC-F", "no_adaptation", "acc_f"),
    Claim("no adaptation raises MAE-F", "no_adaptation", "mae_f"),
)


def chosen(names: Sequence[str] | None, fraction: str | None = None) -> tuple[Variant, ...]:
    """The named variants (None: all) in the table's order. fraction: "i/n" for every n-th of them from the i-th on.

    ValueError for an unknown name or an invalid fraction.
    """
    for name in names or ():
        if name not in VARIANTS:
            raise ValueError(f"unknown variant {name!r}; choose from {', '.join(VARIANTS)}")
    rows = tuple(row for row in _ROWS if names is None or row.name in names)
    if fraction is None:
        return rows
    part, _, parts = fraction.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and 1 <= int(part) <= int(parts)):
        raise ValueError(f"--share is {fraction!r}; expected i/n with 1 <= i <= n, such as 1/2")
    return rows[int(part) - 1 :: int(parts)]
