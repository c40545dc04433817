"""Judges of shots: what chooses between takes. It is never what reports whether that helped (row `takes`).

A Toybox world is judged by its probes, another world by the published scoring models that its folder `judge` holds; the
measured motion counts in both. M clips, F frames, H height, W width.
"""

from __future__ import annotations

import hashlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..checkpoint import World
from ..checkpoint.storage import note_of
from ..data.flow import FlowSettings
from ..data.motion import motion_value
from ..recall import PUBLISHED, names_of
from ..state import MotionTable
from ..story.takes import ShotJudge
from ..toybox.scenes import HEADS, NONE
from ..toybox.world import CHARACTERS, COLOURS, MOTIONS, PLACES, PROPS, TIMES, words
from .similarity.choose import open_scoring_models
from .world.motion import BACKEND, flow_of
from .world.references import character_pictures

if typing.TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from ..toybox.probes import ProbeNet
    from .similarity.models import ScoringModels

PROBES = "probes/probes.safetensors"  # of a world, as toybox/probes.py writes them; that module needs torch
FOLDER = "judge"  # of a world: clip/, and optionally dreamsim/ and characters/ with NAME.png or NAME/
CLIP, DREAMSIM, CHARACTER_PICTURES = (f"{FOLDER}/{name}" for name in ("clip", "dreamsim", "characters"))
LEVELS_APART = 4  # from still to wild


def has_judge(world: World) -> bool:
    """Whether `open_judge` has something to judge a world's shots with."""
    return any((world.folder / path).exists() for path in (PROBES, CLIP))


def open_judge(world: World, device: str = "cpu") -> ShotJudge:
    """The judge of a world's shots, whose models are loaded when it first looks at one.

    ValueError, with what to do, if the world has neither probes nor a folder of scoring models.
    """
    motion = MotionRule.of(world)
    if (world.folder / PROBES).is_file():
        return ToyboxJudge(world.folder, motion, device)
    if (world.folder / CLIP).is_dir():
        return PublishedJudge(world.folder, motion, device)
    raise ValueError(
        f"nothing can judge the shots of world {world.spec.name!r}: it has neither probes, like Toybox worlds, nor a "
        f"CLIP model in {world.folder / CLIP}; put one there, or play with 1 take"
    )


@dataclass(frozen=True)
class MotionRule:
    """How measured motion counts. flow: as the world's data was measured; None if its motion is not judged, since that
    takes another program than OpenCV's DIS, or since the world has no measured borders between levels.
    """

    table: MotionTable
    flow: FlowSettings | None

    @classmethod
    def of(cls, world: World) -> MotionRule:
        """The rule of a world."""
        measured = world.provenance.get(BACKEND, "dis") == "dis" and world.motion_table.edges is not None
        return cls(world.motion_table, flow_of(world) if measured else None)

    def asked(self, motion: float) -> int:
        """The level that a motion condition asks for."""
        values = self.table.values
        return 1 + values.index(motion) if motion in values else int(self.table.level(motion))

    def fits(self, motion: float, measured: float) -> float:
        """1 if a shot moves at the level that its motion condition asks for; 0.25 less for each level between them."""
        return 1 - abs(self.asked(motion) - int(self.table.level(measured))) / LEVELS_APART

    def parts(self, motion: float, frames_FHWC: NDArray[np.uint8]) -> dict[str, float]:
        """The part `level`; none if motion is not judged."""
        if self.flow is None:
            return {}
        return {"level": self.fits(motion, motion_value(frames_FHWC, **self.flow.left_out))}


@dataclass(frozen=True)
class ToyboxJudge:
    """The probes of a world's folder: each part is the probability of what the instruction names."""

    folder: Path
    motion: MotionRule
    device: str = "cpu"

    @cached_property
    def name(self) -> str:
        """With the weights' checksum, since other probes give other scores."""
        return f"toybox probes {note_of(self.folder / PROBES).sha256[:12]}"

    @cached_property
    def _net(self) -> ProbeNet:
        from ..toybox.probes import load_probes

        return load_probes(self.folder, self.device)

    def judge(self, instruction: str, motion: float, frames_FHWC: NDArray[np.uint8]) -> Mapping[str, float]:
        """As ShotJudge."""
        from ..toybox.probes import probabilities

        shown = {head: row[0] for head, row in probabilities(self._net, frames_FHWC[None]).items()}
        return probe_parts(instruction, shown) | self.motion.parts(motion, frames_FHWC)


