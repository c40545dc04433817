"""A small world, a small benchmark and real scoring models of random weights, for the tests of the paper's table."""

import hashlib
from dataclasses import replace

import numpy as np
import torch
from tiny_world import save_tiny_world
from torch import nn
from torch.nn.functional import normalize

from animegamer_core.data.benchmark import BenchmarkGame, BenchmarkTurn
from animegamer_core.evaluate.similarity import ScoringModels
from animegamer_core.evaluate.toybox_recipe.probes import ProbeRecipe, build_probes
from animegamer_core.game.state import MotionTable
from animegamer_core.spec import SPECS

TABLE = MotionTable("tiny", (0.8, 1.5, 3.0, 6.0, 12.0), (1.0, 2.0, 4.0, 8.0))


class TinyModel(nn.Module):
    """One convolution; a text is a row of noise seeded by it."""

    def __init__(self, seed=5, width=8):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, width, 5, stride=3)
        self.name = f"tiny model {seed}"
        self.facts = {"seed": seed}

    @torch.inference_mode()
    def embed_images(self, frames_MHWC):
        assert frames_MHWC.dtype == np.uint8 and frames_MHWC.ndim == 4
        frames = torch.from_numpy(np.ascontiguousarray(frames_MHWC)).permute(0, 3, 1, 2).float() / 127.5 - 1
        return normalize(self.conv(frames).mean((2, 3)), dim=-1)

    def embed_texts(self, texts):
        rows = []
        for text in texts:
            seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
            rows.append(torch.randn(8, generator=torch.Generator().manual_seed(seed)))
        return normalize(torch.stack(rows), dim=-1)


def tiny_models():
    return ScoringModels(TinyModel(5), TinyModel(6))


def save_measured_world(folder):
    """A tiny world that says how its motion was measured."""
    return save_tiny_world(folder, motion_table=TABLE, provenance={"motion backend": "dis"})


def save_judged_world(folder):
    """A tiny world of two steps with an encoder, and probes that hardly know a thing; returns the folder."""
    spec = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, steps=2))
    save_tiny_world(folder, seed=6, spec=spec, encoder=True, motion_table=TABLE)
    build_probes(folder, ProbeRecipe(clips=6, held_out=4, steps=1, control_steps=1), "cpu", workers=1)
    return folder


def small_games(count=3, turns=2):
    """Games of the Toybox's characters."""
    names, motions = ("Miko", "Taro", "Yuzu", "Nori"), ("wave hello", "run", "read a book", "dance")
    games = []
    for index in range(count):
        name = names[index % len(names)]
        played = (
            BenchmarkTurn((name,), motions[at % 4], "day beach", 1 + at % 5, "gently", change)
            for turn, at in enumerate(range(index, index + turns))
            for change in [{"social": 0, "entertainment": turn % 2, "stamina": 1 if turn % 3 else -1}]
        )
        games.append(BenchmarkGame(f"small-{index + 1}", tuple(played)))
    return tuple(games)
