"""Files on the Hugging Face hub: listed with their checksums, downloaded in blocks that resume, verified.

The requests go through `huggingface_hub`'s session, so HF_ENDPOINT, HF_TOKEN and proxies hold. Its own calls wait
for ever where a server falls silent, read answers of any size into memory, and start a broken file again from the
beginning; here time and sizes have limits, and every byte of a file that has arrived is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urljoin, urlsplit

import msgspec

from ..files import is_inside, make_folder, rename, room_for, sync_folder
from ..json_files import JsonError, parse_json
from ..messages import brief
from ..network import PLAIN, limited, within
from .storage import CheckpointError

OnBytes = Callable[[int, str], None]  # (bytes just done, what they belong to)

BLOCK, LARGEST_BLOCK = 8 << 20, 64 << 20  # a request asks for as much as is there already, within these bounds
LARGEST_ANSWER = 16 << 20  # bytes of a listing, which takes some KB
SILENCE = 60.0  # seconds that a server may take for an answer's first byte, and between two
SLOWEST = 1 << 20  # bytes of a file that have to come in that time, else the request is made again
PROGRESS = 1 << 16  # bytes that count as progress if they came at that rate
TRIES, WAIT = 5, 1.0  # requests in vain, one after another; seconds before the second one, doubled each time
REDIRECTS = 5
SHORT_BODY = 1 << 16  # bytes of a redirect
LONGEST_PAUSE = 300.0  # seconds that are waited because the hub asks for it
PART = ".part"  # ends the name of a file that is not whole yet


@dataclass(frozen=True)
class HubFile:
    """One file of a repository at one revision, and where it goes. `checksum` is its sha256, or git's own of a text."""

    repo: str
    revision: str
    path: str
    local: Path
    bytes: int
    checksum: str

    @property
    def part(self) -> Path:
        """The temporary file of the download; another revision has another one."""
        return self.local.with_name(f"{self.local.name}.{self.checksum[:8]}{PART}")

    @property
    def remaining(self) -> int:
        """Bytes that are still to download."""
        left = _size_without_zeros(self.part) if self.part.is_file() else 0
        return self.bytes - left if left <= self.bytes else self.bytes

    def is_whole(self, path: Path, on_bytes: OnBytes | None = None) -> bool:
        """Whether `path` holds exactly this file."""
        if not path.is_file() or path.stat().st_size != self.bytes:
            return False
        digest = hashlib.sha256()
        if len(self.checksum) == 40:  # git names a text by the sha1 of its size and content
            digest = hashlib.sha1(f"blob {self.bytes}\0".encode(), usedforsecurity=False)
        with path.open("rb") as file:
            while block := file.read(BLOCK):
                digest.update(block)
                if on_bytes is not None:
                    on_bytes(len(block), f"checking {self.local.name}")
        return digest.hexdigest() == self.checksum


@dataclass(frozen=True)
class Listing:
    """What a repository holds: its licence as stated there, and path -> (bytes, checksum)."""

    repo: str
    revision: str
    licence: str
    files: Mapping[str, tuple[int, str]]

    def pick(self, patterns: Mapping[str, str], out: Path) -> list[HubFile]:
        """The files whose whole path matches a pattern, each with its path below `out` (the pattern's value)."""
        found = []
        for path, (size, checksum) in self.files.items():
            for pattern, target in patterns.items():
                if match := re.fullmatch(pattern, path):
                    if not checksum:
                        raise CheckpointError(
                            f"{self.repo}/{path}: the hub lists no checksum, so it cannot be verified"
                        )
                    if not is_inside(place := match.expand(target)):
                        raise CheckpointError(
                            f"{self.repo}/{brief(path, 80)}: not a file name on every system, so it is not downloaded"
                        )
                    found.append(HubFile(self.repo, self.revision, path, out / place, size, checksum))
        return found


class _Lfs(msgspec.Struct):
    sha256: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$")]


class _Sibling(msgspec.Struct):
    rfilename: Annotated[str, msgspec.Meta(max_length=1000)]
    size: Annotated[int, msgspec.Meta(ge=0, le=1 << 50)] | None = None
    blobId: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")] | None = None
    lfs: _Lfs | None = None


class _Repository(msgspec.Struct):
    """What the hub answers to /api/models/NAME; other fields are passed over."""

    siblings: list[_Sibling]
    sha: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")] = "main"
    tags: list[str] = []


def list_repository(repo: str) -> Listing:
    """The latest revision of a public or gated repository."""
    url = f"{_endpoint()}/api/models/{repo}"
    try:
        found = parse_json(_answer(repo, f"{url}?blobs=true"), _Repository, url)
    except JsonError as error:
        raise CheckpointError(f"{error}; expected the hub's list of files") from error
    files = {
        file.rfilename: (file.size or 0, file.lfs.sha256 if file.lfs else file.blobId or "") for file in found.siblings
    }
    stated = [tag.partition(":")[2] for tag in found.tags if tag.startswith("license:")]
    return Listing(repo, found.sha, ", ".join(stated) or "not stated there", files)


