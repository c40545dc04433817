"""The paper's scores by GPT-4V and by people, out of 10."""

from __future__ import annotations

# Keys: the tags of `judge.CRITERIA`; the paper gives four of the six, for two players.
JUDGED: dict[str, dict[str, float]] = {
    "AnimeGamer": {"OA": 8.36, "TA": 9.14, "ConC": 8.41, "ChaC": 9.11},
    "GC": {"OA": 6.42, "TA": 7.29, "ConC": 6.58, "ChaC": 7.49},
}
# Keys: those of `ratings.CRITERIA`.
RANKED: dict[str, dict[str, float]] = {
    "AnimeGamer": {
        "Overall": 10.0,
        "Instruction following": 9.95,
        "Context consistency": 9.95,
        "Character consistency": 9.86,
    },
    "GC": {"Overall": 7.38, "Instruction following": 7.37, "Context consistency": 6.89, "Character consistency": 7.55},
}
