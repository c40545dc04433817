"""A person's corrections of where scenes change, and the strip of pictures that shows where."""

import shutil

import numpy as np
import pytest
from film_parts import FilmPlan
from hypothesis import given
from hypothesis import strategies as st
from made_film import make_film
from PIL import Image
from tables import correct

from animegamer_core.data import corrections
from animegamer_core.data.assemble import assemble_dataset
from animegamer_core.data.build import BuildSettings, cut_films
from animegamer_core.data.films.cutting import ClipShape, segments_of
from animegamer_core.data.films.film import FilmFrame
from animegamer_core.data.films.film_index import read_film_index, read_scenes, scenes_to_cut
from animegamer_core.data.films.framing import Crop
from animegamer_core.data.films.scenes import Scene
from animegamer_core.data.films.survey import COLUMNS, ROWS, STEP, WIDTH, SceneChange, StripWriter, picture_height
from animegamer_core.data.games import GamePlan
from animegamer_core.data.review import page_data
from animegamer_core.json_files import to_type

SETTINGS = BuildSettings(shape=ClipShape(32, 48), games=GamePlan(turns=4), most_text=1.0)
STARTS = (0.0, 3.0, 4.5, 9.0, 12.0)


def scenes_from(starts):
    spans = zip(starts, starts[1:], strict=False)
    return [Scene(start, end, "cut" if start else "start", crop=Crop(top=at)) for at, (start, end) in enumerate(spans)]


def added(before, after):
    return SceneChange("f", scene_change=(before, after))


def removed(second):
    return SceneChange("f", no_scene_change=second)


def test_an_added_change_is_shown_by_no_clip():
    scenes = added(6.25, 6.5).apply(scenes_from(STARTS))
    first, second = scenes[2], scenes[3]
    assert (first.start, first.end, first.fade_out) == (4.5, 6.5, 0.25)
    assert (second.start, second.end, second.begins, second.fade_in) == (6.5, 9.0, "cut", 0.0)
    assert scenes[2].crop == scenes[3].crop == Crop(top=2) and len(scenes) == 5


def test_a_removed_change_joins_two_scenes_without_the_borders_of_either():
    scenes = removed(4.5).apply(scenes_from(STARTS))
    assert [(scene.start, scene.end) for scene in scenes] == [(0.0, 3.0), (3.0, 9.0), (9.0, 12.0)]
    assert scenes[1].crop == Crop(top=2)


@given(
    st.lists(
        st.one_of(
            st.integers(1, 47).map(lambda n: added(n / 4, n / 4 + 0.25)), st.sampled_from(STARTS[1:4]).map(removed)
        )
    )
)
def test_whatever_is_corrected_the_scenes_follow_each_other_and_a_second_time_changes_nothing(changes):
    scenes = scenes_from(STARTS)
    for change in changes:
        try:
            scenes = change.apply(scenes)
        except ValueError:
            assert change.scene_change  # it lies across a change that is there already
            continue
        assert change.apply(scenes) == scenes
    assert scenes[0].start == 0.0 and scenes[-1].end == 12.0
    assert all(one.end == next_one.start for one, next_one in zip(scenes, scenes[1:], strict=False))


def test_a_line_that_says_nothing_of_a_film_or_fits_no_scene_is_refused():
    for row, says in (({}, "either scene_change or no_scene_change"), ({"scene_change": [2, 8]}, "at most 5 s")):
        with pytest.raises(ValueError, match=says):
            to_type({"film": "f", **row}, SceneChange, "line")
    scenes = scenes_from(STARTS)
    for change in (added(11.9, 12.5), added(20, 20.25)):
        with pytest.raises(ValueError, match="no scene of the film contains both"):
            change.apply(scenes)
    for change in (removed(0.0), removed(12.0), removed(99.0)):
        with pytest.raises(ValueError, match="the film starts or ends there"):
            change.apply(scenes)


# --- in a dataset -----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    path = tmp_path_factory.mktemp("film") / "one.mp4"
    make_film(path, FilmPlan(seed=3, scenes=5, size=(96, 144), fps=12.0, short=0.0, seconds=(4.3, 6.4), grain=1.0))
    return path


@pytest.fixture(scope="module")
def built(film, tmp_path_factory):
    return build(film, tmp_path_factory.mktemp("built") / "dataset")


@pytest.fixture
def dataset(built, tmp_path):
    return shutil.copytree(built, tmp_path / "dataset")


def build(film, out):
    assert cut_films([film], out, SETTINGS, 1) == {}
    assemble_dataset(out, SETTINGS)
    return out


def scenes_of(folder):
    return read_film_index(folder)["one"].survey.scenes


def lines_of(folder):
    """One change added in the longest scene, and the last change removed."""
    scenes = scenes_of(folder)
    longest = max(scenes[:-2], key=lambda scene: scene.end - scene.start)
    middle = round(4 * (longest.start + longest.end) / 2) / 4
    return [
        {"film": "one", "scene_change": [middle, middle + 0.25]},
        {"film": "one", "no_scene_change": round(scenes[-1].start, 3)},
    ]


