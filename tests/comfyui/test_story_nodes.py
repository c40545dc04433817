"""Saved stories in a real ComfyUI: played, branched, loaded, saved from a graph; mostly in a tiny world."""

import json
import shutil
import time

import numpy as np
import pytest
from comfy_server import message, nodes_run
from PIL import Image

from animegamer_core.media.video import read_clip
from animegamer_core.state import CACHED_TURNS
from animegamer_core.story.player import Player, PlaySettings
from animegamer_core.story.story import Story

WAVE = "Character: Miko; Motion: gently wave hello; Background: day beach."
RUN = "Character: Miko; Motion: quickly run; Background: night forest."
SLEEP = "Character: Yuzu; Motion: barely sleep under a blanket; Background: night bedroom."
DANCE = "Character: Yuzu; Motion: wildly dance; Background: day castle."
STEPS = 1  # only the first test looks at the pictures
LOAD = {"world": "tiny", "precision": "auto", "placement": "auto", "profile": "world", "lora_strength": 1.0}
LOAD |= {"lora_file": "none", "lora_file_strength": 1.0}
DRAW = {"motion": "predicted", "motion_value": 5.0, "steps": STEPS, "guidance": "world"}
PLAY = DRAW | {"after": 0, "line": "", "window": 4, "seed": 0, "export": False}
START = {"window": 4, "stamina": 50, "social": 50, "entertainment": 50, "rewind_to": -1}


pytestmark = pytest.mark.usefixtures("tiny")


@pytest.fixture
def story(request):
    """A name that no other test uses."""
    return f"{request.node.name[:60].replace('[', ' ').replace(']', '')} {time.monotonic_ns()}"


def node(kind, **inputs):
    return {"class_type": kind, "inputs": inputs}


def play(story, *instructions, world="tiny", **more):
    """One PlayGameStory."""
    return {
        "load": node("LoadAnimeGamer", **LOAD | {"world": world}),
        "play": node(
            "PlayGameStory",
            **PLAY | {"model": ["load", 0], "story": story, "instructions": "\n".join(instructions)} | more,
        ),
    }


def graph(story, *instructions, **takes):
    """A chain of turns, each drawn and saved; takes: other settings for turn n, as `draw2={...}`."""
    prompt = {"load": node("LoadAnimeGamer", **LOAD), "start": node("GameHistory", **START)}
    history = ["start", 0]
    for number, text in enumerate(instructions, start=1):
        turn, draw = f"predict{number}", f"draw{number}"
        prompt[turn] = node("PredictNextState", model=["load", 0], history=history, instruction=text, seed=number - 1)
        how = DRAW | {"seed": -1} | takes.get(draw, {})
        prompt[draw] = node("DecodeShot", model=["load", 0], state=[turn, 0], **how)
        prompt[f"save{number}"] = node("SaveGameStory", shot=[draw, 3], story=story)
        history = [turn, 1]
    return prompt


def saved(server, story):
    return Story.read(server.output_dir / "animegamer", story)


def instructions_of(story):
    return [turn.instruction for turn in story.session(len(story.entries), 0).turns]


def instructions_on(server, story, line):
    kept = saved(server, story)
    kept.use(line)
    return instructions_of(kept)


def files(server, story):
    folder = server.output_dir / "animegamer" / story
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}


def shown(entry, name="play"):
    return entry["outputs"][name]["animegamer_story"][0]


def failure(server, prompt):
    """The sentence that a prompt fails with."""
    failed = message(server.wait(server.queue(prompt)), "execution_error")
    assert failed is not None
    sentence = failed["exception_message"].strip()
    assert len(sentence.splitlines()) == 1
    return sentence


