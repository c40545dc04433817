"""`fetch WORLD`, `fetch --base`: downloads the published files of a world, or the free base models that a new world
begins from, after saying what, from where and under which licence.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..files import locked
from ..spec import PROGRAM
from . import base_folders
from .downloads import ANIMEGAMER, COGVIDEO, LICENCE, MISTRAL, published_worlds
from .hub import HubFile, Listing, OnBytes, check_access, download, list_repository
from .show import ProgressLine
from .storage import CheckpointError
from .world import EMBEDDED

CLIP = "laion/CLIP-ViT-B-16-laion2B-s34B-b88K"
FULL_ENGINE_BYTES = 10 * 10**9  # 7 billion numbers take 14 GB or more; a smaller engine holds only what was trained

LOCK = ".fetch.lock"
BASE = "base models"

# path in the repository -> place below the folder of downloads
Patterns = Mapping[str, str]
PAIR = {  # what is taken of each folder of a world's pair
    "MLLM": r"(?:pytorch_)?model[\w.-]*\.(?:bin|safetensors|index\.json)|adapter_config\.json",
    "VDM_Decoder": r"latest|(?:[0-9]+|release)/mp_rank_00_model_states\.pt",
}
_TOKENIZER: Patterns = {r"(config\.json|tokenizer\.json|tokenizer\.model)": r"Mistral-7B-Instruct-v0.1/\1"}
_BASE: Patterns = {r"(model[\w.-]*\.safetensors(?:\.index\.json)?)": r"Mistral-7B-Instruct-v0.1/\1"}
_VAE: Patterns = {r"(vae/(?:config\.json|diffusion_pytorch_model\.safetensors))": r"CogVideoX-2b/\1"}
_TEXT_TOWER: Patterns = {
    r"text_encoder/(config\.json|model[\w.-]*\.safetensors(?:\.index\.json)?)": r"t5-v1_1-xxl/\1",
    r"tokenizer/(spiece\.model|[\w-]+\.json)": r"t5-v1_1-xxl/\1",
}
_BASE_COGVIDEO: Patterns = {
    r"(transformer/(?:config\.json|diffusion_pytorch_model[\w.-]*\.safetensors(?:\.index\.json)?))": r"CogVideoX-2b/\1",
    r"(scheduler/scheduler_config\.json|model_index\.json)": r"CogVideoX-2b/\1",
    **_VAE,
}
_BASE_TEXT: Patterns = {
    r"(text_encoder/(?:config\.json|model[\w.-]*\.safetensors(?:\.index\.json)?))": r"CogVideoX-2b/\1",
    r"(tokenizer/(?:spiece\.model|[\w-]+\.json))": r"CogVideoX-2b/\1",
}
_IMAGE_TOWER: Patterns = {r"(open_clip_config\.json|open_clip_pytorch_model\.bin)": rf"{CLIP.partition('/')[2]}/\1"}


@dataclass(frozen=True)
class FetchPlan:
    """All files of a world, those of them to download, and repository -> licence as stated on its page.

    world: its name, or BASE for the base models of a new one. notice: what people are told of the licences.
    """

    world: str
    out: Path
    files: tuple[HubFile, ...]
    todo: tuple[HubFile, ...]
    licences: Mapping[str, str]
    notice: str = LICENCE

    @property
    def bytes(self) -> int:
        """Bytes to download, after what earlier runs left."""
        return sum(file.remaining for file in self.todo)


def plan_fetch(world: str, out: str | Path, *, towers: bool = False, on_bytes: OnBytes | None = None) -> FetchPlan:
    """What `world` (qiqi, sosuke) needs below `out`, and what of it is not there yet; downloads nothing.

    Files that are there are compared with the hub's checksums. towers adds what only encoding shots needs.
    CheckpointError: no such world, no access, no connection, or not room enough on the disk.
    """
    if world in EMBEDDED:
        raise CheckpointError(f"{world}: comes with this program; there is nothing to download")
    folder = Path(out)
    listings = _listed(ANIMEGAMER, MISTRAL, COGVIDEO, *((CLIP,) if towers else ()))
    return _plan(world.lower(), folder, _choose(listings, world, folder, towers), listings, on_bytes)


def plan_base(out: str | Path, *, on_bytes: OnBytes | None = None) -> FetchPlan:
    """What a new world needs below `out`: CogVideoX-2b, Mistral-7B-Instruct-v0.1 and CLIP; as `plan_fetch`.

    T5 comes as CogVideoX-2b's text encoder, or goes on as t5-v1_1-xxl where `fetch WORLD --towers` began it.
    """
    folder, listings = Path(out), _listed(COGVIDEO, MISTRAL, CLIP)
    text = _TEXT_TOWER if (folder / base_folders.T5).is_dir() else _BASE_TEXT
    wanted = {COGVIDEO: {**_BASE_COGVIDEO, **text}, MISTRAL: {**_TOKENIZER, **_BASE}, CLIP: _IMAGE_TOWER}
    files = [
        file
        for repo, patterns in wanted.items()
        for one in patterns.items()
        for file in _picked(listings[repo], one, folder)
    ]
    plan = _plan(BASE, folder, files, listings, on_bytes)
    return replace(plan, notice=base_folders.LICENCE)


def _picked(listing: Listing, pattern: tuple[str, str], folder: Path) -> list[HubFile]:
    """The files of a repository that match a pattern; CheckpointError where there is none."""
    found = listing.pick(dict([pattern]), folder)
    if not found:
        raise CheckpointError(
            f"{listing.repo}: has no file for {pattern[1].partition('/')[0]} that matches {pattern[0]!r}"
        )
    return found


def _listed(*repos: str) -> dict[str, Listing]:
    return {repo: list_repository(repo) for repo in repos}


def _plan(
    world: str, folder: Path, files: list[HubFile], listings: Mapping[str, Listing], on_bytes: OnBytes | None
) -> FetchPlan:
    """The plan of these files, once access and room on the disk are certain."""
    todo = tuple(file for file in files if not file.is_whole(file.local, on_bytes))
    licences = {repo: listings[repo].licence for repo in dict.fromkeys(file.repo for file in files)}
    plan = FetchPlan(world, folder, tuple(files), todo, licences)
    for repo in dict.fromkeys(file.repo for file in todo):
        check_access(repo)
    _check_room(plan)
    return plan


def fetch(plan: FetchPlan, on_bytes: OnBytes) -> None:
    """Download what the plan lists. Every file appears whole and verified, or not at all; a second run goes on."""
    with locked(plan.out / LOCK, f"{plan.out}: another fetch is at work here; wait for it, or stop it"):
        for file in sorted(plan.todo, key=lambda file: file.bytes):
            if not file.is_whole(file.local):  # else another fetch has brought it since the plan was made
                download(file, on_bytes)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of `python -m animegamer_core fetch`."""
    parser.add_argument("world", metavar="WORLD", nargs="?", help="qiqi or sosuke")
    parser.add_argument("--base", action="store_true", help="the free base models that `new` makes a world of")
    parser.add_argument("--out", metavar="DIR", type=Path, default=Path("downloads"), help="default %(default)s")
    parser.add_argument(
        "--towers", action="store_true", help="also T5 and CLIP, which only encoding shots needs; --base has them"
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")


def run(args: argparse.Namespace) -> int:
    """Say what it takes, ask, download; 1 if the answer is no. ValueError unless a world or --base is given."""
    if args.base == (args.world is not None):
        raise ValueError("give either the name of a world (qiqi, sosuke) or --base")
    with ProgressLine() as line:
        seen = _counted(line, 0)
        if args.base:
            plan = plan_base(args.out, on_bytes=seen)
        else:
            plan = plan_fetch(args.world, args.out, towers=args.towers, on_bytes=seen)
    sys.stdout.write(_described(plan))
    if plan.todo and not (args.yes or _agreed()):
        sys.stdout.write("Nothing was downloaded.\n")
        return 1
    with ProgressLine() as line:
        fetch(plan, _counted(line, plan.bytes))
    sys.stdout.write(f"All there. {_next_step(plan)}\n")
    return 0


def _next_step(plan: FetchPlan) -> str:
    """The command that takes what was downloaded."""
    if plan.world != BASE:
        several = len(published_worlds(plan.out)) > 1
        place = plan.out / plan.world if several else plan.out
        return f"Play with: {PROGRAM} play --world {place}"
    folders = base_folders.find_base(plan.out)
    if folders is None:
        raise CheckpointError(f"{plan.out}: {COGVIDEO} has no transformer/ any more, so no world can begin from it")
    given = {"cogvideox": folders.cogvideox, "mistral": folders.mistral, "t5": folders.t5, "clip": folders.clip}
    options = " ".join(f"--{name} {shlex.quote(str(path))}" for name, path in given.items() if path is not None)
    return f"Begin a world with: {PROGRAM} new --spec release {options} --out worlds/mine"


def _choose(listings: Mapping[str, Listing], world: str, out: Path, towers: bool) -> list[HubFile]:
    """The files that a world is made of."""
    released = listings[ANIMEGAMER]
    pair = {
        kind: released.pick({rf"(?:.*/)?((?i:{kind}-{re.escape(world)})/(?:{inside}))": r"\1"}, out)
        for kind, inside in PAIR.items()
    }
    for kind, found in pair.items():
        if not found:
            names = {match[1].lower() for path in released.files if (match := re.search(r"(?:^|/)MLLM-([^/]+)/", path))}
            raise CheckpointError(
                f"{world}: {ANIMEGAMER} has no {kind}-{world}/; it holds {', '.join(sorted(names)) or 'no world'}"
            )
    files = [*pair["MLLM"], *pair["VDM_Decoder"], *listings[MISTRAL].pick(_TOKENIZER, out)]
    if sum(file.bytes for file in pair["MLLM"]) < FULL_ENGINE_BYTES:
        files += listings[MISTRAL].pick(_BASE, out)
    if not (out / "3d-vae.pt").is_file():  # the same VAE in the form of the published scripts
        files += listings[COGVIDEO].pick(_VAE, out)
    if towers:
        files += [*listings[COGVIDEO].pick(_TEXT_TOWER, out), *listings[CLIP].pick(_IMAGE_TOWER, out)]
    return files


def _check_room(plan: FetchPlan) -> None:
    there = next(folder for folder in (plan.out.absolute(), *plan.out.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    if free < plan.bytes:
        raise CheckpointError(
            f"{plan.out}: {_size(plan.bytes)} to download and {_size(free)} free; choose another disk with --out"
        )


def _described(plan: FetchPlan) -> str:
    """The plan for people."""
    lines = [f"{'Base models' if plan.world == BASE else f'World {plan.world}'} in {plan.out}:"]
    for repo, licence in plan.licences.items():
        lines.append(f"  from {repo} (licence: {licence})")
        lines += (_line(file, file in plan.todo) for file in plan.files if file.repo == repo)
    return "\n".join([*lines, "", plan.notice, f"To download: {_size(plan.bytes)}.", ""])


def _line(file: HubFile, wanted: bool) -> str:
    state = "there" if not wanted else "" if file.remaining == file.bytes else f"{_size(file.remaining)} to go"
    return f"    {_size(file.bytes):>9}  {file.local.parent.name}/{file.local.name}  {state}".rstrip()


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


def _agreed() -> bool:
    sys.stdout.write("Download this, under these licences? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _counted(line: ProgressLine, total: int) -> OnBytes:
    """Shows the sum of what is reported, of `total` bytes (0: not known)."""
    done = 0

    def count(new: int, what: str) -> None:
        nonlocal done
        done += new
        line.show(done, total, what)

    return count