def test_corrected_scenes_are_cut_again_with_the_words_of_the_clips_they_overlap_most_and_no_others(film, dataset):
    lines, before = lines_of(dataset), scenes_of(dataset)
    old = corrections.DatasetFolder.open(dataset).turns
    said = {turn.clip: {"motion": f"act {n}", "character": ["Zed"], "background": "day"} for n, turn in enumerate(old)}
    assert correct(dataset, *({"clip": clip, **words} for clip, words in said.items())) == len(old)
    written = {path: path.stat().st_mtime_ns for path in (dataset / "clips" / "one").iterdir()}
    assert correct(dataset, *lines) == 2
    assert len(scenes_of(dataset)) == len(before) and scenes_to_cut(dataset) == {"one": 3}
    assert page_data(corrections.DatasetFolder.open(dataset), [])["films"][0]["uncut"] == 3
    build(film, dataset)
    assert scenes_to_cut(dataset) == {}
    new = [turn for turn in corrections.DatasetFolder.open(dataset).turns if turn.clip not in said]
    assert new and any(turn.motion for turn in new)
    for turn in new:
        shared = {one.clip: min(one.end, turn.end) - max(one.start, turn.start) for one in old}
        most = max(shared, key=lambda clip: shared[clip])
        assert turn.motion == (said[most]["motion"] if shared[most] >= 1 else None)
    first, last = lines[0]["scene_change"]
    cuts = [cut for cuts in read_scenes(dataset, "one").values() for cut in cuts]
    assert not any(cut.start < last and first < cut.end for cut in cuts)
    joined = scenes_of(dataset)[-1]
    assert joined.start < lines[1]["no_scene_change"] < joined.end
    starts = [cut.start for cut in read_scenes(dataset, "one")[len(before) - 1]]
    assert starts == [round(segment.start, 3) for segment in segments_of(joined)]
    untouched = [scene for scene in before if scene in scenes_of(dataset)]
    same = {path for path in written if any(s.start <= int(path.stem) / 1000 + 0.001 < s.end for s in untouched)}
    assert same and all(path.stat().st_mtime_ns == written[path] for path in same)
    there = {path.relative_to(dataset).as_posix() for path in (dataset / "clips" / "one").glob("*.mp4")}
    assert there == {cut.clip for cut in cuts if cut.clip}
    assert correct(dataset, *lines) == 0 and scenes_to_cut(dataset) == {}


def test_the_page_has_the_scenes_and_a_damaged_note_is_a_problem(dataset):
    folder = corrections.DatasetFolder.open(dataset)
    [film] = page_data(folder, [])["films"]
    assert [start for start, _, _ in film["scenes"]] == [round(scene.start, 3) for scene in scenes_of(dataset)]
    assert film["strip"] == {"step": STEP, "columns": COLUMNS, "rows": ROWS, "width": WIDTH, "height": 64}
    shutil.rmtree(dataset / "films" / "one")
    assert page_data(folder, [])["films"][0]["strip"] is None
    (dataset / "films" / "one.json").write_text("{")
    data = page_data(folder, [])
    assert data["films"] == [] and "damaged" in data["problems"][0]


# --- the strip --------------------------------------------------------------------------------------------------------


def grey(level):
    return np.full((90, 160, 3), level, np.uint8)


def test_a_picture_of_the_strip_shows_its_quarter_of_a_second(tmp_path):
    writer = StripWriter(tmp_path / "strip", 160, 90)
    height = picture_height(160, 90)
    for number in range(12 * 62):  # 62 s at 12 frames a second; a level a second
        writer.add(FilmFrame(number / 12, grey(number // 12 * 4)))
    writer.finish()
    first, second = (Image.open(tmp_path / "strip" / f"000{n}.jpg") for n in (0, 1))
    assert first.size == second.size == (COLUMNS * WIDTH, ROWS * height)
    for number in (0, 3, 4, 39, 239):
        row, column = divmod(number, COLUMNS)
        level = first.getpixel((column * WIDTH + 48, row * height + 27))[0]
        assert level == pytest.approx(number // 4 * 4, abs=2)
    assert second.getpixel((48, 27))[0] == pytest.approx(240, abs=2)
    assert second.getpixel((9 * WIDTH, 27))[0] < 3, "unused places are black"
    assert len(list((tmp_path / "strip").iterdir())) == 2
    skipped = StripWriter(tmp_path / "skipped", 160, 90, start=61.0)
    skipped.add(FilmFrame(61.0, grey(200)))
    skipped.finish()
    (sheet,) = (tmp_path / "skipped").iterdir()  # none of the first minute
    levels = [Image.open(sheet).getpixel((column * WIDTH + 48, 27))[0] for column in (3, 4)]
    assert sheet.name == "0001.jpg" and levels[0] < 3 and levels[1] == pytest.approx(200, abs=2)
