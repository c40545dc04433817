"""The pack's HTTP routes on a real server."""

import json
import re
import shlex
import shutil
import urllib.error
import urllib.parse
from pathlib import Path

import pytest
from graphs import RUN, WAVE
from tiny_world import save_tiny_world

from animegamer_core.game.state import clean_text
from animegamer_core.toybox.world import CHARACTERS, PLACES


def turn(story, instruction=WAVE, **more):
    return {"world": "tiny", "story": story, "instruction": instruction, **more}


pytestmark = pytest.mark.usefixtures("tiny")


def play(server, *args, **more):
    status, answer = server.post("/animegamer/turn?wait=1", turn(*args, **more))
    assert status == 200, answer
    return answer


def test_browsers_ask_again_for_the_pages_modules(server):
    for name in ("session.mjs", "animegamer.js"):
        address = f"{server.url}/extensions/ComfyUI-AnimeGamer/{name}"
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.headers["Cache-Control"] in ("no-cache", "no-store"), name
            known = {"If-None-Match": answer.headers["ETag"]}
        with pytest.raises(urllib.error.HTTPError, match="304"):
            urllib.request.urlopen(urllib.request.Request(address, headers=known), timeout=60)


def test_templates_are_listed_by_their_numbers(server):
    for path in ("/workflow_templates", "/api/workflow_templates"):
        names = server.get(path)["ComfyUI-AnimeGamer"]
        numbers = [int(name.split("-")[0]) for name in names]
        assert numbers == sorted(numbers) and (numbers[0], numbers[-1]) == (1, 12)


def test_turns_are_played_waited_for_and_listed(server, story, tiny):
    first, second = play(server, story), play(server, story, "Miko <runs>\nfast", motion="wild", seed=7)
    assert (first["turn"], second["turn"]) == (1, 2)
    assert second["state"]["instruction"] == clean_text("Miko <runs> fast")
    assert server.get_bytes(first["clip"])[4:8] == b"ftyp"
    (listed,) = (item for item in server.get("/animegamer/stories")["stories"] if item["name"] == story)
    assert (listed["world"], listed["branch"], listed["turns"]) == ("tiny", "main", 2)
    assert listed["clip"]["filename"] in second["clip"]
    branch = play(server, story, RUN, after=1, motion=33.5)
    assert branch["turn"] == 2
    answer = server.get(f"/animegamer/story?name={story.replace(' ', '%20')}")
    assert (answer["name"], answer["world"], answer["branch"]) == (story, "tiny", "branch-2")
    assert [(branch["name"], len(branch["turns"])) for branch in answer["branches"]] == [("main", 2), ("branch-2", 2)]
    (opening, fast), (_, other) = (branch["turns"] for branch in answer["branches"])
    assert (opening["number"], opening["instruction"], opening["seed"], opening["overridden"]) == (1, WAVE, 0, False)
    assert (fast["seed"], fast["overridden"]) == (8, fast["motion"]["level"] != 5)
    assert other["motion"]["value"] == 33.5 and other["overridden"]
    assert (other["steps"], other["guidance"], other["window"]) == (4, tiny.profile.guidance, 4)
    for number, one in enumerate((opening, other)):
        before = {"stamina": 50, "social": 50, "entertainment": 50} if number == 0 else opening["stats"]
        assert one["changes"] == {name: one["stats"][name] - before[name] for name in before}
        path = server.output_dir / one["clip"]["subfolder"] / one["clip"]["filename"]
        assert path.is_file() and one["shot"] in path.name


