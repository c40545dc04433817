"""Download published worlds and the free base models from the Hugging Face hub.

A published world is converted as it is downloaded, one model at a time, so that the disk holds one model's downloads
besides the world. The base models stay as they are; `new` reads them. Files are fetched by `huggingface_hub`'s own
`http_get`: its `snapshot_download` begins a large file again after a stop. HF_ENDPOINT, HF_TOKEN and proxies hold.
"""

from __future__ import annotations

import io
import re
import shutil
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ..files import is_inside, locked, make_folder, rename, room_for, sync_file
from ..messages import shortened
from .downloads import ANIMEGAMER, BASE_LICENCE, COGVIDEO, LANGUAGE_MODELS, LICENCE, MISTRAL
from .storage import CheckpointError, check_room, find_safetensors, note_of
from .world import EMBEDDED, MANIFEST, open_world

OnBytes = Callable[[int, str], None]  # (bytes just done, what they belong to)

LOCK, DOWNLOADS = ".fetch.lock", ".downloads"
BASE = "base models"
CLIP = "laion/CLIP-ViT-B-16-laion2B-s34B-b88K"
FULL_ENGINE_BYTES = 10 * 10**9  # 7 billion numbers take 14 GB or more; a smaller engine holds only what was trained

_TOKENIZER = r"config\.json|tokenizer\.json|tokenizer\.model"
_LLM = r"model[\w.-]*\.safetensors(?:\.index\.json)?"
_VAE = r"vae/(?:config\.json|diffusion_pytorch_model\.safetensors)"
_T5 = rf"text_encoder/(?:config\.json|{_LLM})|tokenizer/(?:spiece\.model|[\w-]+\.json)"
_TRANSFORMER = r"transformer/(?:config\.json|diffusion_pytorch_model[\w.-]*\.safetensors(?:\.index\.json)?)"
_CLIP = r"open_clip_config\.json|open_clip_pytorch_model\.bin"


@dataclass(frozen=True)
class Piece:
    """A model that is downloaded. files: repository -> pattern of its files' whole paths, {film} for the world's name.

    parts: what it becomes in a world folder; empty for base models, which stay in `folder`. bytes: about, in 16 bits;
    the hub knows the real sizes before a download begins.
    """

    folder: str
    what: str
    bytes: int
    files: Mapping[str, str]
    parts: tuple[str, ...] = ()


# the largest first: the later ones then need no more room than it did
WORLD_PIECES = (
    Piece(
        "engine",
        "the game engine",
        15 * 10**9,
        {
            ANIMEGAMER: r"MLLM-{film}/(?:(?:pytorch_)?model.*\.(?:bin|safetensors|json)|(?:adapter_config|spec)\.json)",
            MISTRAL: _TOKENIZER,
        },
        ("engine",),
    ),
    Piece(
        "decoder",
        "the shot decoder",
        44 * 10**8,
        {
            ANIMEGAMER: r"VDM_Decoder-{film}/(?:latest|spec\.json|(?:[0-9]+|release)/mp_rank_00_model_states\.pt)",
            COGVIDEO: _VAE,
        },
        ("vae", "decoder", "encoder"),
    ),
)
ENCODER_PIECES = (
    Piece("encoder/text_tower", "the text encoder", 95 * 10**8, {COGVIDEO: _T5}, ("text_tower",)),
    Piece("encoder/image_tower", "the image encoder", 600 * 10**6, {CLIP: _CLIP}, ("image_tower",)),
)


def base_pieces(mistral: str) -> tuple[Piece, ...]:
    """The base models. mistral: a name of LANGUAGE_MODELS."""
    return (
        Piece("CogVideoX-2b/transformer", "the video model", 34 * 10**8, {COGVIDEO: _TRANSFORMER}),
        Piece("CogVideoX-2b/vae", "the VAE", 430 * 10**6, {COGVIDEO: _VAE}),
        Piece("CogVideoX-2b/text_encoder", "T5", 95 * 10**8, {COGVIDEO: _T5}),
        Piece(mistral, "the language model", 145 * 10**8, {f"mistralai/{mistral}": rf"{_TOKENIZER}|{_LLM}"}),
        Piece(CLIP.partition("/")[2], "the image encoder", 600 * 10**6, {CLIP: _CLIP}),
    )


def missing_pieces(world: str, out: Path, encoders: bool = False) -> tuple[Piece, ...]:
    """What a world, or BASE, lacks in the folder `out`; asks no hub, imports no torch. encoders: also T5 and CLIP."""
    if world == BASE:
        there = (model.name for model in LANGUAGE_MODELS if _has_weights(out / model.name))
        pieces = base_pieces(next(there, LANGUAGE_MODELS[0].name))
        return tuple(piece for piece in pieces if not _has_weights(out / piece.folder))
    made = open_world(out) if (out / MANIFEST).is_file() else None
    known = (*WORLD_PIECES, *(ENCODER_PIECES if encoders else ()))
    return tuple(piece for piece in known if made is None or not all(map(made.has, piece.parts)))