def test_a_story_is_played_exported_and_read_again(server, story):
    entry = server.run(play(story, WAVE, "# a comment", RUN, SLEEP, export=True, steps=4, world="toybox"))
    outputs = entry["outputs"]["play"]
    facts = shown(entry)
    assert (facts["story"], facts["line"], facts["turns"]) == (story, "main", 3)
    names = [item["filename"] for item in facts["files"]]
    assert names == ["turn-001.mp4", "turn-002.mp4", "turn-003.mp4", "story.mp4", "contact-sheet.png"]
    paths = [server.output_dir / item["subfolder"] / item["filename"] for item in facts["files"]]
    clips = [read_clip(path).frames for path in paths[:4]]
    assert [len(clip) for clip in clips] == [17, 17, 17, 51] and clips[0].shape[1:] == (96, 144, 3)
    assert all(20 < clip.mean() < 235 and clip.std() > 10 for clip in clips)
    assert np.abs(clips[0].astype(int) - clips[1]).mean() > 5
    assert Image.open(paths[4]).height > 600
    state = outputs["animegamer_state"][0]
    assert (state["turn"], state["instruction"]) == (3, SLEEP)
    assert [item["turn"] for item in state["course"]] == [1, 2, 3]
    assert outputs["animated"] == [True] and outputs["images"][0]["subfolder"] == f"animegamer/{story}/shots"
    before = files(server, story)
    prompt = play(story, WAVE, RUN, SLEEP, steps=4, world="toybox")
    again = server.run(prompt)
    assert nodes_run(again) == {"play"} and shown(again)["turns"] == 3
    assert {path: age for path, age in files(server, story).items() if path.suffix != ".png"} == {
        path: age for path, age in before.items() if path.suffix != ".png"
    }, "saved turns are read, and nothing is written"
    assert nodes_run(server.run(prompt)) == set(), "the same again is in the cache"


def test_only_what_changed_is_played_again(server, story):
    """The same prompt runs nothing again. A story that was changed by something else is played again."""
    prompt = play(story, WAVE) | {
        "save": node("SaveVideo", video=["play", 4], filename_prefix="again", format="auto", codec="auto")
    }
    assert nodes_run(server.run(prompt)) - {"load"} == {"play", "save"}
    assert nodes_run(server.run(prompt)) == set()
    line = server.output_dir / "animegamer" / story / "lines" / "main.jsonl"
    line.write_text("")
    assert nodes_run(server.run(prompt)) == {"play", "save"}
    assert instructions_of(saved(server, story)) == [WAVE]
    assert nodes_run(server.run(prompt)) == set()
    server.run(play(story, RUN))  # a branch after no turn, and the current one
    assert "play" in nodes_run(server.run(prompt))
    assert instructions_of(saved(server, story)) == [WAVE]
    on = play(story, WAVE, after=-1)
    assert [shown(server.run(on))["turns"] for _ in range(2)] == [2, 3], "one more turn each time"


def test_a_node_plays_what_the_command_plays(server, story, tmp_path, tiny):
    server.run(play(story, WAVE, RUN, seed=5))
    player = Player(tiny, Story.open(tmp_path, "own", "tiny", tiny.fingerprint), PlaySettings(seed=5, steps=STEPS))
    player.play([WAVE, RUN])
    assert saved(server, story).entries == player.story.entries


def test_a_prompt_without_a_preset_has_the_same_keys(server, story):
    prompt = play(story, WAVE, steps=0)
    assert "preset" not in prompt["load"]["inputs"]
    server.run(prompt)
    before, entries = files(server, story), saved(server, story).entries
    prompt["load"]["inputs"]["preset"] = "world"
    server.run(prompt)
    assert saved(server, story).entries == entries and files(server, story) == before, "nothing is written"


def test_presets_that_draw_differently_get_different_keys(server, story):
    """`exact` always runs both passes of guidance, which changes the picture: other keys, another branch."""
    lines = {}
    for name in ("world", "balanced", "exact", "live"):
        prompt = play(story, WAVE, RUN)
        prompt["load"]["inputs"]["preset"] = name
        lines[name] = shown(server.run(prompt))["line"]
        shots = [saved(server, story).shots.record(entry.shot)["key"] for entry in saved(server, story).entries]
        assert {shot["precision"] for shot in shots} == {"float32+skip0" if name == "exact" else "float32"}
    assert lines == {"world": "main", "balanced": "main", "exact": "line-2", "live": "main"}
    prompt = graph(story, WAVE, RUN)
    prompt["load"]["inputs"]["preset"] = "exact"
    prompt["play"] = play(story, WAVE, RUN)["play"]
    server.run(prompt)
    assert shown(server.run(prompt))["line"] == "line-2" and saved(server, story).branches() == ["main", "line-2"]


