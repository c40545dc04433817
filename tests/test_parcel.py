"""Archives in pieces: what a kill or a full disk leaves of them, and what unpacking refuses."""

from __future__ import annotations

import os
import random
import tarfile

import pytest

from animegamer_core.toybox import parcel
from animegamer_core.toybox.parcel import packed, unpack, write_pieces


@pytest.fixture
def archives(tmp_path, monkeypatch):
    """Two archives of five pieces and one of two, by the number that their one file begins with."""
    monkeypatch.setattr(parcel, "PIECE_BYTES", 2000)
    made = {}
    for number, size in ((1, 9000), (2, 9000), (3, 3000)):
        (tmp_path / "source").write_bytes(bytes([number]) + random.Random(number).randbytes(size))
        made[number] = packed({"weights.bin": tmp_path / "source"})
    return made


def unpacked(folder, into):
    """The number of the archive that a folder's pieces make."""
    unpack(folder, "parcel", into)
    return (into / "weights.bin").read_bytes()[0]


def test_a_smaller_archive_takes_the_place_of_a_larger_one(archives, tmp_path):
    for number in (1, 2, 3, 1):
        pieces = write_pieces(archives[number], tmp_path / "out", "parcel")
        assert sorted((tmp_path / "out").iterdir()) == pieces and len(pieces) == (2 if number == 3 else 5)
        assert unpacked(tmp_path / "out", tmp_path / f"in-{number}") == number


class Killed(BaseException):
    pass


@pytest.mark.parametrize("new", [2, 3])
def test_killed_at_any_step_the_pieces_are_one_archive_or_are_refused(new, archives, tmp_path, monkeypatch):
    steps, seen = {}, set()

    def stepping(call):
        def step(*args, **options):
            if steps["left"] == 0:
                raise Killed
            steps["left"] -= 1
            return call(*args, **options)

        return step

    class Path(type(tmp_path)):
        write_bytes, unlink = stepping(type(tmp_path).write_bytes), stepping(type(tmp_path).unlink)

    for after in range(60):
        out = Path(tmp_path / f"out-{after}")
        steps["left"] = 10_000
        write_pieces(archives[1], out, "parcel")
        with monkeypatch.context() as patch:
            patch.setattr(os, "replace", stepping(os.replace))
            steps["left"] = after
            try:
                write_pieces(archives[new], out, "parcel")
                break
            except Killed:
                steps["left"] = 10_000
        try:
            seen.add(unpacked(out, tmp_path / f"in-{after}"))
        except ValueError as error:
            assert "are not whole" in str(error) and "export them again" in str(error)
            assert not (tmp_path / f"in-{after}").exists()
            seen.add(None)
    assert {1, None} <= seen <= {1, new, None}


def test_an_unpacker_without_a_filter_is_refused(archives, tmp_path, monkeypatch):
    write_pieces(archives[1], tmp_path / "out", "parcel")
    monkeypatch.delattr(tarfile, "data_filter")
    with pytest.raises(ValueError, match=r"unpacks no archive safely; take 3\.10\.12"):
        unpacked(tmp_path / "out", tmp_path / "in")