def probe_parts(instruction: str, shown: Mapping[str, NDArray[np.floating]]) -> dict[str, float]:
    """For each head that an instruction names, the probability of its classes. shown: head -> (classes,)."""
    return {
        head: float(sum(shown[head][HEADS[head].index(name)] for name in names))
        for head, names in named_classes(instruction).items()
    }


def named_classes(instruction: str) -> dict[str, tuple[str, ...]]:
    """The probes' heads that a Toybox instruction names -> the classes that fit; words that refer back name nothing.

    A prop without a named colour may have any colour.
    """
    parts = PUBLISHED.fullmatch(instruction)
    if parts is None:
        return {}
    who = [name for name in names_of(parts["who"]) if name in CHARACTERS]
    said, place = set(words(parts["motion"])), words(parts["place"])
    motions = [name for name, row in MOTIONS.items() if row.phrase in parts["motion"]]
    colours = [name for name in COLOURS if name in said]
    prop = said & set(PROPS)
    found = {
        "character": who[:1],
        "partner": who[1:2],
        "place": [name for name in PLACES if name in place],
        "time": [name for name in TIMES if name in place],
        "motion": motions[:1],
        "colour": (colours or [name for name in HEADS["colour"] if name != NONE]) if prop else [],
    }
    return {head: tuple(names) for head, names in found.items() if names}


@dataclass(frozen=True)
class PublishedJudge:
    """Published scoring models: a shot's likeness to the words without names, and to pictures of the main character.

    folder: the world's. Cosines below 0 count as 0.
    """

    folder: Path
    motion: MotionRule
    device: str = "cpu"

    @cached_property
    def name(self) -> str:
        """With a checksum of all files, since others give other scores."""
        files = sorted(path for path in (self.folder / FOLDER).rglob("*") if path.is_file())
        facts = [(path.relative_to(self.folder).as_posix(), note_of(path).sha256) for path in files]
        return f"scoring models {hashlib.sha256(repr(facts).encode()).hexdigest()[:12]}"

    @cached_property
    def _models(self) -> ScoringModels:
        dreamsim = self.folder / DREAMSIM
        found = dreamsim if dreamsim.is_dir() else None
        return open_scoring_models("published", clip=self.folder / CLIP, dreamsim=found, device=self.device)

    @cached_property
    def _known(self) -> dict[str, Tensor | None]:
        return {}

    def judge(self, instruction: str, motion: float, frames_FHWC: NDArray[np.uint8]) -> Mapping[str, float]:
        """As ShotJudge."""
        from .world.scores import compared_frames, mean_cosine

        published, shown = PUBLISHED.fullmatch(instruction), compared_frames(frames_FHWC)
        text = instruction if published is None else f"{published['motion']}, {published['place']}"
        clip, looks = self._models.clip, self._models.dreamsim or self._models.clip
        parts = {"words": mean_cosine(clip.embed_images(shown), clip.embed_texts([text]))}
        if published is not None:
            parts["looks"] = mean_cosine(looks.embed_images(shown), self._character(names_of(published["who"])[0]))
        fits = {name: max(0.0, value) for name, value in parts.items() if value is not None}
        return fits | self.motion.parts(motion, frames_FHWC)

    def _character(self, name: str) -> Tensor | None:
        """(M, E) embeddings of the pictures of a character; None if there are none."""
        if name not in self._known:
            import torch

            folder, looks = self.folder / CHARACTER_PICTURES, self._models.dreamsim or self._models.clip
            pictures = character_pictures(folder, name) if folder.is_dir() else ()
            embedded = [looks.embed_images(picture[None]) for picture in pictures]
            self._known[name] = torch.cat(embedded) if embedded else None
        return self._known[name]
