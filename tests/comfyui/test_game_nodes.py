"""The nodes of one turn in a real ComfyUI, in a tiny world; test_workflows_run.py looks at pictures of the Toybox."""

import time

import numpy as np
import pytest
from comfy_server import nodes_run, running
from graphs import RUN, SLEEP, START, WAVE, draw, load, node, play, predict, save_video, saved_file, saved_frames
from PIL import Image

from animegamer_core.media.video import read_clip
from animegamer_core.weights import open_world

pytestmark = pytest.mark.usefixtures("tiny")


def game(*instructions, world="tiny", **how):
    """A chain of turns: predict1, predict2 ..., the last one shown, and the first one drawn and saved."""
    prompt, history = {"load": load(world=world), "history": node("GameHistory", **START)}, ["history", 0]
    for number, text in enumerate(instructions, start=1):
        prompt[f"predict{number}"] = predict(history, text, seed=number)
        history = [f"predict{number}", 1]
    prompt["draw"], prompt["save"] = draw(["predict1", 0], **how), save_video("draw")
    prompt["show"] = node("StateDisplay", state=[f"predict{len(instructions)}", 0])
    return prompt


def shown(entry, name="show"):
    return entry["outputs"][name]["animegamer_state"][0]


def test_a_game_is_played_drawn_and_shown(server, tiny):
    strange = "Character: Miko; Motion: fax the quokka; Background: day beach."
    entry = server.run(game(WAVE, RUN, strange))
    state = shown(entry)
    assert state["turn"] == 3 and state["instruction"] == strange
    assert [item["turn"] for item in state["course"]] == [1, 2, 3] and state["course"][1]["instruction"] == RUN
    stats, before = state["stats"], state["course"][1]
    assert state["changes"] == {name: stats[name] - before[name] for name in stats}
    assert state["motion"]["value"] == tiny.motion_table.value(state["motion"]["level"])
    assert state["motion"]["scope"] in ("still", "gentle", "brisk", "fast", "wild")
    assert state["unknown_words"] == ["fax", "quokka"]
    (note,) = entry["outputs"]["predict3"]["animegamer_notes"]
    assert "fax" in note and "quokka" in note
    clip = read_clip(saved_file(server, entry))
    assert clip.frames.shape == (17, 32, 48, 3) and clip.fps == 8


def test_only_what_changed_runs_again(server):
    first = server.run(game(WAVE, RUN, SLEEP))
    assert nodes_run(server.run(game(WAVE, RUN, SLEEP))) == set(), "nothing changed"
    changed = server.run(game(WAVE, RUN, WAVE))
    assert nodes_run(changed) == {"predict3", "show"}
    assert shown(changed)["course"][:2] == shown(first)["course"][:2]
    clips = [read_clip(saved_file(server, first)).frames.tobytes()]  # its file also holds the graph
    for how in ({"motion": "wild"}, {"motion": "wild", "seed": 0}):
        take = server.run(game(WAVE, RUN, WAVE, **how))
        assert nodes_run(take) == {"draw", "save"}
        clips.append(read_clip(saved_file(server, take)).frames.tobytes())
    assert len(set(clips)) == 3
    again = server.run(game(WAVE, SLEEP, WAVE, motion="wild", seed=0))
    assert nodes_run(again) == {"predict2", "predict3", "show"}


