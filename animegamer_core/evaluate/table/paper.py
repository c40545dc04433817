"""The figures that the paper gives, to stand beside ours (tables 1 and 4; its levels, states and judges are its own).

By the keys of `metrics.METRICS`. What a row does not give, the paper does not.
"""

from __future__ import annotations

SOURCE = "AnimeGamer, ICCV 2025, arXiv 2504.01014"


def _row(names: str, *values: float) -> dict[str, float]:
    return dict(zip(names.split(), values, strict=True))


_MAIN = "clip_i dreamsim clip_t acc_f mae_f seconds"
_ABLATION = "clip_i dreamsim acc_f mae_f"
PAPER: dict[str, dict[str, float]] = {
    "AnimeGamer": _row(_MAIN, 0.813, 0.740, 0.416, 0.674, 0.424, 24),
    "GC": _row(_MAIN, 0.796, 0.642, 0.334, 0.425, 0.722, 25),
    "GFC": _row(_MAIN, 0.766, 0.580, 0.333, 0.292, 1.021, 63),
    "GSC": _row(_MAIN, 0.786, 0.502, 0.333, 0.316, 0.826, 50),
}
ABLATIONS: dict[str, dict[str, float]] = {
    "w/ random frame": _row(_ABLATION, 0.845, 0.450, 0.474, 0.562),
    "w/o warm-up": _row(_ABLATION, 0.831, 0.511, 0.703, 0.458),
    "w/o f_ms": _row(_ABLATION, 0.853, 0.689, 0.182, 1.219),
    "w/o adapt": _row(_ABLATION, 0.683, 0.494, 0.365, 0.847),
    "full": _row(_ABLATION, 0.867, 0.793, 0.729, 0.403),
}
