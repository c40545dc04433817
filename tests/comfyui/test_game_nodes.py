"""The nodes of one turn in a real ComfyUI; with the Toybox for tests of pictures, otherwise in a tiny world."""

import io
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from comfy_server import message, nodes_run, running
from PIL import Image

from animegamer_core.checkpoint import open_world
from animegamer_core.media.video import read_clip

WAVE = "Character: Miko; Motion: gently wave hello; Background: day beach."
RUN = "Character: Miko; Motion: swiftly run; Background: day street."
SLEEP = "Character: Miko; Motion: barely sleep under a blanket; Background: night bedroom."
LOAD = {"world": "toybox", "precision": "auto", "placement": "auto", "profile": "world", "lora_strength": 1.0}
LOAD |= {"lora_file": "none", "lora_file_strength": 1.0}
START = {"window": 4, "stamina": 50, "social": 50, "entertainment": 50, "rewind_to": -1}
DRAW = {"motion": "predicted", "motion_value": 5.0, "steps": 2, "guidance": "world", "seed": -1}


def node(kind, **inputs):
    return {"class_type": kind, "inputs": inputs}


pytestmark = pytest.mark.usefixtures("tiny")


def game(*instructions, world="tiny", **draw):
    """A chain of turns: predict1, predict2 ..., the last one shown, and the first one drawn and saved."""
    prompt = {"load": node("LoadAnimeGamer", **LOAD | {"world": world}), "history": node("GameHistory", **START)}
    history = ["history", 0]
    for number, text in enumerate(instructions, start=1):
        name = f"predict{number}"
        prompt[name] = node("PredictNextState", model=["load", 0], history=history, instruction=text, seed=number)
        history = [name, 1]
    prompt["draw"] = node("DecodeShot", model=["load", 0], state=["predict1", 0], **DRAW | draw)
    prompt["save"] = node("SaveVideo", video=["draw", 2], filename_prefix="shot", format="auto", codec="auto")
    prompt["show"] = node("StateDisplay", state=[f"predict{len(instructions)}", 0])
    return prompt


def shown(entry, name="show"):
    return entry["outputs"][name]["animegamer_state"][0]


def error_of(entry):
    failed = message(entry, "execution_error")
    assert failed is not None, entry["status"]
    return failed["exception_message"].strip()


def test_a_game_is_played_drawn_and_shown(server):
    entry = server.run(game(WAVE, RUN, SLEEP, steps=8, world="toybox"))
    state = shown(entry)
    assert state["turn"] == 3 and state["instruction"] == SLEEP and state["unknown_words"] == []
    assert [item["turn"] for item in state["course"]] == [1, 2, 3]
    assert state["course"][1]["instruction"] == RUN
    stats, before = state["gauges"], state["course"][1]
    assert state["changes"] == {name: stats[name] - before[name] for name in stats}
    assert state["changes"]["stamina"] == 5, "sleep rests"
    assert state["motion"]["scope"] in ("still", "gentle", "brisk", "fast", "wild")
    assert state["motion"]["value"] > 0 and len(state["said"]) == 4
    saved = entry["outputs"]["save"]["images"][0]
    clip = read_clip(server.output_dir / saved["subfolder"] / saved["filename"])
    assert clip.frames.shape == (17, 96, 144, 3) and clip.fps == 8
    assert 60 < clip.frames.mean() < 220 and clip.frames.std() > 20, "a picture, neither black nor grey"
    assert np.abs(np.diff(clip.frames.astype(int), axis=0)).mean() > 0.3, "it moves"


def test_only_what_changed_runs_again(server):
    first = server.run(game(WAVE, RUN, SLEEP))
    assert nodes_run(server.run(game(WAVE, RUN, SLEEP))) == set(), "nothing changed"
    changed = server.run(game(WAVE, RUN, WAVE))
    assert nodes_run(changed) == {"predict3", "show"}
    assert shown(changed)["course"][:2] == shown(first)["course"][:2]
    assert nodes_run(server.run(game(WAVE, RUN, WAVE, motion="wild"))) == {"draw", "save"}
    assert nodes_run(server.run(game(WAVE, SLEEP, WAVE, motion="wild"))) == {"predict2", "predict3", "show"}


def test_a_take_differs_by_motion_and_seed(server):
    clips = []
    for draw in ({"seed": 7}, {"motion": "wild"}, {"motion": "still"}):
        saved = server.run(game(RUN, steps=4, world="toybox", **draw))["outputs"]["save"]["images"][0]
        clips.append(read_clip(server.output_dir / saved["subfolder"] / saved["filename"]).frames.astype(int))
    for index, clip in enumerate(clips):
        assert all((clip != other).any() for other in clips[:index])
    moved = [np.abs(np.diff(clip, axis=0)).mean() for clip in clips]
    assert moved[1] > 1.5 * moved[2], "wild moves more than still"


