"""Plain clips, each of its own colour, and a stub model that knows clips and characters by their colours."""

import re
from pathlib import Path
from string import ascii_lowercase

import msgspec
import numpy as np
from PIL import Image
from stub_endpoint import Ask

from animegamer_core.data.captions.run import open_captioner
from animegamer_core.data.records import ClipRecord
from animegamer_core.media.video import write_clip

NAMES = ("Aoi", "Botan", "Chika")  # clip n shows character n % 4 (0: nobody known), known by its red
STEP = 60  # between the colours of characters and of clips
ADVERBS = ("barely", "slowly", "calmly", "quickly", "wildly")  # of levels 1 to 5


def colour(number: int) -> tuple[int, int, int]:
    """A clip's colour: red says who is in it, green and blue which clip it is."""
    return STEP * (number % 4), 20 * (number % 12), 20 * (number // 12)


def place(number: int) -> str:
    """Where a clip plays."""
    return f"night hill{ascii_lowercase[number % 26]}"


def number_of(picture: Image.Image) -> int:
    """Which clip a sheet of frames shows."""
    _, green, blue = picture.getpixel((3, 3))
    return round(green / 20) + 12 * round(blue / 20)


def make_records(folder: Path, count: int) -> list[ClipRecord]:
    """Clips on disk and their records, levels 1 to 5 in turn."""
    records = []
    for number in range(count):
        clip = f"clips/tale/{number:05d}.mp4"
        write_clip(folder / clip, np.full((17, 32, 48, 3), colour(number), np.uint8), 8)
        start = 2.0 * number
        values = {"motion_value": 1.0 + number, "motion_level": 1 + number % 5}
        records.append(ClipRecord(film="tale", start=start, end=start + 2, clip=clip, **values))
    return records


def make_characters(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for index, name in enumerate(NAMES, start=1):
        Image.new("RGB", (40, 40), (STEP * index, 0, 0)).save(folder / f"{name}.png")
    return folder


def seen(ask: Ask) -> tuple[str, int]:
    """(matching or captioning, the clip's number) of a request."""
    matching = len(ask.pictures) == 2
    return "matching" if matching else "captioning", number_of(ask.pictures[matching])


def answer(ask: Ask) -> str:
    """What a faithful model replies: it reads the pictures and the level, nothing else."""
    step, number = seen(ask)
    if step == "matching":
        who = round(ask.pictures[1].getpixel((3, 3))[0] / STEP)
        return f"[Number]{int(who > 0)}[Index]{who}"
    level = int(re.search(r"<ML>([1-5])</ML>", ask.texts[-1])[1])
    return (
        f"<S>Fox</S><MD>walk</MD><EV>{place(number)}</EV><MA>{ADVERBS[level - 1]}</MA>"
        f"<SC>0</SC><ET>{number % 2}</ET><ST>{1 if number % 3 else -1}</ST>"
    )


def expected(record: ClipRecord, number: int, matched: bool = True) -> ClipRecord:
    """The record as the faithful model captions it."""
    who = number % 4
    return msgspec.structs.replace(
        record,
        character=(NAMES[who - 1],) if who and matched else ("fox",),
        motion="walk",
        background=place(number),
        adverb=ADVERBS[number % 5],
        stats={"social": 0, "entertainment": number % 2, "stamina": 1 if number % 3 else -1},
    )


def endpoint(url: str, **options):
    """The endpoint captioner on a stub."""
    return open_captioner("endpoint", **{"url": url, "model": "stub-vl", "timeout": 10.0, **options})
