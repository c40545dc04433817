"""Saved stories in a real ComfyUI: played, branched, loaded, saved from a graph; in a tiny world."""

import json
import shutil
import urllib.parse

import pytest
from comfy_server import message, nodes_run
from graphs import DANCE, RUN, SLEEP, START, WAVE, draw, load, node, play, predict, save_video
from PIL import Image

from animegamer_core.media.video import read_clip
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story

pytestmark = pytest.mark.usefixtures("tiny")


def graph(story, *instructions, **takes):
    """A chain of turns, each drawn and saved; takes: other settings for turn n, as `draw2={...}`."""
    prompt, history = {"load": load(), "start": node("GameHistory", **START)}, ["start", 0]
    for number, text in enumerate(instructions, start=1):
        turn, drawn = f"predict{number}", f"draw{number}"
        prompt[turn] = predict(history, text, seed=number - 1)
        prompt[drawn] = draw([turn, 0], **takes.get(drawn, {}))
        prompt[f"save{number}"] = node("SaveGameStory", shot=[drawn, 3], story=story)
        history = [turn, 1]
    return prompt


def saved(server, story, branch=None):
    """The story on disk, at its current branch or another one."""
    found = Story.read(server.output_dir / "animegamer", story)
    if branch is not None:
        found.use(branch)
    return found


def instructions_of(server, story, branch=None):
    found = saved(server, story, branch)
    return [turn.instruction for turn in found.session(len(found.entries), 0).turns]


def files(server, story):
    folder = server.output_dir / "animegamer" / story
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def shown(entry, name="play"):
    return entry["outputs"][name]["animegamer_story"][0]


def state_of(entry, name="show"):
    return entry["outputs"][name]["animegamer_state"][0]


def images_of(name, output=2):
    return {"frames": node("PreviewImage", images=[name, output])}


def test_a_story_is_played_exported_and_read_again(server, story, tmp_path, tiny):
    entry = server.run(play(story, WAVE, "# a comment", RUN, SLEEP, export=True, seed=5))
    outputs, facts = entry["outputs"]["play"], shown(entry)
    assert (facts["story"], facts["branch"], facts["turns"]) == (story, "main", 3)
    names = [item["filename"] for item in facts["files"]]
    assert names == ["turn-001.mp4", "turn-002.mp4", "turn-003.mp4", "story.mp4", "contact-sheet.png"]
    paths = [server.output_dir / item["subfolder"] / item["filename"] for item in facts["files"]]
    assert [len(read_clip(path).frames) for path in paths[:4]] == [17, 17, 17, 51]
    assert Image.open(paths[4]).height > 600
    state = state_of(entry, "play")
    assert (state["turn"], state["instruction"]) == (3, SLEEP)
    assert [item["turn"] for item in state["course"]] == [1, 2, 3]
    assert outputs["animated"] == [True] and outputs["images"][0]["subfolder"] == f"animegamer/{story}/shots"
    player = Player(tiny, Story.open(tmp_path, "own", "tiny", tiny.fingerprint), PlaySettings(seed=5, steps=1))
    player.play([WAVE, RUN, SLEEP])
    assert saved(server, story).entries == player.story.entries, "as the command plays"
    before = files(server, story)
    prompt = play(story, WAVE, RUN, SLEEP, seed=5)
    again = server.run(prompt)
    assert nodes_run(again) == {"play"} and shown(again)["turns"] == 3
    assert files(server, story) == before, "saved turns are read, and nothing is written"
    assert nodes_run(server.run(prompt)) == set(), "the same again is in the cache"


TOLD = "Character: Miko; Motion: gently run with a red scarf; Background: day beach."
ASKED = "Character: Miko; Motion: softly dance with the scarf; Background: day beach."


def test_a_story_recalls_the_turn_that_described_a_thing(server, story):
    lines = (TOLD, *[f"{RUN[:-1]} {number}." for number in range(5)], ASKED)
    state = state_of(server.run(play(story, *lines)), "play")
    assert (state["turn"], state["recalled"]) == (7, [1])
    recent = server.run(play(story, *lines, memory="recent"))
    assert state_of(recent, "play")["recalled"] == [] and shown(recent)["branch"] == "branch-2"
    read = server.get("/animegamer/story?" + urllib.parse.urlencode({"name": story}))
    turns = {line["name"]: [turn["recalled"] for turn in line["turns"]] for line in read["branches"]}
    assert turns == {"main": [[]] * 6 + [[1]], "branch-2": [[]] * 7}
    turn = {"world": "tiny", "story": story, "instruction": ASKED, "branch": "main"}
    status, answer = server.post("/animegamer/turn?wait=1", turn)
    assert status == 200 and answer["state"]["recalled"] == [1], "a page's turn has the story's own memory"


