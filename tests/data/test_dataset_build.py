"""Films to a dataset folder, on small generated films: resumed after kills, by several processes, over and over."""

import dataclasses
import shutil
from pathlib import Path

import av
import msgspec
import pytest
from film_parts import FilmPlan
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_film import make_film
from tables import correct

from animegamer_core.data.assemble import assemble_dataset
from animegamer_core.data.build import BuildSettings, cut_films
from animegamer_core.data.captions.run import open_captioner
from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetError, DatasetFolder
from animegamer_core.data.films import cutting
from animegamer_core.data.films.cutting import ClipShape, Cut, Span
from animegamer_core.data.films.film_index import add_scenes, film_name, films_by_name, read_scenes
from animegamer_core.data.films.survey import FilmPart
from animegamer_core.data.films.writing import Line
from animegamer_core.data.games import GamePlan, games_of
from animegamer_core.data.records import ClipRecord
from animegamer_core.files import check_folder_name, is_plain_name

SHAPE = ClipShape(32, 48)  # that of spec tiny
SETTINGS = BuildSettings(shape=SHAPE, games=GamePlan(turns=4))
PLAN = {"size": (96, 144), "fps": 12.0, "short": 0.0, "seconds": (2.2, 4.4), "grain": 1.0}
PLANS = {"one": FilmPlan(seed=3, scenes=6, **PLAN), "two": FilmPlan(seed=4, scenes=5, stills=1, wild=1.0, **PLAN)}
BRIEF = FilmPlan(seed=9, scenes=1, **{**PLAN, "seconds": (1.0, 1.0)})  # too short for a clip


