"""The verb `fetch`: says which files a world or the base models need, from where and under which licence, asks,
downloads them, and converts a world as it comes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tyro.conf import Positional

from ..checkpoint import CheckpointError, base_folders
from ..checkpoint.downloads import COGVIDEO
from ..checkpoint.fetch import BASE, FetchPlan, OnBytes, fetch, plan_fetch, plan_text
from ..messages import shell_word
from ..spec import PROGRAM
from .options import Flag, confirmed
from .progress_line import ProgressLine


@dataclass(frozen=True, kw_only=True)
class Options:
    world: Positional[str | None] = None
    """qiqi or sosuke."""
    base: Flag = False
    """The free base models from which `new` makes a world."""
    out: Path | None = None
    """The world folder to make, or the folder for the base models; default: worlds/WORLD, or downloads."""
    towers: Flag = False
    """Also the text and image encoders (T5, CLIP), needed only to encode shots and to train; --base includes them."""
    yes: Flag = False
    """Do not ask."""


def run(args: Options) -> int:
    """Print what will be downloaded, ask, download; 1 if the answer is no. ValueError unless a world or --base is
    given.
    """
    if args.base == (args.world is not None):
        raise ValueError("give either the name of a world (qiqi, sosuke) or --base")
    what = BASE if args.base else args.world.lower()
    plan = plan_fetch(what, args.out or Path("downloads" if args.base else f"worlds/{what}"), encoders=args.towers)
    sys.stdout.write(plan_text(plan))
    if plan.steps and not args.yes and not confirmed("Download this, under these licences?"):
        sys.stdout.write("Nothing was downloaded.\n")
        return 1
    with ProgressLine() as line:
        fetch(plan, _sum_shown(line, plan.bytes))
    sys.stdout.write(f"All files are there. {_next_step(plan)}\n")
    return 0


def _next_step(plan: FetchPlan) -> str:
    """The command that uses what was downloaded."""
    if plan.world != BASE:
        return f"Play with: {PROGRAM} play --world {shell_word(plan.out)}"
    folders = base_folders.find_base(plan.out)
    if folders is None:
        raise CheckpointError(f"{plan.out}: {COGVIDEO} no longer has transformer/, which a new world needs")
    given = {"cogvideox": folders.cogvideox, "mistral": folders.mistral, "t5": folders.t5, "clip": folders.clip}
    options = " ".join(f"--{name} {shell_word(path)}" for name, path in given.items() if path is not None)
    return f"Make a world with: {PROGRAM} new --spec release {options} --out worlds/mine"


def _sum_shown(line: ProgressLine, total: int) -> OnBytes:
    """A callback that shows the sum of the bytes it is given, of `total` (0: not known)."""
    done = 0

    def count(new: int, what: str) -> None:
        nonlocal done
        done += new
        line.show(done, total, what)

    return count
