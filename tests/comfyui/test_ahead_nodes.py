"""Turns drawn ahead in a real ComfyUI: over HTTP and as a node, giving way to other prompts, in no story."""

import time
import urllib.parse

import pytest
from comfy_server import message
from graphs import PLAY, RUN, SLEEP, WAVE, load, node

pytestmark = pytest.mark.usefixtures("tiny")
LONG = {"steps": 1000}  # a shot of many seconds


@pytest.fixture
def story(request):
    return f"{request.node.name[:40]} {time.monotonic_ns()}"


def ahead(server, story, **more):
    status, answer = server.post("/animegamer/ahead?wait=1", {"world": "tiny", "story": story, **more})
    assert status == 200, answer
    return answer


def play(server, story, instruction=WAVE, **more):
    asked = {"world": "tiny", "story": story, "instruction": instruction, **more}
    status, answer = server.post("/animegamer/turn?wait=1", asked)
    assert status == 200, answer
    return answer


def drawn_now(server, prompt_id):
    """Whether a turn was computed, and not read."""
    return "animegamer_pace" in server.get(f"/history/{prompt_id}")[prompt_id]["outputs"]["animegamer-turn"]


def ahead_node(story, instructions, **more):
    inputs = {**PLAY, "turns_ahead": 1, "pieces": 0, "suggestion_seed": 0, **more}
    inputs.pop("export")
    return node("DrawTurnsAhead", model=["load", 0], instructions="\n".join(instructions), story=story, **inputs)


def read(server, story):
    return server.get(f"/animegamer/story?{urllib.parse.urlencode({'name': story})}")


def test_a_turn_drawn_ahead_plays_at_once_and_is_in_no_story_before(server, story):
    first = play(server, story)
    assert drawn_now(server, first["prompt_id"])
    before = read(server, story)
    steps = [ahead(server, story, instructions=[RUN, SLEEP], pieces=1) for _ in range(4)]
    assert [(turn["predicted"], bool(turn["clip"])) for answer in steps for turn in answer["turns"]] == [
        *((True, False), (False, False)),
        *((True, False), (True, False)),
        *((True, True), (True, False)),
        *((True, True), (True, True)),
    ]
    assert [answer["more"] for answer in steps] == [True, True, True, False]
    assert read(server, story) == before
    assert ".ahead" not in str(server.get("/animegamer/stories"))
    clip = steps[-1]["turns"][1]["clip"]
    early = server.get_bytes(f"/view?{urllib.parse.urlencode(clip)}")
    played = play(server, story, SLEEP)
    assert not drawn_now(server, played["prompt_id"])
    assert server.get_bytes(played["clip"]) == early, "the clip that was shown early is the turn's"
    (line,) = read(server, story)["lines"]
    assert line["turns"][1]["shot"] == steps[-1]["turns"][1]["shot"]
    kept = server.get("/animegamer/ahead")
    assert 0 < kept["bytes"] < kept["most_bytes"] and kept["most_seconds"] == 24 * 3600


def test_without_instructions_the_world_proposes_them(server, story):
    play(server, story)
    asked = urllib.parse.urlencode({"world": "tiny", "story": story})
    offered = [one["instruction"] for one in server.get(f"/animegamer/suggestions?{asked}")["suggestions"]]
    answer = ahead(server, story, turns_ahead=2)
    assert [turn["instruction"] for turn in answer["turns"]] == offered and not answer["more"]
    for _ in range(2):  # the likeliest, and the likeliest after it
        first = server.get(f"/animegamer/suggestions?{asked}")["suggestions"][0]["instruction"]
        assert not drawn_now(server, play(server, story, first)["prompt_id"])


def test_a_first_turn_is_drawn_ahead_of_its_story(server, story):
    ahead(server, story, instructions=[WAVE])
    assert story not in str(server.get("/animegamer/stories"))
    assert not drawn_now(server, play(server, story)["prompt_id"])