@pytest.fixture(scope="module")
def films(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("films")
    for name, plan in PLANS.items():
        make_film(folder / f"{name}.mp4", plan)
    return [folder / f"{name}.mp4" for name in PLANS]


@pytest.fixture(scope="module")
def unbroken(films, tmp_path_factory) -> Path:
    return build(tmp_path_factory.mktemp("unbroken"), films)


@pytest.fixture
def again(unbroken, tmp_path) -> Path:
    """A copy of the whole dataset."""
    return Path(shutil.copytree(unbroken, tmp_path / "again"))


@pytest.fixture
def one(unbroken, films, tmp_path) -> Path:
    """A dataset of the first film alone."""
    add_cut(tmp_path / "one", unbroken, "one")
    return build(tmp_path / "one", films[:1])


def add_cut(out: Path, whole: Path, name: str, other: str = "") -> None:
    """Copy what `whole` has cut of a film, as if it had been cut here, or from another film of the same pictures."""
    other = other or name
    shutil.copytree(whole / "clips" / name, out / "clips" / other)
    (out / "films").mkdir(exist_ok=True)
    for suffix in ("json", "jsonl"):
        text = (whole / "films" / f"{name}.{suffix}").read_text()
        (out / "films" / f"{other}.{suffix}").write_text(text.replace(f"clips/{name}/", f"clips/{other}/"))


def script(films):
    return open_captioner("script", sidecars={film.stem: film.with_suffix(".captions.jsonl") for film in films})


def build(out: Path, films: list[Path], captioner=script) -> Path:
    assert cut_films(films, out, SETTINGS, 1) == {}
    assemble_dataset(out, SETTINGS, captioner(films) if captioner else None)
    return out


def contents(folder: Path) -> dict[str, bytes]:
    """All that a build leaves but locks and what is drawn for people."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.suffix in (".json", ".jsonl", ".mp4"))
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def turns(folder: Path) -> dict[str, ClipRecord]:
    return {turn.clip: turn for turn in DatasetFolder.open(folder).turns}


def test_a_build_is_a_whole_dataset_in_the_order_of_the_films(unbroken, films):
    folder = DatasetFolder.open(unbroken)
    assert [problem for problem in check(unbroken) if problem.serious] == []
    places = [(turn.film, turn.start) for turn in folder.turns]
    assert places == sorted(places)
    assert {turn.film for turn in folder.turns} == {"one", "two"} and all(turn.captioned for turn in folder.turns)
    assert folder.frames(0).shape == (17, 32, 48, 3)
    known = folder.info["provenance"]["films"]["one"]
    assert known["file"] == "one.mp4" and known["bytes"] == films[0].stat().st_size and known["broken"] is None


def test_the_same_command_again_does_nothing_again(unbroken, films, again):
    before = {path: path.stat().st_mtime_ns for path in (again / "clips").rglob("*.mp4")}
    build(again, films)
    assert contents(again) == contents(unbroken)
    assert before == {path: path.stat().st_mtime_ns for path in (again / "clips").rglob("*.mp4")}


def test_several_processes_and_machines_make_the_same_files(unbroken, films, tmp_path, monkeypatch):
    monkeypatch.setattr(cutting, "SPAN_SECONDS", 3.0)
    for film in (films[1], *films):
        assert cut_films([film], tmp_path, SETTINGS, workers=2) == {}
    assemble_dataset(tmp_path, SETTINGS, script(films))
    assert contents(tmp_path) == contents(unbroken)


def test_a_line_that_a_kill_cut_off_and_a_lost_clip_are_cut_again_and_harm_no_other(unbroken, films, again):
    path = again / "films" / "one.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    gone = [clip for clip in turns(unbroken) if "/two/" in clip][0]
    (again / gone).unlink()
    scenes = read_scenes(unbroken, "one")
    assert list(read_scenes(again, "one")) == list(scenes)[:-1]
    report = assemble_dataset(again, SETTINGS)
    assert report.open == {"one": 1, "two": 1} and gone not in turns(again)
    assert len(turns(again)) < len(turns(unbroken))
    (again / "games.jsonl").unlink()  # else what it held out stays held out, be it another game than of the whole
    last = max(scenes)
    add_scenes(again, Span(films[0], "one", last, (), True), [scenes[last]])
    assert read_scenes(again, "one") == scenes
    assert contents(build(again, films)) == contents(unbroken)


def test_a_film_that_is_added_later_moves_levels_and_adverbs(one, unbroken, films):
    alone = turns(one)
    add_cut(one, unbroken, "two")
    build(one, films, captioner=None)  # it does not make an old adverb count as a new one
    grown = turns(build(one, films))
    assert grown == turns(unbroken)
    moved = [clip for clip in alone if alone[clip].motion_level != grown[clip].motion_level]
    assert moved and any(alone[clip].adverb != grown[clip].adverb for clip in moved)


def test_a_bad_film_ends_no_build_damaged_clips_go_and_the_larger_copy_stays(films, tmp_path):
    folder, data = tmp_path / "films", bytearray(films[0].read_bytes())
    folder.mkdir()
    with av.open(str(films[0])) as container:
        packet = [packet for packet in container.demux(video=0) if packet.size][20]
    hit = slice(packet.pos + packet.size // 3, packet.pos + packet.size)
    data[hit] = bytes(byte ^ 0x5A for byte in data[hit])
    (folder / "show.mkv").write_bytes(data)  # another film than show.mp4
    make_film(folder / "a-small.mp4", dataclasses.replace(PLANS["two"], size=(48, 72)))
    shutil.copy(films[1], folder / "show.mp4")
    (folder / "d.mkv").write_text("no film")
    broken = cut_films(sorted(folder.iterdir()), tmp_path / "out", SETTINGS, 1)
    assert "s are damaged" in broken["show"] and "cannot be opened" in broken["d"]
    report = assemble_dataset(tmp_path / "out", SETTINGS)
    assert report.dropped["damaged"] >= 1 and {turn.film for turn in report.dataset.turns} == {"show", "show-mp4"}


def test_films_of_one_name_get_longer_ones_and_keep_them(one, films, tmp_path):
    others = [tmp_path / name for name in ("a/one.mp4", "b/one.mp4", "one.mkv", "One.mkv", "two.mkv")]
    for path in others:
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(path.name.encode())
    names = ["a-one", "b-one", "one-mkv", "One-mkv-2", "two", "one"]
    assert films_by_name([*others, films[0]], one) == dict(zip(names, [*others, films[0]], strict=True))
    add_cut(one, one, "one", "show")
    assert films_by_name([films[0]], one) == {"one": films[0]}, "an exact copy beside it changes no name"
    assert films_by_name(others[:1], one) == {"one": others[0]}, "which is refused: the film in the folder was replaced"


def test_credits_and_a_clip_between_them_go_unless_somebody_captioned_or_brought_them_back(again, films):
    scene, [clip, *_] = next(iter(read_scenes(again, "one").items()))
    text = ((Line(0.1, 0.4, 0.8, 0.1),),) * 4
    credit, last = (dataclasses.replace(clip, clip=f"clips/one/{number}.mp4", text=text) for number in (1, 2))
    for one in (credit, last):
        shutil.copy(again / clip.clip, again / one.clip)
    add_scenes(again, Span(films[0], "one", scene, (), True), [[credit, clip, last]])
    assert clip.clip in {turn.clip for turn in assemble_dataset(again, SETTINGS).dataset.turns}
    (again / "turns.jsonl").unlink()
    report = assemble_dataset(again, SETTINGS)
    assert clip.clip not in {turn.clip for turn in report.dataset.turns} and report.dropped["credits"] == 3
    assert correct(again, *({"clip": one, "drop": False} for one in (clip.clip, credit.clip))) == 2
    for _ in range(2):
        assert {clip.clip, credit.clip} <= set(turns(again))
        assert assemble_dataset(again, SETTINGS).dropped["credits"] == 1


def test_only_the_wanted_part_of_a_film_is_cut(films, unbroken, tmp_path):
    part = dataclasses.replace(SETTINGS, part=FilmPart(start_time=7.0, duration=9.0))
    assert cut_films(films[:1], tmp_path, part, 1) == {}
    cuts, everything = (
        [cut for row in read_scenes(out, "one").values() for cut in row] for out in (tmp_path, unbroken)
    )
    assert everything[0].start < 7 and everything[-1].end > 16, "the film has clips before and after"
    assert len(cuts) > 1 and all(6.9 <= cut.start and cut.end < 16.1 for cut in cuts)


def test_films_without_a_clip_name_the_fades_of_their_longest_scene_or_the_option_on_text(tmp_path):
    make_film(tmp_path / "film.mp4", BRIEF)
    cut_films([tmp_path / "film.mp4"], tmp_path / "out", SETTINGS, 1)
    with pytest.raises(ValueError, match=r"a clip takes 2 s, and the longest scene has \d\.\d s"):
        assemble_dataset(tmp_path / "out", SETTINGS)
    title = Cut(0.0, 2.0, "clips/film/00000000.mp4", text=((Line(0.1, 0.4, 0.8, 0.1),),) * 4)
    (tmp_path / "out" / title.clip).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / title.clip).touch()
    add_scenes(tmp_path / "out", Span(tmp_path / "film.mp4", "film", 0, (), True), [[title]])
    with pytest.raises(ValueError, match=r"1 credits.*--most-text 1"):
        assemble_dataset(tmp_path / "out", SETTINGS)


def test_what_a_person_corrected_or_dropped_stays(films, one, unbroken):
    before, after = turns(one), turns(unbroken)
    moved = [clip for clip in before if before[clip].motion_level != after[clip].motion_level]
    kept, dropped = moved[0], next(clip for clip in before if clip != moved[0])
    said = {"adverb": "with great care", "motion": "sing"}
    assert correct(one, {"clip": kept, **said}, {"clip": dropped, "drop": True}) == 2
    add_cut(one, unbroken, "two")
    for _ in range(2):
        rebuilt = turns(build(one, films))
        assert (rebuilt[kept].adverb, rebuilt[kept].motion) == ("with great care", "sing")
        assert rebuilt[kept].motion_level is not None and dropped not in rebuilt
    assert set(rebuilt) == set(after) - {dropped}
    assert correct(one, {"clip": dropped, "drop": False}) == 1
    assert set(turns(build(one, films))) == set(after)


def test_a_duplicate_that_a_person_brings_back_stays(films, again):
    (scene, [first, *_]), *_ = read_scenes(again, "one").items()
    copy = dataclasses.replace(first, clip="clips/two/1.mp4")
    shutil.copy(again / first.clip, again / copy.clip)
    last = max(read_scenes(again, "two"))
    add_scenes(again, Span(films[1], "two", last, (), True), [[*read_scenes(again, "two")[last], copy]])
    for _ in range(2):
        assert assemble_dataset(again, SETTINGS).dropped["duplicate"] == 1 and copy.clip not in turns(again)
    assert correct(again, {"clip": copy.clip, "drop": False}) == 1
    for _ in range(2):
        assert copy.clip in turns(again)
        assert "duplicate" not in assemble_dataset(again, SETTINGS).dropped


def test_clips_that_a_person_added_stay_in_their_place(films, again):
    first, second = list(turns(again).values())[:2]
    inside = msgspec.structs.replace(first, motion="sing", start=first.start + 0.1, clip="clips/one/mine.mp4")
    apart = msgspec.structs.replace(first, film="mine", clip="clips/mine/1.mp4")
    (again / "clips" / "mine").mkdir()
    for own in (inside, apart):
        (again / own.clip).write_bytes((again / first.clip).read_bytes())
    with (again / "turns.jsonl").open("a") as file:
        file.write(f"{inside.to_json()}\n{apart.to_json()}\n")
    for _ in range(2):
        clips = list(turns(build(again, films)))
        assert clips[:3] == [first.clip, inside.clip, second.clip] and clips[-1] == apart.clip
    assert turns(again)[inside.clip].motion == "sing"


def test_a_clip_that_was_set_aside_stays_out_until_it_is_asked_about_again(unbroken, films, tmp_path):
    sidecar = films[0].with_suffix(".captions.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "one.captions.jsonl").write_text("".join(sidecar[1:]))
    lacking = open_captioner("script", sidecars={"one": tmp_path / "one.captions.jsonl"})
    out = tmp_path / "out"
    add_cut(out, unbroken, "one")
    report = assemble_dataset(out, SETTINGS, lacking)
    aside = [item.record.clip for item in report.captions.set_aside]
    assert aside and not set(aside) & set(turns(out))
    assemble_dataset(out, SETTINGS)
    assert not set(aside) & set(turns(out))
    whole = turns(build(out, films[:1]))
    assert set(aside) <= set(whole) and all(turn.captioned for turn in whole.values())
    assert not (out / "set_aside.jsonl").read_text()


def test_a_table_that_a_person_left_unreadable_is_not_written_over(films, again):
    for name, text in (("turns.jsonl", "{}"), ("adverbs.jsonl", '{"clip": "a.mp4", "level": "2", "adverb": "slowly"}')):
        path = again / name
        whole = path.read_text()
        path.write_text(whole + text + "\n")
        before, line = contents(again), len(path.read_text().splitlines())
        with pytest.raises(DatasetError, match=rf"{name}:{line}: .*correct or delete the line"):
            build(again, films)
        assert contents(again) == before
        path.write_text(whole)


def test_clips_that_were_cut_with_other_settings_are_not_mixed(unbroken, films, again):
    other = BuildSettings(shape=ClipShape(32, 64))
    words = r"the clips of one\.mp4 in .* were cut with other settings \(clips .*48.*, now .*64.*\); give the same ones"
    for call in (lambda: cut_films(films[1:], again, other, 1), lambda: assemble_dataset(again, other)):
        with pytest.raises(ValueError, match=words):
            call()
    assert contents(again) == contents(unbroken)


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=120).filter(lambda text: "/" not in text and "\0" not in text))
@example("NUL")
@example("COM\u00b9.json")
@example("part-1-film")
def test_film_names_are_safe_everywhere_and_stay_apart_when_cut_short(stem):
    name = film_name(stem)
    assert is_plain_name(name) and check_folder_name(name, "film") == name
    assert 0 < len(name) <= 65 and not set(name) & set('<>:"/\\|?*. ') and name == name.strip("-")
    assert not name.lower().startswith("part-") and name.lower() not in ("con", "nul", "com1", "lpt9")
    assert film_name(f"{'x' * 100}{stem}1") != film_name(f"{'x' * 100}{stem}2")


@given(st.integers(0, 60), st.sampled_from((0.0, 0.05, 0.1, 0.34)))
def test_games_hold_out_their_share_and_at_least_one_of_two(count, share):
    records = [ClipRecord(film="f", start=2.0 * n, end=2.0 * n + 2, clip=f"clips/{n}.mp4") for n in range(2 * count)]
    games = games_of(records, GamePlan(turns=2, held_out=share))
    held = sum(held_out for _, _, held_out in games)
    assert len(games) == count and abs(held - share * count) <= 1
    assert (held > 0) == (count > 1 and share > 0)


def test_a_rebuild_after_a_correction_trains_on_no_clip_that_was_held_out(films, again):
    out = again

    def sides_now() -> dict[str, bool]:
        folder = DatasetFolder.open(out)
        return {turn.clip: number in folder.held_out_clips for number, turn in enumerate(folder.turns)}

    before = sides_now()
    first_of_two = next(clip for clip in before if "/two/" in clip)
    assert correct(out, {"clip": first_of_two, "drop": True}) == 1
    build(out, films)
    assert any(before.values()) and sides_now() == {clip: held for clip, held in before.items() if clip != first_of_two}
    for clip in [clip for clip, held in before.items() if held]:
        assert correct(out, {"clip": clip, "drop": True}) == 1
        assert correct(out, {"clip": clip, "drop": False}) == 1
        assert sides_now()[clip]
    build(out, films)
    assert sides_now() == {clip: held for clip, held in before.items() if clip != first_of_two}