def test_another_instruction_after_a_turn_starts_a_branch(server, story):
    server.run(play(story, WAVE, RUN, SLEEP))
    branched = server.run(play(story, DANCE, after=1))
    assert shown(branched)["line"] == "line-2" and shown(branched)["turns"] == 2
    assert instructions_of(saved(server, story)) == [WAVE, DANCE] and instructions_on(server, story, "main") == [
        WAVE,
        RUN,
        SLEEP,
    ]
    again = server.run(play(story, SLEEP, after=-1, line="main"))
    assert shown(again)["turns"] == 4 and saved(server, story).branch == "main"
    first = server.run(play(story, DANCE, after=0))
    assert shown(first)["line"] == "line-3" and instructions_of(saved(server, story)) == [DANCE]
    took = server.run(play(story, DANCE, after=1, line="line-2", seed=9))
    assert shown(took)["turns"] == 2
    assert instructions_of(saved(server, story)) == [WAVE, DANCE]


def test_takes_of_a_turn_are_branches_with_the_same_state(server, story):
    server.run(play(story, WAVE))
    lines = [shown(server.run(play(story, RUN, after=1, line="main", seed=seed)))["line"] for seed in (0, 10, 20)]
    assert lines == ["main", "line-2", "line-3"]
    entries = []
    for line in lines:
        kept = saved(server, story)
        kept.use(line)
        entries.append(kept.entries[1])
    assert len({entry.state for entry in entries}) == 1 and len({entry.shot for entry in entries}) == 3
    chosen = server.run(play(story, SLEEP, after=2, line="line-2"))
    assert shown(chosen)["line"] == "line-2" and instructions_of(saved(server, story)) == [WAVE, RUN, SLEEP]


def test_empty_instructions_read_and_export_a_branch(server, story):
    server.run(play(story, WAVE, RUN))
    server.run(play(story, DANCE, after=1))
    entry = server.run(play(story, after=0, line="main", export=True) | images_of("play"))
    assert shown(entry)["turns"] == 2 and shown(entry)["line"] == "main"
    assert [item["filename"] for item in shown(entry)["files"]][-2:] == ["story.mp4", "contact-sheet.png"]
    assert len(entry["outputs"]["frames"]["images"]) == 34
    assert saved(server, story).branches() == ["main", "line-2"]
    first = server.run(play(story, after=1, line="line-2", export=True))
    assert shown(first)["turns"] == 1 and [item["filename"] for item in shown(first)["files"]][0] == "turn-001.mp4"
    assert len(read_clip(server.output_dir / "animegamer" / story / "story.mp4").frames) == 17
    assert saved(server, story).branches() == ["main", "line-2"] and instructions_of(saved(server, story)) == [
        WAVE,
        DANCE,
    ]


def images_of(name, output=2):
    return {"frames": node("PreviewImage", images=[name, output])}


@pytest.mark.parametrize(
    "more, named",
    [
        ({"story": "../up"}, "story name '../up'"),
        ({"story": "con"}, "story name 'con'"),
        ({"story": "Runs"}, "reserved for other files"),
        ({"instructions": "# nothing"}, "no story"),
        ({"after": 3}, "after turn 3"),
        ({"line": "../main"}, "no branch '../main'"),
    ],
)
def test_invalid_inputs_are_refused_in_one_sentence(server, story, more, named):
    prompt = play(story, WAVE)
    prompt["play"]["inputs"] |= more
    assert named in failure(server, prompt)
    assert not (server.output_dir / "animegamer" / story).exists()
    assert {path.name for path in server.output_dir.parent.iterdir()} >= {"output", "models"}
    assert not (server.output_dir / "up").exists()


def test_a_deleted_story_cannot_be_continued(server, story):
    server.run(play(story, WAVE))
    shutil.rmtree(server.output_dir / "animegamer" / story)
    sentence = failure(server, play(story, RUN, after=1, line="main"))
    assert "was removed from the output folder" in sentence


def test_a_story_deleted_while_it_is_played_leaves_no_files(server, story):
    server.run(play(story, WAVE))
    folder = server.output_dir / "animegamer" / story
    queued = server.queue(play(story, RUN, after=1, line="main", steps=1000))
    end = time.monotonic() + 60
    while len(list((folder / "turns").glob("*.json"))) < 2 and time.monotonic() < end:  # predicted, and now drawn
        time.sleep(0.01)
    shutil.rmtree(folder)
    failed = message(server.wait(queued), "execution_error")
    assert failed["exception_message"].strip() == f"story {story!r} was removed from the output folder; start it again"
    assert not folder.exists()
    assert shown(server.run(play(story, WAVE)))["turns"] == 1


