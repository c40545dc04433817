"""Names from outside that on some system would leave their folder, name a device, or be another file.

Each place that makes a path of such a name either refuses it, or the path stays where it belongs.
"""

import json

import pytest

from animegamer_core.data.benchmark import check_game_name
from animegamer_core.data.records import ClipRecord
from animegamer_core.evaluate.baselines.folders import IMAGE_TO_VIDEO, open_folder
from animegamer_core.evaluate.world.records import game_folder
from animegamer_core.files import check_folder_name, is_inside, is_plain_name
from animegamer_core.game.state import MOTION_TABLES
from animegamer_core.spec import RELEASE
from animegamer_core.story.folder import check_story_name, restore_story
from animegamer_core.weights.storage import FileNote, find_safetensors
from animegamer_core.weights.world import Manifest

BAD = ["NUL", "nul.mp4", "con", "COM\u00b9.json", "C:x.mp4", r"\\server\share\x.mp4", "/x.mp4", r"..\x.mp4", "..", ""]
BAD += ["a:stream", "x.mp4.", "x.mp4 ", "a\0b.mp4", "x" * 300 + ".mp4"]
GOOD = ["clip.mp4", "con-1.mp4", "auxiliary", "com10", ".mp4", " x.mp4", "a b", "\u96ea.mp4", "x~1"]
bad = pytest.mark.parametrize("name", BAD)


@bad
def test_the_shared_checks_refuse_what_some_system_reads_otherwise(name):
    assert not is_plain_name(name) and not is_inside(name)


@pytest.mark.parametrize("name", GOOD)
def test_plain_names_stay_in_their_folder(name):
    assert is_plain_name(name) and is_inside(f"clips/{name}") and is_inside(f"./clips//{name}")


def test_a_refused_name_is_told_what_a_name_may_be():
    assert check_folder_name("Mia & Kai, part 1.5 (café)!") and check_folder_name("x" * 80)
    for name in ("", "x" * 81, " x", "x.", "CON", *(f"a{letter}" for letter in '<>:"/|?*\\\n')):
        with pytest.raises(ValueError, match=r'1 to 80 characters .* < > : " / \\ \| \? \* .* no period at the end'):
            check_folder_name(name)


@bad
def test_clips_of_a_dataset(name):
    for path in filter(lambda path: not is_inside(path), (name, f"clips/{name}", f"{name}/clip.mp4")):
        with pytest.raises(ValueError, match="clip is .*; expected the path of an .mp4 inside"):
            ClipRecord(film="f", start=0, end=2, clip=path)


@bad
def test_files_of_weights(name, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ValueError, match="does not name a file in its folder"):
        find_safetensors(tmp_path, "model")
    with pytest.raises(ValueError, match="does not name a file in the folder of a part"):
        Manifest(RELEASE, "paper", MOTION_TABLES["released"], {f"engine/{name}": FileNote("0" * 64, 1)})
    folder = {"_class_name": IMAGE_TO_VIDEO.pipeline, name: ["diffusers", "AutoencoderKL"]}
    (tmp_path / "model_index.json").write_text(json.dumps(folder))
    with pytest.raises(ValueError, match="is no stock model"):
        open_folder(tmp_path, IMAGE_TO_VIDEO, "GFC")


@pytest.mark.parametrize("name", [*BAD, "a/b", r"a\b", "C:", " a", "a\nb", "\ud800", "\U0001f600" * 64, "a" * 81])
def test_names_of_stories_runs_and_games(name, tmp_path):
    for check in (check_folder_name, check_story_name, check_game_name, lambda name: game_folder(tmp_path, name)):
        with pytest.raises(ValueError, match="is not a valid (folder )?name"):
            check(name)
    with pytest.raises(ValueError, match="no longer in the trash|is not a valid folder name"):
        restore_story(tmp_path, f"1 {name}")
