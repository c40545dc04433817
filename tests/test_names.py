"""Names from outside that on Windows would leave their folder, name a device, or be another file.

Each place that makes a path of such a name either refuses it, or the path stays where it belongs.
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PureWindowsPath

import pytest

from animegamer_core.data.benchmark import check_game_name
from animegamer_core.data.films.film_index import FILMS, film_name, read_scenes
from animegamer_core.data.records import ClipRecord
from animegamer_core.evaluate.baselines.folders import IMAGE_TO_VIDEO, open_folder
from animegamer_core.evaluate.world.records import game_folder
from animegamer_core.files import check_folder_name, is_inside, is_plain_name
from animegamer_core.story.folder import check_story_name, restore_story
from animegamer_core.weights.folders import read_notes
from animegamer_core.weights.storage import CheckpointError, shards_of

ROOT = PureWindowsPath(r"D:\games\out")
DEVICES = ["NUL", "nul.mp4", "CON", "con.tar.mp4", "aux", "PRN.json", "COM1", "com9.mp4", "LPT1", "COM\u00b9.json"]
DEVICES += ["lpt\u00b3.mp4", "CONIN$", "conout$.mp4", "NUL .mp4"]
ELSEWHERE = ["C:x.mp4", r"C:\x.mp4", "C:/x.mp4", r"\\server\share\x.mp4", "//server/share/x.mp4", r"\x.mp4", "/x.mp4"]
ELSEWHERE += [r"..\..\x.mp4", "../../x.mp4", r"a/..\..\x.mp4", r"a\../x.mp4", "..", ".", "", "\\\\?\\C:\\x.mp4"]
OTHER_FILES = ["a:stream", "a.mp4:stream", "x.mp4.", "x.mp4 ", "x. .", "...", ".. ", "x.mp4::$DATA", "a\0b.mp4"]
TOO_LONG = ["x" * 300 + ".mp4", "\u96ea" * 100 + ".mp4"]
BAD = [
    *DEVICES[:3],
    *ELSEWHERE[:1],
    *ELSEWHERE[3:6],
    *ELSEWHERE[7:9],
    "..",
    "",
    *OTHER_FILES[:3],
    "a\0b.mp4",
    TOO_LONG[0],
]
GOOD = ["clip.mp4", "00001000.mp4", "con-1.mp4", "auxiliary", "com10", ".mp4", " x.mp4", "a b", "\u96ea.mp4", "x~1"]


def on_windows(name: str) -> str | None:
    """What is wrong with `ROOT / name` for Windows, by Python's own rules; None if it is a file below the folder."""
    path = ROOT / name
    if path.drive != ROOT.drive or ".." in path.parts or not path.is_relative_to(ROOT) or path == ROOT:
        return "leaves the folder"
    below = path.relative_to(ROOT).parts
    if any(PureWindowsPath(part).is_reserved() or part.upper() in ("CONIN$", "CONOUT$") for part in below):
        return "a device"
    if any(
        set(part) & set(":\0") or part.endswith((".", " ")) or len(part.encode("utf-8", "replace")) > 255
        for part in below
    ):
        return "another file, or none"
    return None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # is_reserved moves to os.path
@pytest.mark.parametrize("name", BAD)
def test_the_shared_checks_refuse_what_windows_reads_otherwise(name):
    assert not is_plain_name(name) and not is_inside(name)
    for path in (f"clips/{name}", f"{name}/clip.mp4", f"clips/{name}/clip.mp4"):
        assert not is_inside(path) or on_windows(path) is None, path


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", GOOD)
def test_plain_names_stay_in_their_folder_on_windows(name):
    assert is_plain_name(name) and is_inside(f"clips/{name}") and is_inside(f"./clips//{name}")
    assert on_windows(name) is None


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", BAD)
def test_the_table_is_of_names_that_windows_reads_otherwise(name):
    known = name in ("con.tar.mp4", "conout$.mp4", "NUL .mp4") or name.startswith("\\\\?")
    assert known or on_windows(name) is not None