def test_a_story_of_another_profile_is_not_changed(server, story):
    server.run(play(story, WAVE))
    before = files(server, story)
    prompt = play(story, WAVE)
    prompt["load"]["inputs"]["profile"] = "reference"
    assert "was played in world 'tiny'" in failure(server, prompt)
    assert files(server, story) == before


def test_a_story_that_the_command_is_playing_is_refused(server, story, tiny):
    with Story.open(server.output_dir / "animegamer", story, "tiny", tiny.fingerprint).lock():
        assert "is being played elsewhere" in failure(server, play(story, WAVE))


def test_an_interrupt_keeps_the_finished_turns(server, story):
    prompt_id = server.queue(play(story, WAVE, RUN, SLEEP, DANCE, steps=6, world="toybox"))
    lines = server.output_dir / "animegamer" / story / "lines" / "main.jsonl"
    end = time.monotonic() + 60
    while not lines.exists() and time.monotonic() < end:
        time.sleep(0.02)
    time.sleep(0.1)
    asked = time.monotonic()
    server.post("/interrupt", {})
    entry = server.wait(prompt_id)
    assert message(entry, "execution_interrupted") is not None and time.monotonic() - asked < 3
    done = instructions_of(saved(server, story))
    assert 1 <= len(done) < 4 and done == [WAVE, RUN, SLEEP, DANCE][: len(done)]
    again = server.run(play(story, WAVE, RUN, steps=6, world="toybox"))
    assert shown(again)["turns"] == 2


def test_unknown_words_are_noted(server, story):
    entry = server.run(play(story, "Miko frobnicates", WAVE))
    assert entry["outputs"]["play"]["animegamer_notes"] == [
        "Turn 1: tiny does not know frobnicates; it reads the rest of the instruction."
    ]


# Loading


def load(story, **more):
    return {"saved": node("LoadGameStory", **{"story": story, "turn": -1, "line": "", "window": 4} | more)}


def test_a_saved_turn_is_loaded_and_continued(server, story):
    server.run(play(story, WAVE, RUN, SLEEP))
    prompt = {
        **load(story, turn=2),
        **images_of("saved"),
        "load": node("LoadAnimeGamer", **LOAD),
        "predict": node("PredictNextState", model=["load", 0], history=["saved", 0], instruction=SLEEP, seed=2),
        "draw": node("DecodeShot", model=["load", 0], state=["predict", 0], **DRAW, seed=-1),
        "save": node("SaveGameStory", shot=["draw", 3], story=story),
        "show": node("StateDisplay", state=["saved", 1]),
        "words": node("PreviewAny", source=["saved", 4]),
    }
    entry = server.run(prompt)
    assert entry["outputs"]["show"]["animegamer_state"][0]["turn"] == 2
    assert entry["outputs"]["words"]["text"] == [f"{WAVE}\n{RUN}"]
    assert len(entry["outputs"]["frames"]["images"]) == 17
    kept = saved(server, story)
    assert kept.branches() == ["main"] and len(kept.entries) == 3, "the same turn, predicted from the saved history"
    prompt["predict"]["inputs"]["instruction"] = DANCE
    server.run(prompt)
    assert instructions_of(saved(server, story)) == [WAVE, RUN, DANCE] and instructions_on(server, story, "main") == [
        WAVE,
        RUN,
        SLEEP,
    ]


def test_new_stories_are_named_if_none_is_chosen(server, story):
    server.run(play(story, WAVE))
    prompt = load("none yet") | {"show": node("StateDisplay", state=["saved", 1])}
    status, answer = server.post("/prompt", {"prompt": prompt})
    if status == 400:  # newer versions check the lists themselves
        assert "Value not in list" in json.dumps(answer)
        return
    sentence = message(server.wait(answer["prompt_id"]), "execution_error")["exception_message"]
    assert "choose one of" in sentence and repr(story) in sentence