def test_a_story_finds_its_world_after_its_folder_was_renamed(server, story):
    other, moved = (server.models_dir / "animegamer" / name for name in ("other", "moved"))
    address = f"/animegamer/story?name={urllib.parse.quote(story)}"
    try:
        save_tiny_world(other, seed=1)
        play(server, story, world="other")
        assert server.get(address)["world"] == "other", "not tiny, which is of the same sizes"
        other.rename(moved)
        assert server.get(address)["world"] == "moved"
        listed = {one["name"]: one["world"] for one in server.get("/animegamer/stories")["stories"]}
        assert listed[story] == "moved"
        assert play(server, story, RUN, world="moved")["turn"] == 2
    finally:
        for folder in (other, moved):
            shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize(
    "change, named",
    [
        ({"story": "../up"}, "story name"),
        ({"world": "../toybox"}, "world '../toybox' is not known"),
        ({"instruction": "a" * 15_000}, "has 15000 letters; shorten it to 1024 tokens"),
        ({"seed": -1}, "field seed: expected a whole number >= 0"),
        ({"steps": 9}, "unknown field steps"),
    ],
)
def test_a_wrong_turn_gets_one_sentence_and_is_not_queued(server, story, change, named):
    queued = server.get("/prompt")["exec_info"]["queue_remaining"]
    status, answer = server.post("/animegamer/turn", turn(story) | change)
    assert status == 400 and named in answer["error"] and len(answer["error"].splitlines()) == 1
    assert server.get("/prompt")["exec_info"]["queue_remaining"] == queued
    assert not (server.output_dir / "animegamer" / story).exists()


@pytest.mark.parametrize("name, status", [("nobody", 404), ("..%2Fup", 400), ("runs", 400)])
def test_a_story_that_cannot_be_read(server, name, status):
    with pytest.raises(urllib.error.HTTPError) as error:
        server.get(f"/animegamer/story?name={name}")
    assert error.value.code == status and json.loads(error.value.read())["error"]


def test_the_words_of_a_world(server):
    words = server.get("/animegamer/words?world=toybox")
    assert words["characters"] == list(CHARACTERS) and words["places"] == list(PLACES)
    assert "gently" in words["adverbs"] and "run" in words["motions"] and words["times"] == ["day", "night"]
    assert server.get("/animegamer/words?world=qiqi") == {**dict.fromkeys(words, []), "pictured": False}


def test_suggestions_follow_the_story_and_are_the_same_again(server, story):
    asked = urllib.parse.urlencode({"world": "tiny", "story": story, "seed": 4})
    opened = server.get(f"/animegamer/suggestions?{asked}&opening={urllib.parse.quote(RUN.replace('Miko', 'Yuzu'))}")
    assert all(one["instruction"].startswith("Character: Yuzu") for one in opened["suggestions"])
    play(server, story)
    first = server.get(f"/animegamer/suggestions?{asked}")
    assert first == server.get(f"/animegamer/suggestions?{asked}") and first["proposed_by"] == "rules, seed 4"
    texts = [one["instruction"] for one in first["suggestions"]]
    assert len(set(texts)) == 3 and all(text.startswith("Character: Miko") for text in texts)
    assert len(server.get(f"/animegamer/suggestions?{asked}&after=1&branch=main&count=2")["suggestions"]) == 2
    play(server, story, texts[0])
    assert server.get(f"/animegamer/suggestions?{asked}") != first


def test_the_about_page_has_the_version_and_pages_of_the_docs(server):
    about = server.get("/animegamer/about")
    assert re.fullmatch(r"\d+\.\d+\.\d+", about["version"])
    for name in ("home", "docs"):
        assert server.get_bytes(about[name]).startswith(b"#") or about[name].startswith("https://")
    for page in ("../pyproject", "nothing", ""):
        with pytest.raises(urllib.error.HTTPError) as refused:
            server.get(f"/animegamer/docs?page={page}")
        assert refused.value.code == 404 and "there are README" in json.loads(refused.value.read())["error"]


def test_an_agent_plays_by_the_skill(server):
    """Every request of the skill, in its order, on a real server."""
    skill = (Path(__file__).parents[2] / "docs" / "skills" / "play-animegamer" / "SKILL.md").read_text(encoding="utf-8")
    fields = r"---\nname: play-animegamer\ndescription: \S.{50,1000}\n---\n\n# "
    assert re.match(fields, skill), "agents find a skill by these"
    lines = [shlex.split(line) for line in re.findall(r"^   curl .*$", skill, re.MULTILINE)]
    played = []
    for _, address, *options in lines:
        path = address.removeprefix("http://127.0.0.1:8188")
        if not options:
            assert server.get(path)
            continue
        status, answer = server.post(path, json.loads(options[-1]))
        assert status == 200 and {"turn", "state", "clip"} <= answer.keys(), answer
        assert {"stats", "changes", "motion"} <= answer["state"].keys()
        assert server.get_bytes(answer["clip"])[4:8] == b"ftyp"
        played.append(answer["turn"])
    assert played == [1, 2] and len(lines) == 5
