"""The paper's automatic metrics for comparison, grouped by where the paper gives them.

The three places do not agree, because they measure different things:
- MAIN_TABLE: games played by the whole system, with characters of all films.
- ABLATION_TABLE: models trained on one film (supplement 3.3). Variants of encoder and decoder are scored without the
  language model; only `w/o adapt` plays games.
- TEXT: one sentence on adaptation, whose CLIP-I with adaptation (0.786) neither table gives for AnimeGamer.
So a value of one place is never printed as one of another. The motion levels, states and judges are the paper's own.
Keys are those of `metrics.METRICS`; the paper gives no value for a missing key.
"""

from __future__ import annotations

SOURCE = "AnimeGamer, ICCV 2025, arXiv 2504.01014"
MAIN_TABLE, ABLATION_TABLE, TEXT = "main table", "ablation table", "text on adaptation"


def _row(names: str, *values: float) -> dict[str, float]:
    return dict(zip(names.split(), values, strict=True))


_MAIN = "clip_i dreamsim clip_t acc_f mae_f seconds"
_ABLATION = "clip_i dreamsim acc_f mae_f"
PAPER: dict[str, dict[str, float]] = {  # MAIN_TABLE
    "AnimeGamer": _row(_MAIN, 0.813, 0.740, 0.416, 0.674, 0.424, 24),
    "GC": _row(_MAIN, 0.796, 0.642, 0.334, 0.425, 0.722, 25),
    "GFC": _row(_MAIN, 0.766, 0.580, 0.333, 0.292, 1.021, 63),
    "GSC": _row(_MAIN, 0.786, 0.502, 0.333, 0.316, 0.826, 50),
}
ABLATIONS: dict[str, dict[str, float]] = {  # ABLATION_TABLE
    "w/ random frame": _row(_ABLATION, 0.845, 0.450, 0.474, 0.562),
    "w/o warm-up": _row(_ABLATION, 0.831, 0.511, 0.703, 0.458),
    "w/o f_ms": _row(_ABLATION, 0.853, 0.689, 0.182, 1.219),
    "w/o adapt": _row(_ABLATION, 0.683, 0.494, 0.365, 0.847),
    "full": _row(_ABLATION, 0.867, 0.793, 0.729, 0.403),
}
ADAPTATION: dict[str, dict[str, float]] = {  # TEXT: "omitting it reduces CLIP-I from 0.786 to 0.683"
    "full": {"clip_i": 0.786},
    "w/o adapt": {"clip_i": 0.683},
}