def test_a_changed_story_is_loaded_again(server, story):
    server.run(play(story, WAVE))
    prompt = load(story) | {"show": node("StateDisplay", state=["saved", 1])}
    assert server.run(prompt)["outputs"]["show"]["animegamer_state"][0]["turn"] == 1
    assert nodes_run(server.run(prompt)) == set()
    server.run(play(story, RUN, after=-1))
    assert server.run(prompt)["outputs"]["show"]["animegamer_state"][0]["turn"] == 2
    listed = server.get("/object_info/LoadGameStory")["LoadGameStory"]["input"]["required"]["story"]
    options = listed[0] if isinstance(listed[0], list) else listed[1]["options"]
    assert options[0] == story and "runs" not in options


@pytest.mark.parametrize("more, named", [({"turn": 5}, "after turn 5"), ({"line": "line-7"}, "no branch 'line-7'")])
def test_a_missing_turn_or_branch_is_refused(server, story, more, named):
    server.run(play(story, WAVE))
    assert named in failure(server, load(story, **more) | {"show": node("StateDisplay", state=["saved", 1])})


def test_a_turn_without_a_shot_has_a_history_but_no_images(server, story):
    prompt = graph(story, WAVE, RUN)
    del prompt["save1"]
    server.run(prompt)
    _, failed = server.listen(
        load(story, turn=1) | images_of("saved") | {"show": node("StateDisplay", state=["saved", 1])}
    )[-1]
    assert "turn 1 of story" in failed["exception_message"] and "without a shot" in failed["exception_message"]
    outputs = server.wait(failed["prompt_id"])["outputs"]
    assert outputs["show"]["animegamer_state"][0]["instruction"] == WAVE and "frames" not in outputs


# Turns of a graph


def test_a_graph_saves_the_same_story_as_the_node(server, story):
    entry = server.run(graph(story, WAVE, RUN, SLEEP))
    assert nodes_run(server.run(graph(story, WAVE, RUN, SLEEP))) == set()
    server.run(play(f"{story} too", WAVE, RUN, SLEEP))
    assert saved(server, story).entries == saved(server, f"{story} too").entries
    clip = server.output_dir / "animegamer" / story / "turn-003.mp4"
    assert clip.read_bytes() == (clip.parent.parent / f"{story} too" / "turn-003.mp4").read_bytes()
    note = json.loads(read_clip(clip).metadata["animegamer"])
    assert (note["turn"], note["instruction"], note["steps"], note["seed"]) == (3, SLEEP, STEPS, 2)
    item = entry["outputs"]["save3"]["images"][0]
    query = f"filename={item['filename']}&subfolder={item['subfolder'].replace(' ', '%20')}&type=output"
    assert server.get_bytes(f"/view?{query}") == clip.read_bytes()
    assert entry["outputs"]["save1"]["animegamer_story"][0]["story"] == story


def test_another_take_in_a_graph_keeps_the_turns_after_it(server, story):
    server.run(graph(story, WAVE, RUN, SLEEP))
    first = saved(server, story).entries
    entry = server.run(graph(story, WAVE, RUN, SLEEP, draw2={"motion": "custom", "motion_value": 33.5}))
    assert nodes_run(entry) == {"draw2", "save2"}
    second = saved(server, story)
    assert [one == two for one, two in zip(first, second.entries, strict=True)] == [True, False, True]
    assert second.branches() == ["main", "line-2"]
    entry = server.run(graph(story, WAVE, DANCE, SLEEP))
    assert instructions_of(saved(server, story)) == [WAVE, DANCE, SLEEP]


def test_a_deleted_story_is_saved_again(server, story):
    prompt = graph(story, WAVE)
    server.run(prompt)
    shutil.rmtree(server.output_dir / "animegamer" / story)
    assert nodes_run(server.run(prompt)) == {"save1"}
    assert instructions_of(saved(server, story)) == [WAVE]


def test_a_shot_of_another_model_is_refused(server, story):
    prompt = graph(story, WAVE)
    prompt["other"] = node("LoadAnimeGamer", **LOAD | {"profile": "reference"})
    prompt["draw1"]["inputs"]["model"] = ["other", 0]
    assert "turn 1 was predicted with another model" in failure(server, prompt)
    assert not (server.output_dir / "animegamer" / story).exists()


# Openings