def test_only_what_changed_is_played_again(server, story):
    """The same prompt runs nothing again. A story that was changed by something else is played again."""
    prompt = play(story, WAVE) | {"save": save_video("play", 4)}
    assert nodes_run(server.run(prompt)) - {"load"} == {"play", "save"}
    assert nodes_run(server.run(prompt)) == set()
    (server.output_dir / "animegamer" / story / "story.json").touch()  # something else has played
    assert nodes_run(server.run(prompt)) == {"play", "save"}
    assert instructions_of(server, story) == [WAVE]
    server.run(play(story, RUN))  # a branch after no turn, and the current one
    assert "play" in nodes_run(server.run(prompt))
    assert instructions_of(server, story) == [WAVE]
    on = play(story, WAVE, after=-1)
    assert [shown(server.run(on))["turns"] for _ in range(2)] == [2, 3], "one more turn each time"


def test_another_turn_or_take_starts_a_branch(server, story):
    server.run(play(story, WAVE, RUN, SLEEP))
    branched = server.run(play(story, DANCE, after=1))
    assert shown(branched)["branch"] == "branch-2" and shown(branched)["turns"] == 2
    assert [item["filename"] for item in shown(branched)["files"]] == ["turn-002.mp4"], "what was played now"
    assert instructions_of(server, story) == [WAVE, DANCE]
    assert instructions_of(server, story, "main") == [WAVE, RUN, SLEEP]
    again = server.run(play(story, SLEEP, after=-1, branch="main"))
    assert shown(again)["turns"] == 4 and saved(server, story).branch == "main"
    first = server.run(play(story, DANCE, after=0))
    assert shown(first)["branch"] == "branch-3" and instructions_of(server, story) == [DANCE]
    take = server.run(play(story, DANCE, after=1, branch="branch-2", seed=9))
    assert shown(take)["branch"] == "branch-4" and instructions_of(server, story) == [WAVE, DANCE]
    one, other = (saved(server, story, branch).entries[1] for branch in ("branch-2", "branch-4"))
    assert one.state == other.state and one.shot != other.shot


def test_empty_instructions_read_and_export_a_branch(server, story):
    server.run(play(story, WAVE, RUN))
    server.run(play(story, DANCE, after=1))
    entry = server.run(play(story, after=0, branch="main", export=True) | images_of("play"))
    assert shown(entry)["turns"] == 2 and shown(entry)["branch"] == "main"
    assert [item["filename"] for item in shown(entry)["files"]][-2:] == ["story.mp4", "contact-sheet.png"]
    assert len(entry["outputs"]["frames"]["images"]) == 34
    first = server.run(play(story, after=1, branch="branch-2", export=True))
    assert shown(first)["turns"] == 1 and [item["filename"] for item in shown(first)["files"]][0] == "turn-001.mp4"
    assert len(read_clip(server.output_dir / "animegamer" / story / "story.mp4").frames) == 17
    assert saved(server, story).branches() == ["main", "branch-2"] and instructions_of(server, story) == [WAVE, DANCE]


def test_an_interrupt_keeps_the_finished_turns(server, story):
    game = [WAVE, RUN, SLEEP, DANCE]
    prompt_id = server.queue(play(story, *game, steps=300))
    server.wait_until((server.output_dir / "animegamer" / story / "turn-001.mp4").exists)
    server.post("/interrupt", {})
    assert message(server.wait(prompt_id), "execution_interrupted") is not None
    done = instructions_of(server, story)
    assert 1 <= len(done) < 4 and done == game[: len(done)]
    assert shown(server.run(play(story, *game, steps=300)))["turns"] == 4


# Loading


def load_story(story, **more):
    return {"saved": node("LoadGameStory", **{"story": story, "turn": -1, "branch": "", "window": 4} | more)}


SHOW = {"show": node("StateDisplay", state=["saved", 1])}


def test_a_saved_turn_is_loaded_and_continued(server, story):
    server.run(play(story, WAVE, RUN, SLEEP))
    prompt = {**load_story(story, turn=2), **images_of("saved"), **SHOW, "load": load()}
    prompt |= {"predict": predict(["saved", 0], SLEEP, seed=2), "draw": draw(["predict", 0])}
    prompt["save"] = node("SaveGameStory", shot=["draw", 3], story=story)
    prompt["words"] = node("PreviewAny", source=["saved", 4])
    entry = server.run(prompt)
    assert state_of(entry)["turn"] == 2 and entry["outputs"]["words"]["text"] == [f"{WAVE}\n{RUN}"]
    assert len(entry["outputs"]["frames"]["images"]) == 17
    kept = saved(server, story)
    assert kept.branches() == ["main"] and len(kept.entries) == 3, "the same turn, predicted from the saved history"
    prompt["predict"]["inputs"]["instruction"] = DANCE
    server.run(prompt)
    assert instructions_of(server, story) == [WAVE, RUN, DANCE]
    assert instructions_of(server, story, "main") == [WAVE, RUN, SLEEP]


