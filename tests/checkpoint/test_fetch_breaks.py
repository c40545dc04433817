"""A download is killed, or the power fails: the same command brings the rest."""

import os
import shutil

import pytest
from hub_repositories import below, released_repositories
from hub_server import Hub, ask_instead, new_session
from kills import kill_often
from power_cut import recorded, sample

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import hub as hub_files

BLOCK = 1 << 18  # bytes of a request here, so that a file takes several


@pytest.fixture(scope="module")
def hub(download, originals):
    """A hub that this process asks in place of the real one."""
    with Hub() as hub, pytest.MonkeyPatch.context() as patch:
        hub.repositories = released_repositories(download, originals)
        ask_instead(patch, hub.url)
        patch.setattr(hub_files, "BLOCK", BLOCK)
        patch.setattr(hub_files, "LARGEST_BLOCK", BLOCK)
        patch.setattr(hub_files, "WAIT", 0.01)
        yield hub


def fetch(out):
    """The command, in a session of its own: a forked process must not share connections."""
    new_session()
    assert main(["fetch", "qiqi", "--out", str(out / "files"), "--yes"]) == 0


def arrived(out):
    """The bytes that are there, in whole files and unfinished ones."""
    return sum(path.stat().st_size for path in out.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def fetched(hub, tmp_path_factory):
    """(what a whole download holds, what the disk may have held)."""
    out = tmp_path_factory.mktemp("fetched")
    with recorded(out) as disk:
        fetch(out)
    return below(out, but=(".fetch.lock",)), disk


def go_on_after(fetched, hub, moment, seed, out):
    whole, disk = fetched
    disk.cut(moment, seed, out)
    finished = {path for path, data in below(out).items() if whole.get(path) == data}
    hub.ranges.clear()
    fetch(out)
    assert below(out, but=(".fetch.lock",)) == whole, f"moment {moment}, seed {seed}"
    asked = {path for path, _, _ in hub.ranges}
    assert not [path for path in finished if path.removeprefix("files/") in asked], "what was whole came again"
    disk.cut(moment, 0, again := out.with_name(f"{out.name}-flushed"))
    missing = sum(map(len, whole.values())) - arrived(again)
    assert sum(last + 1 - first for _, first, last in hub.ranges) <= missing + 2 * BLOCK, "flushed bytes came again"


def test_a_power_cut_loses_the_block_in_progress_only(fetched, hub, tmp_path):
    for moment, seed in sample(fetched[1], 10):
        go_on_after(fetched, hub, moment, seed, tmp_path / f"{moment}-{seed}")


@pytest.mark.soak
def test_power_cuts_at_every_moment_lose_the_block_in_progress_only(fetched, hub, tmp_path):
    for moment, seed in sample(fetched[1], 400):
        go_on_after(fetched, hub, moment, seed, tmp_path / f"{moment}-{seed}")


def fetch_with_kills(fetched, tmp_path, kills, seed):
    out = tmp_path / "killed"

    def begin():
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir()

    def check():
        assert below(out, but=(".fetch.lock",)) == fetched[0]

    kill_often(begin, lambda: fetch(out), lambda: arrived(out), check, tmp_path / "log.txt", kills, seed)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_kills_lose_no_byte(fetched, hub, tmp_path):
    fetch_with_kills(fetched, tmp_path, 5, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("run", range(10))
def test_two_hundred_kills_lose_no_byte(fetched, hub, tmp_path, run):
    fetch_with_kills(fetched, tmp_path, 20, seed=run + 1)
