"""Every example workflow in a real ComfyUI with the Toybox: its clips, and its stats by the rules of that world."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.game.state import read_instructions
from animegamer_core.media.video import read_clip
from animegamer_core.toybox.world import LIFE, MOTIONS
from animegamer_core.weights import open_world

WORKFLOWS = Path(__file__).parents[2] / "workflows"
STEPS = {"4-motion-sweep": 10, "6-own-picture": 10}  # of shots whose quality is tested
SKETCH = 3  # steps of the other shots, and of training
STAGES = ("warmup", "joint", "predict", "adapt")


@pytest.fixture(scope="module")
def play(server):
    """A function that runs an example by its name, with fewer steps: (prompt, history entry)."""
    for given in (WORKFLOWS / "input").iterdir():
        shutil.copy(given, server.input_dir)

    def run(name, run=server.run):
        prompt = json.loads((WORKFLOWS / "api" / f"{name}.json").read_text(encoding="utf-8"))
        for inputs in (node["inputs"] for node in prompt.values()):
            fewer = {} if name == "7-train" else {"steps": STEPS.get(name, SKETCH), "games": 1}
            inputs |= {key: value for key, value in fewer.items() if isinstance(inputs.get(key), int)}
        return prompt, run(prompt, 900)

    return run


def outputs(played, kind):
    """What the nodes of a kind showed, in the order of their ids."""
    prompt, entry = played
    return [entry["outputs"][key] for key in sorted(prompt, key=int) if prompt[key]["class_type"] == kind]


def clip(server, shown):
    """The frames (F, H, W, 3) of the one file that a node showed; they are a moving picture."""
    (item,) = shown["images"]
    found = read_clip(server.output_dir / item["subfolder"] / item["filename"])
    frames = np.asarray(found.frames)
    assert found.fps == 8 and frames.dtype == np.uint8
    assert 30 < frames.mean() < 225 and frames.std() > 20, "neither black nor grey"
    assert all(np.abs(np.diff(frames.astype(int), axis=0)).mean(axis=(1, 2, 3)) > 0.01), "no frame is the one before"
    return frames


def stats_after(*instructions):
    """The stats by the Toybox's rules: what each motion does to a character, and what every turn does."""
    stats = LIFE.rules.start
    for text in instructions:
        motion = next(row for row in MOTIONS.values() if row.phrase in text)
        stats = LIFE.rules.after(stats, {name: getattr(motion, name) for name in stats})
    return stats


def texts(prompt):
    """{title: instruction} of the turns."""
    return {
        node["_meta"]["title"]: node["inputs"]["instruction"]
        for node in prompt.values()
        if node["class_type"] == "PredictNextState"
    }


def state(shown):
    return shown["animegamer_state"][0]


def distinct(clips):
    return all(np.abs(a.astype(int) - b).mean() > 3 for i, a in enumerate(clips) for b in clips[:i])


def test_1_one_turn(server, play):
    played = play("1-one-turn")
    (shown,) = outputs(played, "StateDisplay")
    instruction = "Character: Miko; Motion: swiftly ride a bicycle with a red scarf; Background: day beach."
    assert state(shown)["instruction"] == instruction and state(shown)["stats"] == stats_after(instruction)
    assert state(shown)["motion"]["scope"] == "fast", "as the adverb says"
    (video,) = outputs(played, "SaveVideo")
    assert clip(server, video).shape == (17, 192, 288, 3)


def test_2_five_turns(server, play):
    played = play("2-five-turns")
    instructions = list(texts(played[0]).values())
    states = [state(shown) for shown in outputs(played, "StateDisplay")]
    assert [item["instruction"] for item in states] == instructions and len(instructions) == 5
    assert [item["stats"] for item in states] == [stats_after(*instructions[: n + 1]) for n in range(5)]
    clips = [clip(server, shown) for shown in outputs(played, "SaveGameStory")]
    assert [frames.shape for frames in clips] == [(17, 192, 288, 3)] * 5 and distinct(clips)
    (film,) = outputs(played, "SaveVideo")
    assert clip(server, film).shape == (5 * 17, 192, 288, 3)
    (story,) = [item for item in server.get("/animegamer/stories")["stories"] if item["name"] == "five-turns"]
    assert story["turns"] == 5 and story["branch"] == "main", "all five are one line of one story"
    ran = [int(key) for key in played[1]["outputs"] if played[0][key]["class_type"] in ("DecodeShot", "SaveGameStory")]
    in_order = not server.get("/system_stats")["system"]["comfyui_version"].startswith("0.3.")  # its history keeps none
    assert not in_order or ran == [7, 6, 11, 10, 15, 14, 19, 18, 23, 22], "each turn is drawn and saved before the next"


