"""What docs/dataset.md says of the files of a dataset is what their readers take."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from animegamer_core.data import corrections, dataset, records
from animegamer_core.data.captions.models import read_spans
from animegamer_core.data.films import film_index
from animegamer_core.data.films.framing import Crop
from animegamer_core.data.films.scenes import Scene
from animegamer_core.data.films.survey import FilmScene, Survey
from animegamer_core.data.records import ClipRecord
from animegamer_core.game.life import STATS

PAGE = (Path(__file__).parents[2] / "docs" / "dataset.md").read_text(encoding="utf-8")


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def example(heading: str) -> str:
    return re.search(r"```json\n(.*?)```", section(heading), re.DOTALL)[1]


@pytest.fixture
def folder(tmp_path) -> Path:
    """The folder of the examples: the clip of turns.jsonl, and the other one that games.jsonl plays."""
    first = msgspec.json.decode(example("turns.jsonl"), type=ClipRecord)
    (game,) = map(json.loads, example("games.jsonl").splitlines())
    assert game["clips"][0] == first.clip
    second = msgspec.structs.replace(first, start=first.end, end=first.end + 2, clip=game["clips"][1])
    for record in (first, second):
        (tmp_path / record.clip).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / record.clip).touch()
    (tmp_path / dataset.TURNS).write_text(records.jsonl_text([first, second]))
    (tmp_path / dataset.GAMES).write_text(example("games.jsonl"))
    film = tmp_path.parent / f"{first.film}.mp4"
    film.write_bytes(b"film")
    scenes = (FilmScene(Scene(0.0, 31.208, "start"), Crop()), FilmScene(Scene(31.208, 40.0, "cut"), Crop()))
    film_index.add_film(tmp_path, first.film, film, {}, Survey({}, 40.0, scenes))
    return tmp_path


def test_a_clip_has_the_described_keys_and_a_caption_that_makes_an_instruction():
    record = msgspec.json.decode(example("turns.jsonl"), type=ClipRecord)
    assert json.loads(record.to_json()) == json.loads(example("turns.jsonl"))
    assert record.clip == f"clips/{record.film}/{round(1000 * record.start):08d}.mp4" and record.captioned
    record.check(STATS)
    rows = re.findall(r"^\| (`.*?`) \|", section("turns.jsonl"), re.MULTILINE)
    described = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(described) == sorted(ClipRecord.__struct_fields__)


def test_the_game_is_one_of_the_dataset(folder):
    read, problems = dataset.read_dataset(folder)
    assert problems == [] and [game.clips for game in read.games] == [(0, 1)] and read.training_clips == (0, 1)
    game = json.loads(example("games.jsonl"))
    (folder / dataset.GAMES).write_text(json.dumps({"game": game["game"], "clips": game["clips"]}))
    assert dataset.DatasetFolder.open(folder).training_clips == (0, 1)


def test_the_sidecar_is_one_that_the_script_reads(tmp_path):
    path = tmp_path / "film.captions.jsonl"
    path.write_text(example("captions beside a film"))
    (span,) = read_spans(path)
    assert [*span.by_level.values()] == ["slightly", "gently", "evenly", "quickly", "madly"]
    assert (span.start, span.end, span.names) == (0.0, 4.29, ("Yuzu", "Nori"))


def test_the_corrections_can_be_applied_and_undone(folder, tmp_path):
    file = tmp_path / corrections.CORRECTIONS
    file.write_text(example("corrections"))
    assert corrections.apply_corrections(folder, file) == 4
    (film,) = film_index.read_film_index(folder).values()
    assert [(item.scene.start, item.scene.end) for item in film.survey.scenes] == [(0.0, 12.5), (12.5, 40.0)]
    (left,) = dataset.DatasetFolder.open(folder).turns
    asked = [json.loads(line) for line in example("corrections").splitlines()]
    assert (left.clip, left.adverb) == (asked[0]["clip"], asked[0]["adverb"])
    file.write_text(json.dumps({**asked[1], "drop": False}) + "\n")
    assert corrections.apply_corrections(folder, file) == 1 and len(dataset.DatasetFolder.open(folder).turns) == 2
