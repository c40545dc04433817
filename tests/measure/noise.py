"""What the measurements train on: turns of a film that shows noise."""

from __future__ import annotations

from animegamer_core.data.records import ClipRecord


def noise_turn(number: int, clip: str, motion: str, motion_value: float) -> ClipRecord:
    """One captioned turn. clip: its file's path. motion: its phrase, whose length is that of the prompts."""
    return ClipRecord(
        film="noise",
        start=2.0 * number,
        end=2.0 * number + 2,
        clip=clip,
        character=("Qiqi",),
        motion=motion,
        background="day sky",
        adverb="quickly",
        motion_value=motion_value,
        motion_level=3,
        stats={"social": 0, "entertainment": 1, "stamina": -1},
    )