def check_access(repo: str) -> None:
    """CheckpointError with what to do, where the repository's owner asks for a login or for consent first."""
    _answer(repo, f"{_endpoint()}/api/models/{repo}/auth-check")


def download(file: HubFile, on_bytes: OnBytes) -> None:
    """Download one file, or the rest of it; it gets its name only when it is whole and verified.

    What has arrived is kept if on_bytes raises, which it is called often enough to do.
    """
    make_folder(file.part.parent)
    for old in file.local.parent.glob(f"{file.local.name}.{'?' * 8}{PART}"):  # not of a file with a longer name
        if old != file.part:
            old.unlink()
    kept = file.bytes - file.remaining
    for start in sorted({kept, max(0, kept - LARGEST_BLOCK)}, reverse=True):  # a power cut may have torn the last block
        _append_rest(file, start, on_bytes)
        if file.is_whole(file.part, lambda _, what: on_bytes(0, what)):
            return rename(file.part, file.local)
    file.part.unlink()
    raise CheckpointError(
        f"{file.repo}/{file.path}: the download does not match the hub's list (expected {file.bytes} bytes with "
        f"checksum {file.checksum[:12]}...), so it was removed; try again"
    )


def _size_without_zeros(path: Path) -> int:
    """A file's size without zeros at its end: a power cut may leave them of a block that was not flushed."""
    size = path.stat().st_size
    end = size
    with path.open("rb") as file:
        while end > max(0, size - LARGEST_BLOCK):
            start = max(0, end - (1 << 16))
            file.seek(start)
            if block := file.read(end - start).rstrip(b"\0"):
                return start + len(block)
            end = start
    return end


def _append_rest(file: HubFile, done: int, on_bytes: OnBytes) -> None:
    """Bring the temporary file from `done` bytes, which are there, to its size; each block is flushed to disk."""
    tries, counted, since = 0, done, time.monotonic()
    with room_for(file.local), file.part.open("r+b" if done else "wb") as part:
        sync_folder(file.part.parent)
        part.truncate(done)
        part.seek(done)
        while done < file.bytes:
            failure, pause = "", 0.0
            try:
                for chunk in _rest(file, done):
                    done += part.write(chunk)
                    on_bytes(len(chunk), file.local.name)
            except _Broken as error:
                failure, pause = str(error), error.pause
            part.flush()
            os.fsync(part.fileno())
            tries += 1
            if _is_progress(done - counted, time.monotonic() - since):
                tries, counted, since = 0, done, time.monotonic()
            if tries == TRIES and done < file.bytes:
                where = f"after {done} of {file.bytes} bytes of {file.path}"
                raise _no_answer(file.repo, f"{failure or 'an empty answer'} {where}")
            if failure:
                _wait(max(pause, WAIT * 2**tries), lambda: on_bytes(0, file.local.name))


def _is_progress(arrived: int, seconds: float) -> bool:
    """Whether bytes came fast enough to go on. After waits, however long, a whole block always is."""
    return arrived >= max(PROGRESS, SLOWEST * min(seconds / SILENCE, TRIES))


