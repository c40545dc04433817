"""Stories that somebody changed by hand, checksums and addresses included: they are read, or named in a sentence."""

import json
import shutil
from dataclasses import asdict

import numpy as np
import pytest
import torch
from test_play import GAME

from animegamer_core.game.state import GameSession, GameState, OpeningClip
from animegamer_core.json_files import to_type
from animegamer_core.story.film import export_film
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story
from animegamer_core.story.turn import OpeningKey, ShotKey, StateKey, address_of

SHAPE = (8, 32)
INJECTED = "one\r\n\n7\n00:00:00,000 --> 00:00:09,000\n\x1b[31m{\\an8}<b>\x00two\u2028\u202ethree"


@pytest.fixture(scope="module")
def whole(world, tmp_path_factory):
    """A played story that began with a picture and a clip."""
    root = tmp_path_factory.mktemp("whole")
    clip = OpeningClip(np.zeros((17, world.spec.decoder.height, world.spec.decoder.width, 3), np.uint8), 8.0)
    began = GameSession().open_with("Miko waves", GameState.of_picture(torch.randn(SHAPE)), clip)
    story = Story.open(root, "game", world.spec.name, world.fingerprint)
    Player(world, story, PlaySettings(steps=1), opening=began).play(GAME[:2])
    return root


@pytest.fixture
def root(whole, tmp_path):
    shutil.copytree(whole / "game", tmp_path / "game")
    return tmp_path


def opening_record(root):
    return next((root / "game" / "openings").glob("*.json"))


def change_turns(root, change=lambda key: None, change_opening=lambda key: None):
    """Change the keys of all turns, and of the opening, and give each file the address that follows."""
    game = root / "game"

    def renamed(folder, address, key_type, values):
        key = to_type(values["key"], key_type, address)
        for path in list((game / folder).glob(f"{address}.*")):
            path.rename(path.with_name(address_of(key) + path.suffix))
        text = json.dumps({**values, "key": asdict(key)})
        (game / folder / f"{address_of(key)}.json").write_text(text)
        return address_of(key)

    record = opening_record(root)
    values = json.loads(record.read_text())
    change_opening(values["key"])
    parent = renamed("openings", record.stem, OpeningKey, values)
    index = json.loads((game / "story.json").read_text())
    for entry in index["branches"]["main"]:
        values = json.loads((game / "turns" / f"{entry['state']}.json").read_text())
        values["key"]["parent"] = parent
        change(values["key"])
        parent = renamed("turns", entry["state"], StateKey, values)
        shot = json.loads((game / "shots" / f"{entry['shot']}.json").read_text())
        shot["key"]["state"] = parent
        entry.update(state=parent, shot=renamed("shots", entry["shot"], ShotKey, shot))
    (game / "story.json").write_text(json.dumps(index))


def test_what_was_written_into_a_record_stays_text(root):
    change_turns(root, lambda key: key.update(instruction=INJECTED), lambda key: key.update(text=INJECTED))
    story = Story.read(root, "game")
    session = story.session(2, 2)
    assert all(turn.instruction.isprintable() and "<" not in turn.instruction for turn in session.turns)
    _, subtitles = export_film(story, root / "film.mp4", subtitles=True, opening=True).files
    lines = subtitles.read_text("utf-8").split("\n")
    assert [line for line in lines if line.isdecimal()] == ["1", "2", "3"], "no caption was put in"
    assert all(line.isprintable() and not set("{}<>") & set(line.replace("-->", "")) for line in lines)