def test_it_gives_way_to_any_other_prompt(server, story):
    play(server, story)
    begun = time.monotonic()
    ahead(server, story, instructions=[RUN], pieces=1)  # its state
    running = server.queue({"load": load(), "ahead": ahead_node(story, [RUN], after=-1, **LONG)})
    server.wait_until(lambda: running in str(server.get("/queue")["queue_running"]))
    time.sleep(time.monotonic() - begun)  # it begins as that call did
    assert not server.get(f"/history/{running}"), "it draws for long"
    begun = time.monotonic()
    answer = play(server, story, SLEEP)
    assert answer["turn"] == 2 and time.monotonic() - begun < 15
    entry = server.wait(running)
    (found,) = entry["outputs"]["ahead"]["animegamer_ahead"]
    assert entry["status"]["status_str"] == "success" and found["more"] and found["turns"][0]["predicted"]
    assert not found["turns"][0]["clip"], "nothing of the unfinished shot is kept"


@pytest.mark.parametrize(
    ("change", "steps"),
    [({}, 990), ({"seed": 1}, 991), ({"instructions": SLEEP}, 992), ({"model": "other"}, 993)],
    ids=str,
)
def test_a_half_drawn_shot_is_finished_for_the_turn_that_shows_it(server, story, change, steps):
    """Each case has steps of its own, so that none finds the shot of another."""
    look, finished = {"after": 0, "steps": steps}, not change
    begun = time.monotonic()
    ahead(server, story, instructions=[RUN, SLEEP], pieces=2)  # their states
    running = server.queue({"load": load(), "ahead": ahead_node(story, [RUN, SLEEP], **look)})
    server.wait_until(lambda: running in str(server.get("/queue")["queue_running"]))
    time.sleep(time.monotonic() - begun)  # it begins as that call did
    assert not server.get(f"/history/{running}"), "the first shot is half drawn"
    inputs = {**PLAY, **look, "story": story, "instructions": RUN, **change}
    inputs["model"] = [change.get("model", "load"), 0]
    loaded = {"load": load(), "other": load(lora_strength=0.5)}
    entry = server.run({name: loaded[name] for name in inputs["model"][:1]} | {"play": node("PlayGameStory", **inputs)})
    (found,) = server.wait(running)["outputs"]["ahead"]["animegamer_ahead"]
    assert bool(found["turns"][0]["clip"]) == finished and not found["turns"][1]["clip"]
    (played,) = entry["outputs"]["play"]["animegamer_story"]
    assert played["turns"] == 1


def test_an_interrupt_ends_it_within_a_step(server, story):
    running = server.queue({"load": load(), "ahead": ahead_node(story, [RUN], after=-1, **LONG)})
    server.wait_until(lambda: running in str(server.get("/queue")["queue_running"]))
    time.sleep(0.5)
    begun = time.monotonic()
    server.post("/interrupt", {"prompt_id": running})
    assert message(server.wait(running), "execution_interrupted") and time.monotonic() - begun < 10
    records = (server.output_dir / "animegamer").glob(".ahead/*/shots/*.json")
    assert not [path for path in records if '"steps": 1000' in path.read_text()], "nothing unfinished is kept"
    assert story not in str(server.get("/animegamer/stories"))


def test_the_node_says_how_many_are_drawn_and_is_asked_each_time(server, story):
    prompt = {"load": load(), "ahead": ahead_node(story, [RUN, SLEEP], after=0)}
    for _ in range(2):
        (found,) = server.run(prompt)["outputs"]["ahead"]["animegamer_ahead"]
        assert [bool(turn["clip"]) for turn in found["turns"]] == [True, True] and found["after"] == 0
    game = {"load": load(), "play": node("PlayGameStory", model=["load", 0], instructions=RUN, story=story, **PLAY)}
    assert "animegamer_pace" not in server.run(game)["outputs"]["play"]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"instructions": ["# no"]}, "empty or starts with #"),
        ({"instructions": ["  "]}, "empty or starts with #"),
        ({"instructions": ["x"] * 11}, "instructions"),
        ({"turns_ahead": 4}, "turns_ahead"),
        ({"pieces": -1}, "pieces"),
        ({"story": ".ahead"}, "turns that are drawn ahead"),
        ({"world": "nowhere"}, "world 'nowhere' is not known"),
        ({"suggestion_seed": 2**64}, "suggestion_seed is"),
        ({"odd": 1}, "odd"),
    ],
)
def test_a_wrong_request_gets_one_sentence_and_is_not_queued(server, story, change, named):
    status, answer = server.post("/animegamer/ahead", {"world": "tiny", "story": story, **change})
    assert status == 400 and named in answer["error"]