def _has_weights(folder: Path) -> bool:
    """Whether a folder of a base model has all its weight files, by their names."""
    found = find_safetensors(folder, "model") or find_safetensors(folder, "diffusion_pytorch_model")
    return all(path.is_file() for path in found or (folder / "open_clip_pytorch_model.bin",))


def missing_text(pieces: tuple[Piece, ...]) -> str:
    """Pieces with their sizes, and the sum."""
    texts = [f"{piece.folder} ({piece.what}, about {size_text(piece.bytes)})" for piece in pieces]
    return f"{', '.join(texts)}; {size_text(sum(piece.bytes for piece in pieces))} in all"


def size_text(size: int) -> str:
    """A size in GB or MB."""
    return f"{size / 1e9:.1f} GB" if size >= 10**8 else f"{size / 1e6:.1f} MB"


@dataclass(frozen=True)
class HubFile:
    """One file of a repository at one revision, and where it goes. sha256: empty for small texts, which have none."""

    repo: str
    revision: str
    path: str
    local: Path
    bytes: int
    sha256: str

    @property
    def part(self) -> Path:
        """The file while it is downloaded; another revision of large files has another one."""
        return self.local.with_name(f"{self.local.name}.{self.sha256[:8]}.part")

    @property
    def is_done(self) -> bool:
        """Whether it is there under its name, and not only all of its bytes."""
        return self.local.is_file() and self.local.stat().st_size == self.bytes

    @property
    def remaining(self) -> int:
        """Bytes that are still to download."""
        if self.is_done:
            return 0
        return max(0, self.bytes - (self.part.stat().st_size if self.part.is_file() else 0))


@dataclass(frozen=True)
class FetchPlan:
    """What is to be downloaded. steps: each missing piece with its files. licences: repository -> as stated there.

    world: its name, or BASE. room: bytes that the disk needs at most, downloads and converted models together.
    """

    world: str
    out: Path
    steps: tuple[tuple[Piece, tuple[HubFile, ...]], ...]
    licences: Mapping[str, str]

    @property
    def bytes(self) -> int:
        """Bytes that are still to download."""
        return sum(file.remaining for _, files in self.steps for file in files)

    @property
    def room(self) -> int:
        """Bytes that the disk needs at most."""
        if self.world == BASE:
            return self.bytes
        sizes = [sum(file.bytes for file in files) for _, files in self.steps]
        return max((total + size for total, size in zip(accumulate(sizes), sizes, strict=True)), default=0)


def plan_fetch(
    world: str, out: str | Path, *, encoders: bool = False, mistral: str = LANGUAGE_MODELS[0].name
) -> FetchPlan:
    """Plan what `world` (qiqi, sosuke, or BASE) still needs in the folder `out`; downloads nothing.

    encoders: also the text and image encoder, needed only to encode shots. mistral: the language model of BASE.
    CheckpointError: no such world, no access, no connection, or a full disk.
    """
    if world in EMBEDDED:
        raise CheckpointError(f"{world}: comes with this program; nothing to download")
    out = Path(out)
    pieces = base_pieces(mistral) if world == BASE else missing_pieces(world, out, encoders)
    repos = dict.fromkeys(repo for piece in pieces for repo in piece.files)
    listings = {repo: _list_repository(repo) for repo in repos}
    downloads = out if world == BASE else out / DOWNLOADS
    found = ((piece, tuple(_choose(piece, world, listings, downloads))) for piece in pieces)
    steps = tuple(step for step in found if step[0].parts or not all(file.is_done for file in step[1]))
    plan = FetchPlan(world, out, steps, {repo: info.licence for repo, info in listings.items()})
    check_room(out, plan.room, "are needed, downloads and converted models together,")
    return plan


def fetch(plan: FetchPlan, on_bytes: OnBytes) -> None:
    """Download what the plan lists and convert it. A second run goes on where one was stopped."""
    from .convert import convert

    with locked(plan.out / LOCK, f"{plan.out}: another fetch is running here; wait for it, or stop it"):
        for piece, files in plan.steps:
            for file in files:
                if not file.is_done:
                    download(file, on_bytes)
            if piece.parts:
                downloads = plan.out / DOWNLOADS
                show = lambda _done, _total, what: on_bytes(0, f"converting {what}")  # noqa: E731
                convert(downloads, plan.out, show, name=plan.world, parts=piece.parts)
                shutil.rmtree(downloads)


