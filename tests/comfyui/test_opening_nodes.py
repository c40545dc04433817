"""Games that begin with a clip or a part of a film, in a real ComfyUI and a tiny world."""

import numpy as np
import pytest
from graphs import RUN, WAVE, node, play

from animegamer_core.media.video import read_clip, write_clip
from animegamer_core.story.story import Story

pytestmark = pytest.mark.usefixtures("tiny")
STEP = 7  # grey levels between two frames


@pytest.fixture(scope="module")
def film(server):
    """A film of four seconds at 8 frames a second in ComfyUI's input folder, whose greys tell the frame."""
    greys = np.arange(32, dtype=np.uint8)[:, None, None, None] * STEP + 10
    write_clip(server.input_dir / "greys.mp4", np.broadcast_to(greys, (32, 64, 96, 3)).copy(), 8)
    return "greys.mp4"


def span(film, at, text="Miko waves"):
    """The nodes that make an opening of a part of a film."""
    read = {"frames": ["span", 0], "clip_fps": ["span", 1], "frame": ["span", 2]}
    return {
        "film": node("LoadVideo", file=film),
        "span": node("ReadFilmSpan", model=["load", 0], video=["film", 0], at=at),
        "encode": node("EncodeShot", model=["load", 0], motion_text=text, **read),
    }


def opening_of(server, story):
    """The numbers of the frames that turn 0 of a saved story shows, and its session."""
    found = Story.read(server.output_dir / "animegamer", story)
    session = found.session(len(found.entries), 4)
    frames = read_clip(found.opening_clip(session)).frames
    return [round((float(frame.mean()) - 10) / STEP) for frame in frames], session


@pytest.mark.parametrize("at, first", [(0.0, 0), (1.5, 12), (3.5, 15)])
def test_a_story_begins_with_a_part_of_a_film(server, story, film, at, first):
    server.run(play(story, WAVE, RUN, opening=["encode", 0]) | span(film, at))
    shown, session = opening_of(server, story)
    assert shown == list(range(first, first + 17)) and session.picture.instruction == "Miko waves"


def test_a_clip_of_core_is_read_at_its_own_pace_from_the_chosen_frame(server, story, film):
    """As a graph without the new inputs does, `frame` 0 reads the first one."""
    parts = {
        "film": node("LoadVideo", file=film),
        "frames": node("GetVideoComponents", video=["film", 0]),
        "encode": node("EncodeShot", model=["load", 0], frames=["frames", 0], motion_text="Miko waves"),
    }
    server.run(play(story, WAVE, opening=["encode", 0]) | parts)
    assert opening_of(server, story)[0] == list(range(17))
    parts["encode"]["inputs"] |= {"frame": -1, "clip_fps": 16.0}
    server.run(play(f"{story} last", WAVE, opening=["encode", 0]) | parts)
    assert opening_of(server, f"{story} last")[0] == [*range(1, 32, 2), 31]
    parts["encode"]["inputs"]["frame"] = 32
    assert "the clip has 32 frames" in server.refusal(play(f"{story} no", WAVE, opening=["encode", 0]) | parts)
