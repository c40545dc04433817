"""A world with adapters on top: what a stage trained is played without making a world folder of it.

Importing this module imports no torch, since a world's fingerprint is needed long before its weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from ..spec import Reading
from . import World, open_world
from .adapter_files import (
    MOTION_STAGES,
    PLAYED,
    STAGE,
    AdapterFacts,
    Adapters,
    adapter_facts,
    check_outside,
    file_age,
    strength_warnings,
)


def with_adapters(world: World, files: Adapters, profile: str | None = None) -> World:
    """The world with these adapters on top, after those that it has. Adapters of strength 0 are left out.

    Reading and motion table are as the files state. profile: reads turns by another profile, with a warning. ValueError
    for a file that is missing, and for files that contradict one another or the world.
    """
    used = (*world.adapters, *((str(path), strength) for path, strength in files if strength))
    if used:
        world = _adapted(world.base, used, checked=profile is None)
    return world.with_profile(profile) if profile else world


def _adapted(plain: World, adapters: Adapters, checked: bool) -> World:
    world, facts, warnings = plain, [adapter_facts(path) for path, _ in adapters], plain.warnings
    for one in facts:
        if one.stage == STAGE:
            check_outside(Path(one.path), plain.spec)
            if plain.has("decoder"):
                warnings += strength_warnings(Path(one.path), file_age(one.path), plain.source("decoder").files)
        world = with_facts(world, one)
    reading_of(plain, facts, checked)  # refuses files that contradict one another
    unstated = tuple(
        f"{one.path} has no motion table, because its dataset had no motion levels; shots are drawn with the values of "
        f"table {world.motion_table.name!r}"
        for one in facts
        if one.stage in MOTION_STAGES and one.motion_table is None
    )
    return replace(world, warnings=(*warnings, *unstated), adapters=adapters, plain=plain)


def with_facts(world: World, facts: AdapterFacts) -> World:
    """The world with the motion table and the sampling that an adapter states, and with its reading if it changes the
    engine. Sampling is that of the last training: stage adapt trains guidance out of the weights again.
    """
    reading = reading_of(world, [facts], checked=False)
    world = replace(world, profile=reading.profile, trained_window=reading.window)
    if facts.motion_table is not None:
        provenance = {**world.provenance, **facts.provenance}
        world = replace(world, motion_table=facts.motion_table, provenance=provenance)
    if facts.stage in MOTION_STAGES:
        world = replace(world, taught=facts.sampling)
    return world


def reading_of(world: World, files: Sequence[AdapterFacts], checked: bool = True) -> Reading:
    """How turns are read with these adapters on a world: as the last one that changes the engine states, else as the
    world does. checked: ValueError where an adapter was trained with another reading than this.
    """
    trainers = [file for file in files if "engine" in file.parts and file.reading is not None]
    reading = trainers[-1].reading if trainers else world.reading
    owner = f"adapter {trainers[-1].path}" if trainers else f"world {world.spec.name!r}"
    remedy = "or choose a profile to play both with it"
    for first, second in pairwise(trainers) if checked else ():
        if not first.reading.agrees(second.reading):
            raise ValueError(
                f"adapter {first.path} trained the engine with profile {first.reading.profile.name}, and "
                f"{second.path} with profile {second.reading.profile.name}; use only one of them, {remedy}"
            )
    for file in files if checked else ():
        if file.reading is not None and not file.reading.agrees(reading):  # of the trainers, all agree by now
            raise ValueError(
                f"adapter {file.path} was trained on predictions with profile {file.reading.profile.name}, and "
                f"{owner} uses profile {reading.profile.name}; drop this file, add the file from stage predict that "
                f"it was trained with, {remedy}"
            )
    return reading


def open_with_adapters(
    name: str | Path, given: Sequence[str], playing: bool = False, profile: str | None = None
) -> World:
    """The named world with the files of --lora on top, read by another profile if one is given; ValueError as for
    `with_adapters`. playing: refuses a file that changes the encoder only, since turns do not use it.
    """
    adapters = tuple(_path_and_strength(text) for text in given)
    for path, _ in adapters if playing else ():
        if not adapter_facts(path).parts & PLAYED:
            raise ValueError(
                f"adapter {path} changes only the encoder, which play does not use; drop it, or give a file from a "
                "stage that trains the engine or the decoder"
            )
    return with_adapters(open_world(name), adapters, profile)


def _path_and_strength(text: str) -> tuple[str, float]:
    path, sign, strength = text.rpartition("=")
    if not sign or Path(text).is_file():
        return text, 1.0
    try:
        return path, float(strength)
    except ValueError as error:
        raise ValueError(f"--lora {text}: expected FILE or FILE=STRENGTH, such as joint.safetensors=0.5") from error