def test_unknown_words_are_noted_on_the_node(server):
    entry = server.run(game("Character: Miko; Motion: fax the quokka; Background: day beach."))
    assert shown(entry)["unknown_words"] == ["fax", "quokka"]
    (note,) = entry["outputs"]["predict1"]["animegamer_notes"]
    assert "fax" in note and "quokka" in note and "tiny" in note


def test_two_futures_of_one_history(server):
    prompt = game(WAVE, RUN)
    prompt["back"] = node("GameHistory", **START | {"rewind_to": 1}, history=["predict2", 1])
    future = {"model": ["load", 0], "history": ["back", 0], "instruction": SLEEP, "seed": 0}
    prompt["other"] = node("PredictNextState", **future)
    prompt["show other"] = node("StateDisplay", state=["other", 0])
    entry = server.run(prompt)
    ours, theirs = shown(entry), shown(entry, "show other")
    assert ours["course"][0] == theirs["course"][0]
    assert [item["instruction"] for item in theirs["course"]] == [WAVE, SLEEP]
    assert [item["instruction"] for item in ours["course"]] == [WAVE, RUN]


def test_a_game_starts_with_a_picture(server):
    frames = read_clip(_clip(server)).frames
    Image.fromarray(frames[0]).resize((300, 400)).save(server.input_dir / "mine.png")
    prompt = {
        "load": node("LoadAnimeGamer", **LOAD),
        "picture": node("LoadImage", image="mine.png"),
        "encode": node("EncodeShot", model=["load", 0], frames=["picture", 0], motion_text="wave hello"),
        "history": node("GameHistory", **START | {"stamina": 97}, opening=["encode", 0]),
        "predict": node("PredictNextState", model=["load", 0], history=["history", 0], instruction=SLEEP, seed=0),
        "show": node("StateDisplay", state=["predict", 0]),
        "show opening": node("StateDisplay", state=["encode", 0]),
        "draw": node("DecodeShot", model=["load", 0], state=["encode", 0], **DRAW),
        "save": node("SaveImage", images=["draw", 0], filename_prefix="opening"),
    }
    entry = server.run(prompt)
    assert [item["turn"] for item in shown(entry)["course"]] == [0, 1]
    assert shown(entry)["gauges"]["stamina"] == 100 and shown(entry)["changes"]["stamina"] == 3, "clamped"
    opening = shown(entry, "show opening")
    assert opening["turn"] == 0 and set(opening["changes"].values()) == {0}
    assert len(entry["outputs"]["save"]["images"]) == 17


def test_instructions_are_composed_and_listed(server):
    fields = {"character": "Miko, Taro", "adverb": "softly", "motion": "talk", "time": "night", "place": "street"}
    prompt = {
        "compose": node("ComposeGameInstruction", **fields, story="# a comment\nfirst line\n\nsecond line\n"),
        "one": node("PreviewAny", source=["compose", 0]),
        "all": node("PreviewAny", source=["compose", 1]),
    }
    outputs = server.run(prompt)["outputs"]
    assert outputs["one"]["text"] == ["Character: Miko, Taro; Motion: softly talk; Background: night street."]
    assert outputs["all"]["text"] == ["first line", "second line"]


def test_the_toybox_knows_the_default_instructions(server):
    def default(kind, name):
        return server.get(f"/object_info/{kind}")[kind]["input"]["required"][name][1]["default"]

    names = ("character", "adverb", "motion", "time", "place")
    fields = {name: default("ComposeGameInstruction", name) for name in names}
    composed = "Character: {character}; Motion: {adverb} {motion}; Background: {time} {place}.".format(**fields)
    texts = (composed, default("PredictNextState", "instruction"), default("PlayGameStory", "instructions"))
    tokenizer = open_world("toybox").tokenizer()
    assert [tokenizer.unknown_words(text) for text in texts] == [(), (), ()]


@pytest.mark.parametrize(
    "name, inputs, words",
    [
        ("load", {"world": "qiqi"}, ("qiqi", "MLLM-Qiqi", "huggingface.co/TencentARC/AnimeGamer", "models/animegamer")),
        ("load", {"world": "../../etc"}, ("../../etc", "toybox")),
        ("load", {"precision": "fp8"}, ("precision is 'fp8'; choose auto, fp32",)),
        ("load", {"placement": "moon"}, ("placement is 'moon'; choose auto, cpu",)),
        ("load", {"preset": "low_vram"}, ("preset is 'low_vram'; choose world, exact, balanced, live",)),
        ("draw", {"motion": "custom", "motion_value": float("nan")}, ("motion_value is nan; give 0 to 999 pixels",)),
        ("load", {"lora_file": "gone.safetensors"}, ("gone.safetensors", "models/animegamer/loras")),
        ("history", {"rewind_to": 9}, ("cannot rewind to turn 9",)),
        ("predict1", {"instruction": " \n "}, ("instruction is empty",)),
    ],
)
def test_errors_are_one_sentence(server, name, inputs, words):
    prompt = game(WAVE)
    prompt[name]["inputs"] |= inputs
    status, answer = server.post("/prompt", {"prompt": prompt})
    if status == 400:  # newer versions check the lists themselves
        assert "Value not in list" in json.dumps(answer)
        return
    entry = server.wait(answer["prompt_id"])
    text = error_of(entry)
    assert all(word in text for word in words), text
    assert "\n" not in text and "Traceback" not in text