def test_a_changed_story_is_loaded_again(server, story):
    server.run(play(story, WAVE))
    prompt = load_story(story) | SHOW
    assert state_of(server.run(prompt))["turn"] == 1
    assert nodes_run(server.run(prompt)) == set()
    server.run(play(story, RUN, after=-1))
    assert state_of(server.run(prompt))["turn"] == 2
    assert "after turn 5" in server.refusal(load_story(story, turn=5) | SHOW)
    assert "no branch 'branch-7'" in server.refusal(load_story(story, branch="branch-7") | SHOW)


# Turns of a graph


def test_a_graph_saves_the_same_story_as_the_node(server, story):
    prompt = graph(story, WAVE, RUN, SLEEP)
    entry = server.run(prompt)
    assert nodes_run(server.run(prompt)) == set()
    server.run(play(f"{story} too", WAVE, RUN, SLEEP))
    assert saved(server, story).entries == saved(server, f"{story} too").entries
    clip = server.output_dir / "animegamer" / story / "turn-003.mp4"
    ours, nodes = (read_clip(clip.parent.parent / name / "turn-003.mp4") for name in (story, f"{story} too"))
    assert (ours.frames == nodes.frames).all()
    assert (
        set(json.loads(ours.metadata["prompt"])) == set(prompt) and ours.metadata["prompt"] != nodes.metadata["prompt"]
    )
    note = json.loads(ours.metadata["animegamer"])
    assert (note["turn"], note["instruction"], note["steps"], note["seed"]) == (3, SLEEP, 1, 2)
    item = entry["outputs"]["save3"]["images"][0]
    query = f"filename={item['filename']}&subfolder={item['subfolder'].replace(' ', '%20')}&type=output"
    assert server.get_bytes(f"/view?{query}") == clip.read_bytes()
    assert shown(entry, "save1")["story"] == story
    server.run(prompt)
    shutil.rmtree(clip.parent)
    assert nodes_run(server.run(prompt)) == {"save1", "save2", "save3"}, "a deleted story is saved again"
    assert instructions_of(server, story) == [WAVE, RUN, SLEEP]


# Events on the page


def test_a_page_gets_each_turn_with_progress_and_pictures(server, story):
    events = [*server.listen(play(story, "Miko frobnicates", RUN, steps=100))]
    turns = [data for event, data in events if event == "animegamer.turn"]
    facts = [(turn["turn"], turn["branch"], turn["node"], turn["story"]) for turn in turns]
    assert facts == [(1, "main", "play", story), (2, "main", "play", story)]
    assert turns[1]["state"]["instruction"] == RUN
    assert (server.output_dir / turns[0]["clip"]["subfolder"] / turns[0]["clip"]["filename"]).is_file()
    done = [data["value"] for event, data in events if event == "progress"]
    assert done == sorted(done) and done[-1] == 200 and len(set(done)) > 3
    kinds = [event for event, _ in events]
    assert "picture" in kinds
    assert kinds.index("animegamer.turn") < len(kinds) - 1 - kinds[::-1].index("progress"), "while the game goes on"
    outputs = server.wait(events[-1][1]["prompt_id"])["outputs"]
    assert outputs["play"]["animegamer_readings"] == ["Turn 1: This world does not know 'frobnicates'."]


def test_autoplay_goes_on_by_itself_and_is_found_again(server, story):
    entry = server.run(play(story, WAVE, autoplay=2, autoplay_seed=3))
    turns = instructions_of(server, story)
    assert turns[0] == WAVE and len(turns) == 3 and all(text.startswith("Character: Miko") for text in turns)
    assert shown(entry)["turns"] == 3
    assert [entry.proposed_by for entry in saved(server, story).entries] == ["", "rules, seed 3", "rules, seed 3"]
    before = files(server, story)
    server.run(play(story, WAVE, autoplay=2, autoplay_seed=3, export=True) | images_of("play"))
    drawn = {path: time for path, time in before.items() if path.parts[0] in ("turns", "shots", "story.json")}
    assert {path: files(server, story)[path] for path in drawn} == drawn, "nothing is computed twice"