def test_a_story_starts_with_a_picture(server, story):
    picture = Image.fromarray(np.tile(np.arange(144, dtype=np.uint8), (96, 1))).convert("RGB")
    picture.save(server.input_dir / "opening.png")
    opening = {
        "picture": node("LoadImage", image="opening.png"),
        "encode": node(
            "EncodeShot",
            model=["load", 0],
            frames=["picture", 0],
            motion_text="Character: Miko; Motion: stands still; Background: day beach.",
        ),
    }
    opened = play(story, WAVE, RUN, opening=["encode", 0]) | opening
    entry = server.run(opened)
    assert [item["turn"] for item in entry["outputs"]["play"]["animegamer_state"][0]["course"]] == [0, 1, 2]
    plain = server.run(play(f"{story} plain", WAVE, RUN))
    assert plain["outputs"]["play"]["animegamer_state"][0]["turn"] == 2
    kept = saved(server, story)
    assert kept.entries[0].state != saved(server, f"{story} plain").entries[0].state
    assert kept.session(2, 4).picture is not None
    loaded = load(story) | {"show": node("StateDisplay", state=["saved", 1])}
    state = server.run(loaded)["outputs"]["show"]["animegamer_state"][0]
    assert [item["turn"] for item in state["course"]] == [0, 1, 2]
    on = server.run(play(story, SLEEP, after=-1))
    assert shown(on)["turns"] == 3 and shown(on)["line"] == "main"
    before = files(server, story)
    shown(server.run(play(story, WAVE, RUN, SLEEP, opening=["encode", 0]) | opening))
    assert {path for path in files(server, story)} == set(before), "this game is saved already"
    game = graph(f"{story} graph", WAVE, RUN) | opening
    game["start"]["inputs"]["opening"] = ["encode", 0]
    server.run(game)
    assert saved(server, f"{story} graph").entries == kept.entries[:2]
    again = server.run(play(story, WAVE))
    assert shown(again)["line"] == "line-2" and saved(server, story).session(1, 4).picture is None


def test_a_long_game_that_starts_with_a_picture_is_saved(server, story):
    Image.new("RGB", (144, 96), "teal").save(server.input_dir / "teal.png")
    prompt = graph(story, *[f"Miko runs {number}" for number in range(CACHED_TURNS)])
    prompt["picture"] = node("LoadImage", image="teal.png")
    prompt["encode"] = node("EncodeShot", model=["load", 0], frames=["picture", 0], motion_text="stands still")
    prompt["start"]["inputs"]["opening"] = ["encode", 0]
    for number in range(2, CACHED_TURNS):
        del prompt[f"save{number}"], prompt[f"draw{number}"]
    server.run(prompt)
    kept = saved(server, story)
    assert len(kept.entries) == CACHED_TURNS and kept.session(CACHED_TURNS, 4).picture is not None


# Events on the page


def test_a_page_gets_each_turn_with_progress_and_pictures(server, story):
    events = server.listen(play(story, WAVE, RUN, steps=10, world="toybox"))
    turns = [data for event, data in events if event == "animegamer.turn"]
    assert [(turn["turn"], turn["line"], turn["node"], turn["story"]) for turn in turns] == [
        (1, "main", "play", story),
        (2, "main", "play", story),
    ]
    assert turns[1]["state"]["instruction"] == RUN
    assert (server.output_dir / turns[0]["clip"]["subfolder"] / turns[0]["clip"]["filename"]).is_file()
    done = [data["value"] for event, data in events if event == "progress"]
    assert done == sorted(done) and done[-1] == 20 and len(set(done)) > 5
    kinds = [event for event, _ in events]
    assert "picture" in kinds
    assert kinds.index("animegamer.turn") < len(kinds) - 1 - kinds[::-1].index("progress"), (
        "sent while the game goes on"
    )


def test_the_order_of_saving_does_not_matter(server, story):
    """Three nodes of one game, whose order ComfyUI chooses; here each is the only one that runs at a time."""
    for kept in (3, 1, 2):
        prompt = graph(story, WAVE, RUN, SLEEP)
        server.run({key: value for key, value in prompt.items() if not key.startswith("save") or key == f"save{kept}"})
    assert instructions_of(saved(server, story)) == [WAVE, RUN, SLEEP] and saved(server, story).branches() == ["main"]
    assert all(entry.shot for entry in saved(server, story).entries)