def test_an_interrupt_stops_the_sampling_within_a_second(server):
    server.run(game(WAVE, world="toybox"))  # so that the models are there and the turn is known
    prompt_id = server.queue(game(WAVE, steps=1000, seed=11, world="toybox"))
    end = time.monotonic() + 60
    while not server.get("/queue")["queue_running"] and time.monotonic() < end:
        time.sleep(0.05)
    time.sleep(1)
    begun = time.monotonic()
    server.post("/interrupt", {})
    entry = server.wait(prompt_id, timeout=30)
    assert message(entry, "execution_interrupted")["node_type"] == "DecodeShot"
    assert time.monotonic() - begun < 1.5
    server.run(game(WAVE)), "the next prompt runs"


def test_freed_models_are_loaded_again_when_used(server):
    loads = []
    for free in (False, False, True, False):
        server.run(game(WAVE, seed=len(loads)))
        loads.append(server.log_text().count("Requested to load GameEngine"))
        if free:
            assert server.post("/free", {"unload_models": True, "free_memory": True})[0] == 200
            time.sleep(1.5)
    assert loads[0] == loads[1] == loads[2] < loads[3]


def test_pictures_are_shown_while_sampling(server):
    events = server.listen(game(WAVE, steps=0, seed=21, world="toybox"))
    pictures = [body for event, body in events if event == "picture"]
    assert 1 <= len(pictures) <= 4, "a few, since each costs time"
    with Image.open(io.BytesIO(pictures[-1][8:])) as picture:  # behind two numbers: the kind and the format
        assert picture.format == "JPEG" and picture.size == (360, 240)
        assert np.asarray(picture).std() > 20
    values = [data["value"] for event, data in events if event == "progress"]
    assert values == sorted(values) and values[-1] == 20, "the world's own number of steps"


def test_a_preset_sets_the_steps_if_none_are_given(server):
    prompt = game(WAVE, steps=0, seed=31, world="toybox")
    prompt["load"]["inputs"]["preset"] = "live"
    reported = [data for event, data in server.listen(prompt) if event == "progress" and data["node"] == "draw"]
    assert reported[-1]["value"] == reported[-1]["max"] == 12


def test_the_log_is_quiet(server):
    server.run(game(WAVE))
    log = server.log_text()
    for words in ("IMPORT FAILED", "UserWarning", "FutureWarning", "memory leak", "could not be loaded"):
        assert words not in log
    ours = [line for line in log.splitlines() if "animegamer" in line.lower()]
    assert not [line for line in ours if re.search("warning", line, re.IGNORECASE)]


@pytest.fixture
def exact_server(tmp_path):
    """A separate server that returns freed memory at once (glibc), so that resident memory is memory in use."""
    with running(tmp_path / "exact", MALLOC_MMAP_THRESHOLD_="131072", MALLOC_ARENA_MAX="2") as comfy:
        yield comfy


@pytest.mark.soak
def test_fifty_queued_turns_leave_memory_flat(exact_server):
    """50 turns of one story, each its own prompt, as the Play tab sends them."""
    held = []
    for number in range(1, 51):
        play = {"story": "long", "line": "", "after": number - 1, "window": 4, "seed": number, "export": False}
        play |= {name: value for name, value in DRAW.items() if name != "seed"}
        turn = node("PlayGameStory", model=["load", 0], instructions=f"{WAVE[:-1]} {number}.", **play)
        exact_server.run({"load": node("LoadAnimeGamer", **LOAD), "play": turn})
        held.append(exact_server.resident_bytes())
    assert max(held[40:]) - max(held[9:15]) < 20e6, [round(value / 1e6) for value in held]


@pytest.mark.soak
def test_a_graph_that_grows_to_fifty_turns_is_freed_again(exact_server):
    """ComfyUI's own cache keys of a chain grow with the square of its length; freeing memory removes all of them."""
    for number in range(1, 51):
        exact_server.run(game(*(f"{WAVE[:-1]} {index}." for index in range(number)), seed=number, world="toybox"))
        if number == 5:
            early = exact_server.resident_bytes()
    exact_server.post("/free", {"free_memory": True, "unload_models": True})
    end = time.monotonic() + 20
    while exact_server.resident_bytes() > early and time.monotonic() < end:
        time.sleep(0.5)
    assert exact_server.resident_bytes() < early


def _clip(server):
    saved = server.run(game(WAVE))["outputs"]["save"]["images"][0]
    return Path(server.output_dir) / saved["subfolder"] / saved["filename"]
