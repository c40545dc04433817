"""Plan and download the published files of a world, or the free base models of a new world."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ..files import locked
from . import base_folders
from .downloads import ANIMEGAMER, COGVIDEO, LICENCE, MISTRAL
from .hub import HubFile, Listing, OnBytes, check_access, download, list_repository
from .pieces import CLIP_REPO as CLIP
from .pieces import FULL_ENGINE_BYTES, size_text
from .storage import CheckpointError, check_room
from .world import EMBEDDED

LOCK = ".fetch.lock"
BASE = "base models"

# path in the repository -> path below the folder of downloads
Patterns = Mapping[str, str]
PAIR = {  # the files to take from each folder of a world's pair
    "MLLM": r"(?:pytorch_)?model[\w.-]*\.(?:bin|safetensors|index\.json)|adapter_config\.json",
    "VDM_Decoder": r"latest|(?:[0-9]+|release)/mp_rank_00_model_states\.pt",
}
_TOKENIZER: Patterns = {r"(config\.json|tokenizer\.json|tokenizer\.model)": r"Mistral-7B-Instruct-v0.1/\1"}
_BASE: Patterns = {r"(model[\w.-]*\.safetensors(?:\.index\.json)?)": r"Mistral-7B-Instruct-v0.1/\1"}
_VAE: Patterns = {r"(vae/(?:config\.json|diffusion_pytorch_model\.safetensors))": r"CogVideoX-2b/\1"}
_TEXT_ENCODER: Patterns = {
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
_IMAGE_ENCODER: Patterns = {r"(open_clip_config\.json|open_clip_pytorch_model\.bin)": rf"{CLIP.partition('/')[2]}/\1"}


@dataclass(frozen=True)
class FetchPlan:
    """All files of a world, those that are missing, and repository -> licence as stated on its page.

    world: its name, or BASE for the base models of a new one. notice: the text about licences to show.
    """

    world: str
    out: Path
    files: tuple[HubFile, ...]
    todo: tuple[HubFile, ...]
    licences: Mapping[str, str]
    notice: str = LICENCE

    @property
    def bytes(self) -> int:
        """Bytes that are still to download."""
        return sum(file.remaining for file in self.todo)


def plan_fetch(world: str, out: str | Path, *, encoders: bool = False, on_bytes: OnBytes | None = None) -> FetchPlan:
    """Plan what `world` (qiqi, sosuke) needs below `out`; downloads nothing.

    Files that are there are compared with the hub's checksums. encoders: also the text
    and image encoder, needed only to encode shots.
    CheckpointError: no such world, no access, no connection, or a full disk.
    """
    if world in EMBEDDED:
        raise CheckpointError(f"{world}: comes with this program; nothing to download")
    folder = Path(out)
    listings = _listed(ANIMEGAMER, MISTRAL, COGVIDEO, *((CLIP,) if encoders else ()))
    return _plan(world.lower(), folder, _choose(listings, world, folder, encoders), listings, on_bytes)


def plan_base(out: str | Path, *, on_bytes: OnBytes | None = None) -> FetchPlan:
    """Plan what a new world needs below `out`: CogVideoX-2b, Mistral-7B-Instruct-v0.1 and CLIP; as `plan_fetch`.

    T5 comes as CogVideoX-2b's text encoder, or into t5-v1_1-xxl if `fetch WORLD --towers` made that folder.
    """
    folder, listings = Path(out), _listed(COGVIDEO, MISTRAL, CLIP)
    text = _TEXT_ENCODER if (folder / base_folders.T5).is_dir() else _BASE_TEXT
    wanted = {COGVIDEO: {**_BASE_COGVIDEO, **text}, MISTRAL: {**_TOKENIZER, **_BASE}, CLIP: _IMAGE_ENCODER}
    files = []
    for repo, patterns in wanted.items():
        for pattern, target in patterns.items():
            found = listings[repo].pick({pattern: target}, folder)
            if not found:
                raise CheckpointError(f"{repo}: has no file for {target.partition('/')[0]} that matches {pattern!r}")
            files += found
    plan = _plan(BASE, folder, files, listings, on_bytes)
    return replace(plan, notice=base_folders.LICENCE)


def _listed(*repos: str) -> dict[str, Listing]:
    return {repo: list_repository(repo) for repo in repos}


def _plan(
    world: str, folder: Path, files: list[HubFile], listings: Mapping[str, Listing], on_bytes: OnBytes | None
) -> FetchPlan:
    """The plan of these files; checks access and room on the disk."""
    todo = tuple(file for file in files if not file.is_whole(file.local, on_bytes))
    licences = {repo: listings[repo].licence for repo in dict.fromkeys(file.repo for file in files)}
    plan = FetchPlan(world, folder, tuple(files), todo, licences)
    for repo in dict.fromkeys(file.repo for file in todo):
        check_access(repo)
    check_room(folder, plan.bytes, "to download")
    return plan


def fetch(plan: FetchPlan, on_bytes: OnBytes) -> None:
    """Download what the plan lists. A file gets its name when it is whole and verified; a second run resumes."""
    with locked(plan.out / LOCK, f"{plan.out}: another fetch is running here; wait for it, or stop it"):
        for file in sorted(plan.todo, key=lambda file: file.bytes):
            if not file.is_whole(file.local):  # another fetch may have downloaded it since the plan was made
                download(file, on_bytes)


def _choose(listings: Mapping[str, Listing], world: str, out: Path, encoders: bool) -> list[HubFile]:
    """The files of a world."""
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
    if encoders:
        files += [*listings[COGVIDEO].pick(_TEXT_ENCODER, out), *listings[CLIP].pick(_IMAGE_ENCODER, out)]
    return files


def plan_text(plan: FetchPlan) -> str:
    """The files of a plan with their sizes, sources and licences."""
    lines = [f"{'Base models' if plan.world == BASE else f'World {plan.world}'} in {plan.out}:"]
    for repo, licence in plan.licences.items():
        lines.append(f"  from {repo} (licence: {licence})")
        lines += (_file_line(file, file in plan.todo) for file in plan.files if file.repo == repo)
    return "\n".join([*lines, "", plan.notice, f"To download: {size_text(plan.bytes)}.", ""])


def _file_line(file: HubFile, wanted: bool) -> str:
    state = "there" if not wanted else "" if file.remaining == file.bytes else f"{size_text(file.remaining)} to go"
    return f"    {size_text(file.bytes):>9}  {file.local.parent.name}/{file.local.name}  {state}".rstrip()