def test_a_shot_begins_from_a_latent(server):
    """Of another shot, with a node of ComfyUI's own between, or of a picture; with denoise 0 it is decoded as it is."""
    Image.new("RGB", (300, 400), "teal").save(server.input_dir / "mine.png")
    prompt = game(WAVE, RUN)
    prompt["draw"]["inputs"]["seed"] = 5

    def add(name, latent, denoise):
        prompt[name] = draw(["predict2", 0], latent=latent, denoise=denoise, seed=9)

    prompt["same"] = node("LatentMultiply", samples=["draw", 4], multiplier=1.0)
    prompt["mine"] = node("LoadImage", image="mine.png")
    prompt["encode"] = node("EncodeShotLatent", model=["load", 0], frames=["mine", 0])
    add("kept", ["same", 0], 0.0)
    add("begun", ["draw", 4], 0.5)
    add("from picture", ["encode", 0], 0.5)
    add("new", ["draw", 4], 1.0)
    prompt["plain"] = draw(["predict2", 0], seed=9)
    names = ("draw", "kept", "begun", "from picture", "new", "plain")
    # What a SaveImage keeps is exact, while core's Save Video writes the same frames differently now and then.
    prompt |= {f"save {name}": node("SaveImage", images=[name, 0], filename_prefix="frame") for name in names}
    entry = server.run(prompt)
    shots = {name: saved_frames(server, entry, f"save {name}") for name in names}
    assert len(shots["draw"]) == 17
    np.testing.assert_array_equal(shots["draw"], shots["kept"], "the latent is the whole shot")
    np.testing.assert_array_equal(shots["new"], shots["plain"], "denoise 1 keeps nothing of the latent")
    assert len({shot.tobytes() for shot in shots.values()}) == 4


def test_a_shot_is_drawn_at_given_timesteps_which_make_no_draft(server):
    prompt = game(WAVE)
    prompt["draw"]["inputs"] |= {"timesteps": "999, 399", "solver": "ddim", "guidance": "distilled"}
    entry = server.run(prompt)
    assert "animegamer_draft" not in entry["outputs"]["draw"] and entry["outputs"]["draw"]["images"]


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


def test_a_turn_is_numbers_and_text_for_other_nodes(server, tiny):
    values = ("turn", "instruction", "motion", "motion_level", "social", "entertainment", "stamina")
    graph = {
        "load": load(),
        "start": node("GameHistory", **START | {"stamina": 30, "social": 40}),
        "first": predict(["start", 0], WAVE),
        "second": predict(["first", 1], RUN),
        "show": node("StateDisplay", state=["second", 0]),
        "values": node("GameTurnValues", state=["show", 0]),
        **{name: node("PreviewAny", source=["values", index]) for index, name in enumerate(values)},
    }
    outputs = server.run(graph)["outputs"]
    (state,) = outputs["show"]["animegamer_state"]
    motion, stats = state["motion"], state["stats"]
    wanted = [2, RUN, motion["scope"], motion["level"], *(stats[name] for name in values[4:])]
    assert [outputs[name]["text"][0] for name in values] == [str(value) for value in wanted]
    assert len(set(stats.values())) == 3, "no two stats are alike, so none stands for another"


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
        ("load", {"world": "qiqi"}, ("qiqi", "engine", "huggingface.co/TencentARC/AnimeGamer", "models/animegamer")),
        ("load", {"precision": "fp8"}, ("precision is 'fp8'; choose auto, fp32",)),
        ("draw", {"motion": "custom", "motion_value": float("nan")}, ("motion_value is nan; give 0 to 999 pixels",)),
        ("draw", {"timesteps": "399,665"}, ("timesteps 399, 665: expected falling ones of 0 to 999",)),
        ("load", {"lora_file": "gone.safetensors"}, ("gone.safetensors", "models/animegamer/loras")),
        ("predict1", {"instruction": " \n "}, ("instruction is empty",)),
    ],
)
def test_errors_are_one_sentence(server, name, inputs, words):
    prompt = game(WAVE)
    prompt[name]["inputs"] |= inputs
    text = server.refusal(prompt)
    if text is not None:
        assert all(word in text for word in words), text


def test_freed_models_are_loaded_again_when_used(server):
    def loads_after_a_turn(seed):
        server.run(game(WAVE, seed=seed))
        return server.log_text().count("Requested to load GameEngine")

    first, again, third = map(loads_after_a_turn, range(3))
    assert first == again == third
    assert server.post("/free", {"unload_models": True, "free_memory": True})[0] == 200
    for seed in range(3, 13):  # the server frees them when it next has time
        time.sleep(1)
        if loads_after_a_turn(seed) > third:
            return
    raise AssertionError("no turn loaded them again")


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
        how = {"world": "toybox", "after": number - 1, "seed": number, "steps": 2}
        exact_server.run(play("long", f"{WAVE[:-1]} {number}.", **how))
        held.append(exact_server.resident_bytes())
    assert max(held[40:]) - max(held[9:15]) < 20e6, [round(value / 1e6) for value in held]