def test_3_two_futures_of_one_history(server, play):
    played = play("3-branching")
    instructions = texts(played[0])
    first, second = instructions["Predict turn 1"], instructions["Predict turn 2"]
    a, b = (state(shown) for shown in outputs(played, "StateDisplay"))
    assert [item["instruction"] for item in a["course"]] == [first, second, instructions["Future A"]]
    assert [item["instruction"] for item in b["course"]] == [first, instructions["Future B"]]
    assert a["stats"] == stats_after(first, second, instructions["Future A"])
    assert b["stats"] == stats_after(first, instructions["Future B"])
    clips = [clip(server, shown) for shown in outputs(played, "SaveVideo")]
    assert [frames.shape for frames in clips] == [(17, 192, 288, 3)] * 3 and distinct(clips)


def test_4_motion_scopes_side_by_side(server, play):
    (video,) = outputs(play("4-motion-sweep"), "SaveVideo")
    strip = clip(server, video)
    assert strip.shape == (17, 192, 5 * 288 + 4 * 4, 3)
    panels = [strip[:, :, left : left + 288] for left in range(0, 5 * 292, 292)]
    moved = [np.abs(np.diff(panel.astype(int), axis=0)).mean() for panel in panels]
    assert moved[0] < moved[1] < moved[2] < min(moved[3:]), moved
    assert distinct(panels[::2])


def test_5_a_whole_story(server, play):
    played = play("5-story")
    ((key, node),) = [item for item in played[0].items() if item[1]["class_type"] == "PlayGameStory"]
    instructions, shown = read_instructions(node["inputs"]["instructions"]), played[1]["outputs"][key]
    assert len(instructions) == 6 and state(shown)["stats"] == stats_after(*instructions)
    assert [item["instruction"] for item in state(shown)["course"]] == list(instructions)
    (video,) = outputs(played, "SaveVideo")
    frames = clip(server, video)
    assert frames.shape == (6 * 17, 192, 288, 3) and distinct(np.split(frames, 6))


def test_6_a_picture_opens_the_game(server, play):
    played = play("6-own-picture")
    (shown,) = outputs(played, "StateDisplay")
    assert [item["turn"] for item in state(shown)["course"]] == [0, 1, 2]
    assert state(shown)["stats"] == stats_after(*texts(played[0]).values()), "the picture itself changes none"
    clips = [clip(server, shown) for shown in outputs(played, "SaveVideo")]
    assert [frames.shape for frames in clips] == [(17, 192, 288, 3)] * 4 and distinct(clips)
    with Image.open(WORKFLOWS / "input" / "my-picture.png") as picture:
        given = np.asarray(picture.convert("RGB").resize((288, 192)), dtype=int)
    apart = [np.abs(frames[0] - given).mean() for frames in clips]
    assert apart[0] < 35 and apart[0] < 0.6 * min(apart[1:3]), f"turn 0 looks like the picture: {apart}"
    assert apart[0] < apart[3] < apart[2], f"turn 2 is nearer to the picture when it begins from it: {apart}"
    folder = server.output_dir / "animegamer" / "from-a-film"
    whole = read_clip(folder / "story.mp4").frames
    (line,) = server.get("/animegamer/story?name=from-a-film")["branches"]
    opening = read_clip(folder / "openings" / line["opening_clip"]["filename"]).frames
    assert line["opening"] == played[0]["20"]["inputs"]["motion_text"] and len(line["turns"]) == 1
    assert len(whole) == 34 and np.abs(whole[:17].astype(int) - opening).mean() < 3, "the export begins with turn 0"
    wanted = read_clip(WORKFLOWS / "input" / "my-film.mp4").frames[31 * 24].mean()
    assert abs(opening[0].mean() - wanted) < 4, "second 31 of the film"


