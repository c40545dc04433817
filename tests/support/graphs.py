"""Graphs for a real ComfyUI, in API form: the nodes that most tests need, with all their widgets."""

import numpy as np
from PIL import Image

WAVE = "Character: Miko; Motion: gently wave hello; Background: day beach."
RUN = "Character: Miko; Motion: quickly run; Background: night forest."
SLEEP = "Character: Yuzu; Motion: barely sleep under a blanket; Background: night bedroom."
DANCE = "Character: Yuzu; Motion: wildly dance; Background: day castle."
LOAD = {"world": "tiny", "precision": "auto", "placement": "auto", "profile": "world", "lora_strength": 1.0}
LOAD |= {"lora_file": "none", "lora_file_strength": 1.0}
START = {"window": 4, "stamina": 50, "social": 50, "entertainment": 50, "rewind_to": -1}
DRAW = {"motion": "predicted", "motion_value": 5.0, "steps": 1, "guidance": "world"}
PLAY = DRAW | {"after": 0, "branch": "", "window": 4, "seed": 0, "export": False}
TRAIN = {"stage": "adapt", "dataset": "toybox", "world": "toybox", "run": "my-run", "steps": 4, "batch": 2, "rank": 4}
TRAIN |= {"lr": 1e-3, "games": 1, "seed": 0, "resume": True}


def node(kind, **inputs):
    """One node of a prompt."""
    return {"class_type": kind, "inputs": inputs}


def load(**choices):
    """A LoadAnimeGamer with these choices; by default the world `tiny`."""
    return node("LoadAnimeGamer", **LOAD | choices)


def predict(history, instruction, seed=0, model="load"):
    """A PredictNextState of the model of a node."""
    return node("PredictNextState", model=[model, 0], history=history, instruction=instruction, seed=seed)


def draw(state, model="load", **how):
    """A DecodeShot of the model of a node."""
    return node("DecodeShot", model=[model, 0], state=state, **DRAW | {"seed": -1} | how)


def play(story, *instructions, world="tiny", **how):
    """A prompt of one PlayGameStory with these instructions, and the model that it plays with."""
    lines = "\n".join(instructions)
    inputs = PLAY | {"model": ["load", 0], "story": story, "instructions": lines} | how
    return {"load": load(world=world), "play": node("PlayGameStory", **inputs)}


def train(**inputs):
    """A prompt of one TrainLoRAStage of a few steps on the Toybox's own games."""
    return {"train": node("TrainLoRAStage", **TRAIN | inputs)}


def save_video(source, output=2):
    """A SaveVideo."""
    return node("SaveVideo", video=[source, output], filename_prefix="shot", format="auto", codec="auto")


def saved_frames(server, entry, name="save"):
    """(F, H, W, 3) uint8, the frames that a SaveImage kept."""
    items = entry["outputs"][name]["images"]
    return np.stack([np.asarray(Image.open(server.base / i["type"] / i["subfolder"] / i["filename"])) for i in items])


def saved_file(server, entry, name="save"):
    """The path of the one file that a node saved."""
    (item,) = entry["outputs"][name]["images"]
    return server.base / item["type"] / item["subfolder"] / item["filename"]