def record(clip: str) -> ClipRecord:
    return ClipRecord(film="f", start=0, end=2, clip=clip)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", BAD)
def test_clips_of_a_dataset(name):
    for path in (name, f"clips/{name}", f"{name}/clip.mp4", f"clips/{name}/clip.mp4"):
        if is_inside(path):  # such as clips//clip.mp4, which no system reads otherwise
            assert on_windows(path) is None
            continue
        with pytest.raises(ValueError, match="clip is .*; expected the path of an .mp4 or .safetensors file inside"):
            record(path)


def test_clips_with_plain_names_are_read():
    assert record("clips/\u96ea/what?.mp4").clip == "clips/\u96ea/what?.mp4", "strange, but a file in the folder"


@pytest.mark.parametrize("name", BAD)
def test_finished_scenes_of_a_film(name, tmp_path):
    (tmp_path / FILMS).mkdir()
    cut = {"start": 0, "end": 2, "clip": name}
    lines = json.dumps({"scene": 0, "segments": [{"start": 0, "end": 2, "dropped": "still"}, cut]}) + "\n"
    (tmp_path / FILMS / "film.jsonl").write_text(lines)
    with pytest.raises(ValueError, match="film.jsonl:1: a clip of this scene is not in the folder"):
        read_scenes(tmp_path, "film")


@pytest.mark.parametrize("name", BAD)
def test_shards_of_an_index(name, tmp_path):
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(CheckpointError, match="does not name a file in the folder; expected a bare file name"):
        shards_of(index)


@pytest.mark.parametrize("name", BAD)
def test_files_of_a_world(name):
    with pytest.raises(ValueError, match="is not in the folder of a part"):
        read_notes({f"engine/{name}": {"sha256": "0" * 64, "bytes": 1}})
    assert read_notes({"engine/model.safetensors": {"sha256": "0" * 64, "bytes": 1}})


@pytest.mark.parametrize("name", BAD)
def test_components_of_a_baseline(name, tmp_path):
    index = {"_class_name": IMAGE_TO_VIDEO.pipeline, name: ["diffusers", "AutoencoderKL"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index))
    with pytest.raises(ValueError, match="is no stock model in this folder"):
        open_folder(tmp_path, IMAGE_TO_VIDEO, "GFC")


@pytest.mark.parametrize("name", [*BAD, "\ud800"])
def test_names_of_stories_runs_datasets_and_films_made_here(name):
    for check in (check_folder_name, check_story_name):
        with pytest.raises(ValueError, match="is not a valid folder name"):
            check(name)


@pytest.mark.parametrize("name", BAD)
def test_names_of_games(name, tmp_path):
    for check in (check_game_name, lambda name: game_folder(tmp_path, name)):
        with pytest.raises(ValueError, match="is not a valid (folder )?name"):
            check(name)


@pytest.mark.parametrize("name", ["con", "nul", "com1", "lpt9", "aux", "prn"])
def test_a_played_game_is_not_named_after_a_device(name, tmp_path):
    with pytest.raises(ValueError, match="device name"):
        game_folder(tmp_path, name)


@pytest.mark.parametrize("name", BAD)
def test_tickets_of_deleted_stories_name_none_elsewhere(name, tmp_path):
    with pytest.raises(ValueError, match="no longer in the trash|is not a valid folder name"):
        restore_story(tmp_path, f"1 {name}")


@pytest.mark.parametrize("stem", [*BAD, "COM\u00b9", "lpt\u00b2", "NUL", "\u96ea" * 90, "part-1-film"])
def test_folders_of_films_are_safe(stem):
    name = film_name(Path(re.sub(r"[/\x00]", "_", stem) + ".mp4"))
    assert is_plain_name(name) and check_folder_name(name, "film") == name