def test_7_train_and_play(server, play):
    played = play("7-train")
    (shown,) = outputs(played, "PreviewAny")
    assert re.match(r"adapt: 24 steps in \d+ s, loss", shown["text"][0])
    assert Path(re.search(r"LoRA file (.+)", shown["text"][0])[1]).is_file()
    (video,) = outputs(played, "SaveVideo")
    pair = clip(server, video)
    assert pair.shape == (17, 192, 2 * 288 + 4, 3)
    without, with_lora = pair[:, :, :288].astype(int), pair[:, :, 292:]
    assert with_lora.mean() < 0.7 * without.mean(), "its day is a night"


def test_9_a_film_becomes_a_world(server, play):
    stages, bar, left, prepared = [], [], [], []

    def watched(prompt, timeout):
        for event, data in server.listen(prompt):
            if event == "animegamer.training" and data["state"] == "trains":
                left.append(data["left"])
                prepared.append(server.get("/animegamer/training").get("prepares"))
                assert prompt[data["node"]]["class_type"] == "TrainFilmWorld"
            elif event == "animegamer.training":
                stages.append((data["state"], server.get("/animegamer/training")))
            elif event == "progress" and stages and stages[-1][1]["active"]:
                bar.append((data["value"], data["max"]))
        return server.wait(data["prompt_id"], timeout)

    played = play("9-film", watched)
    places = [[found.get(name) for name in ("number", "stages", "steps", "before", "of")] for _, found in stages]
    assert places == [[1, 3, 10, 0, 15], [2, 3, 3, 10, 15], [3, 3, 2, 13, 15], [None, None, 2, None, None]]
    assert [state for state, _ in stages] == ["begun"] * 3 + ["finished"] and not stages[0][1]["draws"]
    times = [time for time in left if time is not None]
    assert left[0] is None and times[0] > times[-1] >= 0, "of all stages, once there is a pace"
    assert any(work and 0 < work[0] < work[1] == 16 for work in prepared) and prepared[-1] is None
    steps = [at for at in bar if at[1] == 15]
    assert steps == sorted(steps) and steps[-1][0] > 13 and steps[-1][1] == 15, "one bar for all stages"
    (report,) = outputs(played, "PreviewAny")
    assert re.search(r"captions +whole 16, in part 0, none 0", report["text"][0])
    (dataset,) = (server.output_dir / "animegamer" / "datasets").glob("my-film")
    assert len(DatasetFolder.open(dataset).turns) == 16 and (dataset / "review.html").is_file()
    (trained,) = outputs(played, "TrainFilmWorld")
    assert "my-film is trained on 16 clips at effort 0.01, which is only a test" in trained["text"][0]
    assert open_world(server.models_dir / "animegamer" / "my-film").missing() == ()
    assert "1% of its training" in server.get("/animegamer/words?world=my-film")["warnings"][0]
    (video,) = outputs(played, "SaveVideo")
    assert clip(server, video).shape == (17, 192, 288, 3)


def test_10_a_film_becomes_a_world_in_four_stages(server, play):
    played = play("10-film-to-world")
    reports = [item["text"][0] for item in outputs(played, "TrainLoRAStage")]
    assert [report.partition(":")[0] for report in reports] == list(STAGES)
    dataset = server.output_dir / "animegamer" / "datasets" / "my-film"
    assert all(f"trained on {dataset}" in report and f"{SKETCH} steps in" in report for report in reports)
    (turn,) = outputs(played, "StateDisplay")
    (instruction,) = texts(played[0]).values()
    assert state(turn)["instruction"] == instruction and state(turn)["stats"] == stats_after(instruction)
    (video,) = outputs(played, "SaveVideo")
    assert clip(server, video).shape == (17, 192, 288, 3)


def test_11_a_film_is_enlarged_by_core(server, play):
    (video,) = outputs(play("11-larger-film"), "SaveVideo")
    (item,) = video["images"]
    film = read_clip(server.output_dir / item["subfolder"] / item["filename"])
    assert (film.fps, film.frames.shape) == (8, (2 * 17, 384, 576, 3))


def test_12_takes_side_by_side(server, play):
    (videos,) = outputs(play("12-takes"), "SaveVideo")
    frames = clip(server, videos)
    assert frames.shape == (2 * 17, 2 * 192, 2 * 288, 3), "three takes and an empty place"
    cells = [frames[:, :192, :288], frames[:, :192, 288:], frames[:, 192:, :288]]
    assert distinct(cells) and frames[:, 200:, 300:].max() < 20