def _wait(seconds: float, act: Callable[[], object]) -> None:
    """Wait; calls `act` about once a second, and an exception from it ends the wait."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        act()
        time.sleep(min(1.0, left))


class _Broken(Exception):
    """A request that came to nothing, and may be made again after `pause` seconds."""

    def __init__(self, why: str, pause: float = 0.0) -> None:
        super().__init__(why)
        self.pause = pause


def _rest(file: HubFile, start: int) -> Iterator[bytes]:
    """The bytes of a file from `start`: a block, or all of the rest from a server that knows no ranges."""
    from huggingface_hub import hf_hub_url

    end = min(start + min(max(start, BLOCK), LARGEST_BLOCK), file.bytes)
    url = hf_hub_url(file.repo, file.path, revision=file.revision, endpoint=_endpoint())
    with _response(file.repo, url, {"Range": f"bytes={start}-{end - 1}"}) as response:
        skip, size = (0, end - start) if response.status_code == 206 else (start, file.bytes)
        for chunk in _body(response, size, SLOWEST):
            yield chunk[skip:]
            skip = max(0, skip - len(chunk))


def _answer(repo: str, url: str) -> bytes:
    """The whole of a small answer, after further tries if need be."""
    for tries in range(1, TRIES + 1):
        try:
            with _response(repo, url, {}) as response:
                data = b"".join(_body(response, LARGEST_ANSWER + 1))
        except _Broken as error:
            if tries == TRIES:
                raise _no_answer(repo, str(error)) from error
            time.sleep(max(error.pause, WAIT * 2 ** (tries - 1)))
        else:
            if len(data) > LARGEST_ANSWER:
                raise CheckpointError(f"{url}: the answer has more than {LARGEST_ANSWER} bytes; is this the hub?")
            return data
    raise AssertionError("unreachable: the last try returns or raises")


@contextmanager
def _response(repo: str, url: str, headers: Mapping[str, str]) -> Iterator[Any]:
    """An open answer of status 200 or 206. CheckpointError: a refusal. _Broken: what may go better next time."""
    from huggingface_hub import errors

    try:
        with _closing(_opened(url, headers)) as response:
            _check_status(repo, response)
            if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity", "aws-chunked"):
                raise CheckpointError(f"{url}: the answer is compressed, which was not requested; is this the hub?")
            yield response
    except errors.OfflineModeIsEnabled as error:
        raise CheckpointError(f"{_page(repo)}: HF_HUB_OFFLINE forbids requests; unset it") from error
    except (errors.HTTPError, OSError) as error:
        raise _Broken(f"no answer ({type(error).__name__})") from error


@contextmanager
def _closing(response: Any) -> Iterator[Any]:
    """Closes an answer in the end. With requests that waits for a read that another thread has begun: not for long."""
    try:
        yield response
    finally:
        if hasattr(response, "iter_raw"):
            response.close()
        else:
            with suppress(TimeoutError):
                within(min(1.0, SILENCE), response.close)


def _opened(url: str, headers: Mapping[str, str]) -> Any:
    """The answer with its body unread, after redirects. The token goes to the hub alone."""
    from huggingface_hub.utils import get_session

    session, sent = get_session(), {**within(SILENCE, _who_asks), **PLAIN, **headers}
    for _ in range(REDIRECTS):
        response = within(SILENCE, partial(_request, session, url, dict(sent)))
        target = response.headers.get("location") if 300 <= response.status_code < 400 else None
        if target is None:
            return response
        with _closing(response):  # a short body is read, so that its connection serves the next request
            for _ in _body(response, SHORT_BODY):
                pass
        before, url = url, _redirected(url, target)
        if urlsplit(url)[:2] != urlsplit(before)[:2]:
            sent.pop("authorization", None)
    raise OSError(f"more than {REDIRECTS} redirects")


def _who_asks() -> dict[str, str]:
    """The token, if there is one, and this program's name.

    `build_hf_headers` would first ask the hub for a list of agents, without our limits.
    """
    from huggingface_hub import __version__, constants, get_token

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    names = {"user-agent": f"ComfyUI-AnimeGamer; hf_hub/{__version__}"}
    return {**names, "authorization": f"Bearer {token}"} if token else names


def _redirected(url: str, target: str) -> str:
    """The address that a redirect of `url` leads to; OSError if it is none."""
    try:
        address = urljoin(url, target)
        parts = urlsplit(address)
        if parts.scheme in ("http", "https") and parts.hostname and parts.hostname.encode("idna") and parts.port != 0:
            return address
    except ValueError as error:
        raise OSError(f"a redirect to {brief(target, 80)}") from error
    raise OSError(f"a redirect to {brief(address, 80)}")


def _request(session: Any, url: str, headers: Mapping[str, str]) -> Any:
    if hasattr(session, "send") and hasattr(session, "build_request"):  # httpx, from huggingface_hub 1.0 on
        request = session.build_request("GET", url, headers=headers, timeout=SILENCE)
        return session.send(request, stream=True, follow_redirects=False)
    import requests  # the session itself would read the whole body of a redirect, even if it must not follow it

    request = session.prepare_request(requests.Request("GET", url, headers=headers))
    network = session.merge_environment_settings(url, {}, True, None, None)
    return session.get_adapter(url).send(request, timeout=SILENCE, **network)


def _body(response: Any, largest: int, each: int | None = None) -> Iterable[bytes]:
    if hasattr(response, "iter_raw"):
        chunks = response.iter_raw()
    else:  # requests waits for a whole chunk, however long that takes
        whole = response.iter_content(1 << 16)
        chunks = iter(lambda: within(SILENCE, partial(next, whole, b"")), b"")
    return limited(chunks, largest, SILENCE, each)


def _check_status(repo: str, response: Any) -> None:
    """CheckpointError with what to do for a refusal, _Broken for what may pass."""
    code, status = response.headers.get("x-error-code", ""), response.status_code
    if code == "GatedRepo":
        raise CheckpointError(
            f"{repo}: its owner asks you to agree first; accept the licence at {_page(repo)}, set HF_TOKEN (or "
            "run `hf auth login`), then try again"
        )
    if code == "RepoNotFound" or status == 401:
        raise CheckpointError(f"{repo}: no such repository at {_page(repo)}, or it needs HF_TOKEN (or `hf auth login`)")
    if status in (408, 429) or status >= 500:
        asked = response.headers.get("retry-after", "")
        raise _Broken(f"the hub answered {status}", min(float(asked), LONGEST_PAUSE) if asked.isdecimal() else 0.0)
    if status not in (200, 206):
        raise CheckpointError(f"{_page(repo)}: the hub answered {status}; is the name right, and do you have access?")


def _endpoint() -> str:
    from huggingface_hub import constants

    return constants.ENDPOINT


def _page(repo: str) -> str:
    return f"{_endpoint()}/{repo}"


def _no_answer(repo: str, why: str) -> CheckpointError:
    return CheckpointError(f"{_page(repo)}: {why}; downloaded data is kept, so try again")
