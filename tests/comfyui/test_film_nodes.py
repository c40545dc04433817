"""Films of stories and takes of a game in a real ComfyUI, in a tiny world."""

import wave

import av
import numpy as np
import pytest
from comfy_server import nodes_run
from graphs import DRAW, RUN, WAVE, load, node, play, save_video, saved_file

from animegamer_core.media.video import read_clip
from animegamer_core.story.story import Story

pytestmark = pytest.mark.usefixtures("tiny")
FILM = {"branch": "", "turns": -1, "name": "film", "subtitles": False}
TAKES = DRAW | {"takes": 2, "seed": 0, "window": 4}


def test_a_story_becomes_a_film_with_sound_and_subtitles(server, story):
    with wave.open(str(server.base / "input" / "tune.wav"), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes((8000 * np.sin(np.arange(8000) / 5)).astype(np.int16).tobytes())
    film = FILM | {"story": ["play", 5], "subtitles": True, "audio": ["tune", 0]}
    prompt = play(story, WAVE, RUN) | {"film": node("ExportGameStory", **film), "save": save_video("film", 0)}
    prompt["tune"] = node("LoadAudio", audio="tune.wav")
    entry = server.run(prompt)
    path = server.output_dir / "animegamer" / story / "films" / "film.mp4"
    assert saved_file(server, entry, "film") == path and path.with_suffix(".srt").exists()
    with av.open(str(path)) as film:
        assert sorted(stream.type for stream in film.streams) == ["audio", "subtitle", "video"]
        assert film.streams.video[0].frames == 2 * 17
    again = saved_file(server, entry)
    assert len(read_clip(again).frames) == 2 * 17, "core's Save Video reads it"
    assert nodes_run(server.run(prompt)) == set()
    path.unlink()
    assert nodes_run(server.run(prompt)) >= {"film"} and path.exists(), "a deleted film is written again"


def test_a_chosen_branch_is_shown(server, story):
    server.run(takes(story, text=f"{WAVE}\n{RUN}"))
    prompt = {"film": node("ExportGameStory", **FILM | {"story": story, "branch": "branch-2"})}
    frames = read_clip(saved_file(server, server.run(prompt), "film")).frames.astype(int)
    saved, shots = Story.read(server.output_dir / "animegamer", story), {}
    assert saved.branch == "main", "as before"
    for name in ("main", "branch-2"):
        saved.use(name)
        shots[name] = np.concatenate([read_clip(saved.shots.path(entry.shot)).frames for entry in saved.entries])
    away = {name: np.abs(frames - shown).mean() for name, shown in shots.items()}
    assert len(frames) == 34 and away["branch-2"] < 4 < away["main"], away


def takes(story, **inputs):
    return {
        "load": load(),
        "takes": node("PlayGameTakes", **TAKES | {"model": ["load", 0], "story": story} | inputs),
        "grid": node("PreviewImage", images=["takes", 0]),
    }


def test_a_game_is_played_in_takes_and_again_for_nothing(server, story):
    text = f"{WAVE}\n# and then\n{RUN}\n"
    entry = server.run(takes(story, text=text))
    found = Story.read(server.output_dir / "animegamer", story)
    assert (found.branches(), found.branch, len(found.entries)) == (["main", "branch-2"], "main", 2)
    assert len(entry["outputs"]["grid"]["images"]) == 1
    frames = read_clip(saved_file(server, entry, "takes")).frames
    assert len(frames) == 34 and frames.shape[2] > 1.5 * frames.shape[1], "two takes side by side"
    shots = {path: path.stat().st_mtime_ns for path in found.shots.folder.iterdir()}
    assert nodes_run(server.run(takes(story, text=text))) == set()
    server.run(takes(story, text=text, takes=3))
    assert {path: path.stat().st_mtime_ns for path in shots} == shots, "only the third take is drawn"
    assert Story.read(server.output_dir / "animegamer", story).branches() == ["main", "branch-2", "branch-3"]
    assert "no instruction" in server.refusal(takes(story, text="# nothing"))
