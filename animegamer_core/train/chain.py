"""The stages of a recipe as a chain: their order, their options, and the adapters that each starts from."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterable, Mapping

from ..checkpoint.adapters import PLAYED
from .job import models_of
from .stages import STAGES, STAGES_IN_ORDER, StageConfig

SCRATCH = "scratch"
_KINDS = typing.get_type_hints(StageConfig)
_MODEL = re.compile(r"\^?(encoder|decoder|engine)\\?\.")  # the beginning of a pattern that names a model
_SWITCHES = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
Configs = Mapping[str, StageConfig]  # in the order of training


def stages_of(recipe: str, chosen: str | None = None) -> tuple[str, ...]:
    """A recipe's stages in the order of training. chosen: only these, such as "joint,predict".

    ValueError for a stage that the recipe does not run.
    """
    whole = tuple(name for name in STAGES_IN_ORDER if recipe == SCRATCH or STAGES[name].after is not None)
    if chosen is None:
        return whole
    names = {name.strip() for name in chosen.split(",")}
    if unknown := sorted(names - set(whole)):
        raise ValueError(f"--stages: recipe {recipe!r} does not run {unknown[0]!r}; choose from {', '.join(whole)}")
    return tuple(name for name in whole if name in names)


def read_settings(given: Iterable[str], stages: Iterable[str]) -> dict[str, dict[str, typing.Any]]:
    """The options of --set by stage; ValueError for one that is not STAGE.OPTION=VALUE with one of these stages."""
    found: dict[str, dict[str, typing.Any]] = {name: {} for name in stages}
    for text in given:
        place, equals, value = text.partition("=")
        stage, dot, option = place.strip().partition(".")
        if not (dot and equals):
            raise ValueError(f"--set {text}: expected STAGE.OPTION=VALUE, such as joint.steps=2000")
        if stage not in found:
            raise ValueError(
                f"--set {text}: there is no stage {stage!r} in this recipe; choose from {', '.join(found)}"
            )
        option = option.strip().replace("-", "_")
        if option not in _KINDS:
            raise ValueError(f"--set {text}: there is no stage option {option!r}; `train --help` lists them")
        found[stage][option] = _value(text, value.strip(), _KINDS[option])
    return found


def _value(text: str, value: str, kind: typing.Any) -> typing.Any:
    """Convert a value to the field's type; ValueError if that fails. text: the whole option, for the message."""
    try:
        if kind is bool:
            return _SWITCHES[value.lower()]
        if typing.get_origin(kind) is tuple:
            return tuple(typing.get_args(kind)[0](word) for word in value.split())
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "values of its type")
        raise ValueError(f"--set {text}: expected {expected}, not {value!r}") from error


def begins_from(stage: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose adapters a stage starts from, in order. configs: of the stages that have or will have adapters.

    These are the stages in `Stage.after` and those that they started from, without adapters that a later one replaces
    entirely, and without those that change no model that this stage loads.
    """
    models = set(models_of(stage, configs[stage].shots_every > 0))
    before = [name for name in _lineage(stage) if name in configs]
    return tuple(name for name in _not_replaced(before, configs) if _models_trained(name, configs[name]) & models)


def played_with(last: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose adapters are needed to play a world that was trained up to stage `last`."""
    before = [name for name in (*_lineage(last), last) if name in configs]
    return tuple(name for name in _not_replaced(before, configs) if _models_trained(name, configs[name]) & PLAYED)


def _lineage(stage: str) -> tuple[str, ...]:
    """All stages that come before this one, in the order of training."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        after = set(STAGES[waiting.pop()].after or ()) - found
        found |= after
        waiting += after
    return tuple(name for name in STAGES_IN_ORDER if name in found)


def _not_replaced(names: list[str], configs: Configs) -> list[str]:
    """The stages, without those that trained only whole weights all of which a later stage trains too."""

    def replaced(name: str, later: str) -> bool:
        return not configs[name].lora_rank and set(configs[name].trainable) <= set(configs[later].trainable)

    return [name for at, name in enumerate(names) if not any(replaced(name, later) for later in names[at + 1 :])]


def _models_trained(stage: str, config: StageConfig) -> set[str]:
    """The models that a stage changes; a pattern that names no model may change any model that the stage needs."""
    facts, found = STAGES[stage], set()
    for pattern in (*config.trainable, *(config.lora_targets if config.lora_rank else ())):
        named = _MODEL.match(pattern)
        found |= {named[1]} if named else set(facts.needs)
    return found | ({"decoder"} if facts.mixes else set())
