"""The prompts of the captioner. The wording is ours; tags, values and order are the paper's (supplement, section 2).

They ask for the background as time of day and place, since an instruction has both.
"""

from __future__ import annotations

from ...life import questions
from ..motion import LEVELS

TIMES = ("dawn", "morning", "day", "noon", "afternoon", "dusk", "evening", "night")
_MOVEMENT = (
    "Level 1: hardly any movement; "
    "Level 2: little movement, such as slight swaying; "
    "Level 3: moderate movement; "
    "Level 4: large movement that is plain to see; "
    "Level 5: very large and intense movement."
)


def matching_prompt(count: int) -> str:
    """Which of `count` numbered reference characters a clip shows: Image-1 is their sheet, Image-2 four frames."""
    if count < 1:
        raise ValueError(f"{count} reference characters; matching needs at least one")
    example = {1: "[Number]1[Index]1", 2: "[Number]2[Index]2,1"}.get(count, "[Number]2[Index]3,1")
    return (
        f"Image-1 shows the known characters, each under its index from 1 to {count}. Image-2 shows four frames of one "
        "anime clip. Say how many of the characters of Image-1 are seen in Image-2, and what their indices are, the "
        "main one first. Count only characters of Image-1. Write nothing but the response itself. "
        "Response format: [Number]<number of characters>[Index]<their indices, with commas between>. "
        f"Response example: {example}. If none of them is seen, the response is [Number]0[Index]0. Your response:"
    )


def captioning_prompt(level: int) -> str:
    """What happens in a clip of motion level 1..5: Image-1 is a sheet of eight frames."""
    if level not in range(1, LEVELS + 1):
        raise ValueError(f"motion level {level}; expected 1 to {LEVELS}")
    return (
        "Image-1 shows eight frames of one anime clip, in the order of time. Describe the clip in a fixed form. "
        f"Its movement level is <ML>{level}</ML>. The five levels are: {_MOVEMENT} Give, in English: "
        "(1) the subject <S> in a single word, the motion <MD> as a simple phrase in the present simple tense, and "
        f"the environment <EV> as the time of day ({', '.join(TIMES)}), a space, and a single word for the place. "
        "(2) the movement adverb <MA>: an adverb for <MD> that fits <ML>. "
        f"{questions(3)} "
        "Write nothing but the seven tags. Example output: <S>Girl</S><MD>run</MD><EV>day forest</EV><MA>slowly</MA>"
        "<SC>0</SC><ET>1</ET><ST>-1</ST>. Your response:"
    )


def again_prompt(prompt: str, expected: str) -> str:
    """The prompt again after an invalid reply; `expected` is our own text, never the model's words."""
    return f"{prompt}\nAn earlier response could not be used. Expected was {expected}. Keep to the response format."
