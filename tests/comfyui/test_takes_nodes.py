"""Judged takes in a real ComfyUI, in a tiny world with probes of random weights."""

import json
import shutil
import urllib.parse

import pytest
import torch
from comfy_server import message
from graphs import PLAY, RUN, START, WAVE, draw, load, node, predict
from tiny_world import save_tiny_world

from animegamer_core.toybox import probes


@pytest.fixture(scope="module")
def judged(server):
    """A world whose shots can be judged, beside one whose shots cannot."""
    root = server.models_dir / "animegamer"
    for name in ("tiny", "judged"):
        save_tiny_world(root / name, seed=len(name))
    torch.manual_seed(1)
    probes.save_probes(probes.ProbeNet(), root / "judged", {})
    yield "judged"
    for name in ("tiny", "judged"):
        shutil.rmtree(root / name)


def drawn(world, **how):
    prompt = {"load": load(world=world), "history": node("GameHistory", **START)}
    prompt["predict"], prompt["draw"] = predict(["history", 0], WAVE, seed=5), draw(["predict", 0], **how)
    prompt["save"] = node("SaveGameStory", shot=["draw", 3], story="graph takes")
    return prompt


def turns(server, story):
    (line,) = server.get(f"/animegamer/story?name={story.replace(' ', '%20')}")["lines"]
    return line["turns"]


def test_decode_shot_keeps_the_best_take_and_names_the_others(server, judged):
    entry = server.run(drawn(judged, takes=3))
    (note,) = entry["outputs"]["draw"]["animegamer_notes"]
    said = [part.split(" (seed ") for part in note.removeprefix("Turn 1, takes: ").split("), ")]
    scores, seeds = [float(score) for score, _ in said], [int(rest.split(",")[0].rstrip(").")) for _, rest in said]
    kept = [index for index, (_, rest) in enumerate(said) if "kept" in rest]
    assert [scores[index] for index in kept] == [max(scores)] and seeds == [5, 5 + 1009, 5 + 2018]
    assert turns(server, "graph takes")[0]["seed"] == 5 and saved_seed(server) == seeds[kept[0]]


def saved_seed(server):
    """The noise seed of the saved shot; the turn's own seed is another thing."""
    (record,) = (server.output_dir / "animegamer" / "graph takes" / "shots").glob("*.json")
    return json.loads(record.read_text())["key"]["seed"]


def test_a_story_is_played_in_judged_takes_over_http(server, judged):
    asked = {"world": judged, "story": "http takes", "takes": 3}
    for instruction in (WAVE, RUN):
        status, answer = server.post("/animegamer/turn?wait=1", {**asked, "instruction": instruction})
        assert status == 200, answer
    for turn in turns(server, "http takes"):
        assert len(turn["takes"]) == 3 and turn["score"] == max(take["score"] for take in turn["takes"])
        (kept,) = (take for take in turn["takes"] if take["shot"] == turn["shot"])
        assert (kept["seed"], kept["clip"]) == (turn["seed"], turn["clip"])
        clips = {server.get_bytes(f"/view?{urllib.parse.urlencode(take['clip'])}") for take in turn["takes"]}
        assert len(clips) == 3
    status, answer = server.post("/animegamer/turn", {**asked, "instruction": WAVE, "takes": 65})
    assert status == 400 and "takes" in answer["error"]


def test_the_page_knows_which_worlds_can_be_judged(server, judged):
    words = {world: server.get(f"/animegamer/words?world={world}") for world in ("tiny", "judged", "toybox")}
    assert {world: found["judged"] for world, found in words.items()} == {"tiny": False, "judged": True, "toybox": True}


def test_takes_that_nothing_can_judge_are_refused_in_a_sentence(server, judged):
    play = node("PlayGameStory", model=["load", 0], instructions=WAVE, story="no judge", **PLAY, takes=2)
    assert "nothing can judge the shots of world 'tiny'" in server.refusal({"load": load(world="tiny"), "play": play})
    assert "no judge" not in [story["name"] for story in server.get("/animegamer/stories")["stories"]]


def test_an_interrupt_between_takes_keeps_those_that_are_drawn(server, judged):
    play = node(
        "PlayGameStory", model=["load", 0], instructions=WAVE, story="stopped", takes=3, **PLAY | {"steps": 300}
    )
    prompt = server.queue({"load": load(world=judged), "play": play})
    shots = server.output_dir / "animegamer" / "stopped" / "lines" / "main.jsonl"
    server.wait_until(shots.exists)
    server.post("/interrupt", {})
    entry = server.wait(prompt)
    assert message(entry, "execution_interrupted")
    (turn,) = turns(server, "stopped")
    assert 1 <= len(turn["takes"]) < 3
    again = server.run({"load": load(world=judged), "play": play})
    assert again["status"]["status_str"] == "success" and len(turns(server, "stopped")[0]["takes"]) == 3
