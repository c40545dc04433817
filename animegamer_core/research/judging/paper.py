"""The paper's scores by GPT-4V and by people, out of 10."""

from __future__ import annotations

# Keys: the tags of `judge.CRITERIA`; the paper gives four of the six, for two players.
JUDGED: dict[str, dict[str, float]] = {
    "AnimeGamer": {"OA": 8.36, "TA": 9.14, "ConC": 8.41, "ChaC": 9.11},
    "GC": {"OA": 6.42, "TA": 7.29, "ConC": 6.58, "ChaC": 7.49},
}
# Keys: those of `rating_sheets.CRITERIA`.
RANKED: dict[str, dict[str, float]] = {
    "AnimeGamer": {"overall": 10.0, "instruction": 9.95, "context": 9.95, "character": 9.86},
    "GC": {"overall": 7.38, "instruction": 7.37, "context": 6.89, "character": 7.55},
}
