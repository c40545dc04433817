"""Files on the Hugging Face hub: listed with their checksums, downloaded in blocks that resume, verified.

`huggingface_hub` makes the requests, so HF_ENDPOINT, HF_TOKEN and its retries hold. Its own download starts a
broken file again from the beginning, too slow for an engine of 29 GB; here every block that has arrived is kept.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .storage import CheckpointError

OnBytes = Callable[[int, str], None]  # (bytes just done, what they belong to)

BLOCK, LARGEST_BLOCK = 8 << 20, 64 << 20  # a request asks for as much as is there already, within these bounds
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
        left = self.part.stat().st_size if self.part.is_file() else 0
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
                    local = out / match.expand(target)
                    found.append(HubFile(self.repo, self.revision, path, local, size, checksum))
        return found


def list_repository(repo: str) -> Listing:
    """The newest revision of a public or gated repository."""
    from huggingface_hub import HfApi

    with _explained(repo):
        info = HfApi().model_info(repo, files_metadata=True)
    files = {
        file.rfilename: (file.size or 0, file.lfs.sha256 if file.lfs else file.blob_id or "")
        for file in info.siblings or []
    }
    stated = [tag.partition(":")[2] for tag in info.tags or [] if tag.startswith("license:")]
    return Listing(repo, info.sha or "main", ", ".join(stated) or "not stated there", files)


def check_access(repo: str) -> None:
    """CheckpointError with what to do, where the repository's owner asks for a login or for consent first."""
    from huggingface_hub import HfApi

    with _explained(repo):
        HfApi().auth_check(repo)


def download(file: HubFile, on_bytes: OnBytes) -> None:
    """Download one file, or the rest of it; it gets its name only when it is whole and verified."""
    file.part.parent.mkdir(parents=True, exist_ok=True)
    for old in file.local.parent.glob(f"{file.local.name}.{'?' * 8}{PART}"):  # not of a file with a longer name
        if old != file.part:
            old.unlink()
    done = file.bytes - file.remaining
    with file.part.open("r+b" if done else "wb") as part:
        part.seek(done)
        while done < file.bytes:
            size = min(max(done, BLOCK), LARGEST_BLOCK)
            block = _block(file, done, min(done + size, file.bytes))
            part.write(block)
            done += len(block)
            on_bytes(len(block), file.local.name)
        part.flush()
        os.fsync(part.fileno())
    if not file.is_whole(file.part):
        file.part.unlink()
        raise CheckpointError(
            f"{file.repo}/{file.path}: the download is not what the hub lists (expected {file.bytes} bytes with "
            f"checksum {file.checksum[:12]}...), so it was removed; run the same command again"
        )
    os.replace(file.part, file.local)


def _block(file: HubFile, start: int, end: int) -> bytes:
    """Bytes start..end of a file."""
    from huggingface_hub import hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

    url = hf_hub_url(file.repo, file.path, revision=file.revision)
    headers = {**build_hf_headers(), "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    with _explained(file.repo, f"after {start} of {file.bytes} bytes of {file.path}"):
        response = http_backoff("GET", url, headers=headers, timeout=60)
        hf_raise_for_status(response)
    content = response.content if response.status_code == 206 else response.content[start:end]
    if len(content) != end - start:
        raise CheckpointError(
            f"{file.repo}/{file.path}: {len(content)} bytes came for {end - start} at {start}; run the command again"
        )
    return content


@contextmanager
def _explained(repo: str, where: str = "") -> Iterator[None]:
    """Turns what the hub's library raises into one sentence."""
    from huggingface_hub import constants, errors

    page = f"{constants.ENDPOINT}/{repo}"
    try:
        yield
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{repo}: its owner asks for consent first; accept the licence at {page}, run `hf auth login` (or set "
            "HF_TOKEN), then run the same command again"
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(f"{repo}: no such repository at {page}, or it needs `hf auth login`") from error
    except errors.OfflineModeIsEnabled as error:
        raise CheckpointError(f"{page}: HF_HUB_OFFLINE forbids requests; unset it for this command") from error
    except (errors.HTTPError, OSError) as error:
        code = getattr(getattr(error, "response", None), "status_code", None)
        why = f"the hub answered {code}" if code else f"no answer ({type(error).__name__})"
        raise CheckpointError(
            f"{page}: {why}{' ' + where if where else ''}; what has arrived is kept, so run the same command again"
        ) from error