def download(file: HubFile, on_bytes: OnBytes) -> None:
    """Download one file, or the rest of it; it gets its name only when it is whole and verified.

    What has arrived is kept if on_bytes raises, which it is called often enough to do.
    """
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import build_hf_headers, disable_progress_bars

    make_folder(file.local.parent)
    disable_progress_bars("huggingface_hub.http_get")
    url = hf_hub_url(file.repo, file.path, revision=file.revision, endpoint=constants.ENDPOINT)
    mismatch = (
        f"{file.repo}/{file.path}: the download does not match the hub's list (expected {file.bytes} bytes with "
        f"sha256 {file.sha256[:12]}...), so it was removed; try again"
    )

    def count(size: int) -> None:
        if part.tell() + size > file.bytes:  # what a server sends without end would fill the disk
            part.truncate(0)
            raise CheckpointError(mismatch)
        on_bytes(size, file.local.name)

    with room_for(file.local), _in_one_sentence(file.repo), _Counted(file.part, "a") as part:
        part.report = count
        done = part.seek(0, io.SEEK_END)
        if done < file.bytes:
            http_get(url, part, resume_size=done, headers=build_hf_headers(), expected_size=file.bytes)
    sync_file(file.part)
    if file.part.stat().st_size != file.bytes or (file.sha256 and note_of(file.part).sha256 != file.sha256):
        file.part.unlink()
        raise CheckpointError(mismatch)
    rename(file.part, file.local)


class _Counted(io.FileIO):
    """A file that reports how much is written to it."""

    report: Callable[[int], None]

    def write(self, data: typing.Any) -> int:
        self.report(len(data))
        left = memoryview(data)
        while left:  # a disk that is almost full takes a part, and refuses the next one
            left = left[super().write(left) :]
        return len(data)


class _Listing(typing.NamedTuple):
    """What a repository holds: its licence as stated there, and path -> (bytes, sha256 or "")."""

    revision: str
    licence: str
    files: Mapping[str, tuple[int, str]]

    def matching(self, pattern: str, world: str) -> list[str]:
        """The paths that a pattern of a piece matches."""
        compiled = re.compile(pattern.replace("{film}", re.escape(world)), re.IGNORECASE)
        return [path for path in self.files if compiled.fullmatch(path)]


def _list_repository(repo: str) -> _Listing:
    """The latest revision of a repository. CheckpointError also where its owner asks for a login or consent first."""
    from huggingface_hub import HfApi, constants

    with _in_one_sentence(repo):
        hub = HfApi(endpoint=constants.ENDPOINT)
        hub.auth_check(repo)
        found = hub.model_info(repo, files_metadata=True)
    stated = [tag.partition(":")[2] for tag in found.tags or () if tag.startswith("license:")]
    files = {file.rfilename: (file.size or 0, file.lfs.sha256 if file.lfs else "") for file in found.siblings or ()}
    return _Listing(found.sha or "main", ", ".join(stated) or "not stated there", files)


def _choose(piece: Piece, world: str, listings: Mapping[str, _Listing], downloads: Path) -> Iterator[HubFile]:
    """The files of a piece, and Mistral's weights where the published engine holds only what was trained."""
    wanted = dict(piece.files)
    if piece.folder == "engine":
        published = listings[ANIMEGAMER]
        if sum(published.files[path][0] for path in published.matching(wanted[ANIMEGAMER], world)) < FULL_ENGINE_BYTES:
            wanted[MISTRAL] = rf"{_TOKENIZER}|{_LLM}"
    for repo, pattern in wanted.items():
        listing = listings[repo]
        found = listing.matching(pattern, world)
        if not found:
            raise CheckpointError(f"{repo}: has no file for {piece.what} of {world}; is the name right?")
        for path in found:
            if not is_inside(path):
                raise CheckpointError(f"{repo}/{shortened(path, 80)}: not a file name on every system; not downloaded")
            yield HubFile(repo, listing.revision, path, downloads / repo.partition("/")[2] / path, *listing.files[path])


@contextmanager
def _in_one_sentence(repo: str) -> Iterator[None]:
    """Turns the hub's errors into a CheckpointError that says what to do."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{repo}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{repo}: its owner asks you to agree first; accept the licence at {page}, set HF_TOKEN (or run "
            "`hf auth login`), then try again"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"{repo}: no such repository at {page}, or it needs HF_TOKEN (or `hf auth login`)"
        ) from error
    except errors.OfflineModeIsEnabled as error:
        raise CheckpointError(f"{page}: HF_HUB_OFFLINE forbids requests; unset it") from error
    except (errors.HTTPError, OSError) as error:
        if getattr(error, "errno", None):  # of the disk, not of the network
            raise
        raise CheckpointError(
            f"{page}: no answer ({shortened(error)}); downloaded data is kept, so try again"
        ) from error


def plan_text(plan: FetchPlan) -> str:
    """The files of a plan with their sizes, sources and licences, and the disk that is needed."""
    lines = [f"{'Base models' if plan.world == BASE else f'World {plan.world}'} in {plan.out}:"]
    for repo, licence in plan.licences.items():
        lines.append(f"  from {repo} (licence: {licence})")
        for file in (file for _, files in plan.steps for file in files if file.repo == repo):
            left = f"  {size_text(file.remaining)} to go" if file.remaining != file.bytes else ""
            lines.append(f"    {size_text(file.bytes):>9}  {file.path}{left}")
    notice, converted = (BASE_LICENCE, "") if plan.world == BASE else (LICENCE, ", which is converted as it comes")
    room = f"The disk needs {size_text(plan.room)}."
    return "\n".join([*lines, "", notice, f"To download: {size_text(plan.bytes)}{converted}. {room}", ""])
