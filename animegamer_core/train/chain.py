"""The stages of a recipe one after another: their order, what each begins from, and the options of `train all`."""

from __future__ import annotations

import argparse
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path

from .job import models_of
from .staged import PLAYED
from .stages import STAGES, STAGES_IN_ORDER, StageConfig

ALL = "all"
SCRATCH = "scratch"
_KINDS = typing.get_type_hints(StageConfig)
_MODEL = re.compile(r"\^?(encoder|decoder|engine)\\?\.")  # how a pattern begins that is for one model
_SWITCHES = {"true": True, "false": False, "on": True, "off": False, "1": True, "0": False}
Settings = Mapping[str, Mapping[str, typing.Any]]  # stage -> option -> value
Configs = Mapping[str, StageConfig]  # in the order of training


def add_all_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `train all` alone takes."""
    group = parser.add_argument_group(
        "train all",
        "runs the stages of the recipe one after another, each in a folder of its name below --out and each from the "
        "files of those before; prints a plan first. Stage options below are for every stage, --minutes for all of "
        "them together",
    )
    group.add_argument("--stages", metavar="A,B", help="run these stages only; default: all of the recipe")
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="STAGE.OPTION=VALUE",
        help="an option of one stage, such as joint.steps=2000; spaces separate several values; may be repeated",
    )
    group.add_argument("--plan", action="store_true", help="print the plan and stop")
    group.add_argument(
        "--trial",
        action="store_true",
        help="first take 20 steps of each stage in a folder of its own and throw them away, so that the plan states "
        "hours before the first step; recipes lora and lora24",
    )


def refuse_all_arguments(args: argparse.Namespace) -> None:
    """ValueError where a single stage is given an option of `train all`."""
    for name in ("stages", "set", "plan", "trial"):
        if getattr(args, name, None):
            raise ValueError(f"--{name} belongs to `train all`; leave it out of `train {args.stage}`")


def stages_of(recipe: str, chosen: str | None = None) -> tuple[str, ...]:
    """The stages of a recipe in the order of training, or those chosen of them ("joint,predict"); ValueError for a
    stage that the recipe does not run.
    """
    whole = tuple(name for name in STAGES_IN_ORDER if recipe == SCRATCH or STAGES[name].after is not None)
    if chosen is None:
        return whole
    names = {name.strip() for name in chosen.split(",")}
    if unknown := sorted(names - set(whole)):
        raise ValueError(f"--stages: recipe {recipe!r} does not run {unknown[0]!r}; choose of {', '.join(whole)}")
    return tuple(name for name in whole if name in names)


def read_settings(given: Iterable[str], stages: Iterable[str]) -> dict[str, dict[str, typing.Any]]:
    """The options of --set by stage; ValueError for one that is not STAGE.OPTION=VALUE of these stages."""
    found: dict[str, dict[str, typing.Any]] = {name: {} for name in stages}
    for text in given:
        place, equals, value = text.partition("=")
        stage, dot, option = place.strip().partition(".")
        if not (dot and equals):
            raise ValueError(f"--set {text}: expected STAGE.OPTION=VALUE, such as joint.steps=2000")
        if stage not in found:
            raise ValueError(f"--set {text}: there is no stage {stage!r} in this recipe; choose of {', '.join(found)}")
        option = option.strip().replace("-", "_")
        if option not in _KINDS:
            raise ValueError(f"--set {text}: there is no stage option {option!r}; `train --help` lists them")
        found[stage][option] = _value(text, value.strip(), _KINDS[option])
    return found


def _value(text: str, value: str, kind: typing.Any) -> typing.Any:
    """A value as the field's type; ValueError names the option."""
    try:
        if kind is bool:
            return _SWITCHES[value.lower()]
        if typing.get_origin(kind) is tuple:
            return tuple(typing.get_args(kind)[0](word) for word in value.split())
        return kind(value)
    except (KeyError, ValueError) as error:
        expected = {bool: "true or false", int: "a whole number", float: "a number"}.get(kind, "values of its kind")
        raise ValueError(f"--set {text}: expected {expected}, not {value!r}") from error


def begins_from(stage: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose files a stage begins from, in order; configs: of the stages that have, or will have, a file.

    These are the ones of `Stage.after` and those which they began from, without files that another one replaces
    entirely, or that train no model which this stage loads.
    """
    models = set(models_of(stage, configs[stage].shots_every > 0))
    before = [name for name in _lineage(stage) if name in configs]
    return tuple(name for name in _not_replaced(before, configs) if _models_trained(name, configs[name]) & models)


def played_with(last: str, configs: Configs) -> tuple[str, ...]:
    """The stages whose files play a world that was trained up to stage `last`."""
    line = [name for name in (*_lineage(last), last) if name in configs]
    return tuple(name for name in _not_replaced(line, configs) if _models_trained(name, configs[name]) & PLAYED)


def _lineage(stage: str) -> tuple[str, ...]:
    """All stages that lie between the world and this one, in the order of training."""
    found: set[str] = set()
    waiting = [stage]
    while waiting:
        after = set(STAGES[waiting.pop()].after or ()) - found
        found |= after
        waiting += after
    return tuple(name for name in STAGES_IN_ORDER if name in found)


def _not_replaced(names: list[str], configs: Configs) -> list[str]:
    """The stages without those that trained nothing but whole weights which a later one trains as well."""

    def replaced(name: str, later: str) -> bool:
        return not configs[name].lora_rank and set(configs[name].trainable) <= set(configs[later].trainable)

    return [name for at, name in enumerate(names) if not any(replaced(name, later) for later in names[at + 1 :])]


def _models_trained(stage: str, config: StageConfig) -> set[str]:
    """The models that a stage changes; a pattern that names none may change any that the stage needs."""
    facts, found = STAGES[stage], set()
    for pattern in (*config.trainable, *(config.lora_targets if config.lora_rank else ())):
        named = _MODEL.match(pattern)
        found |= {named[1]} if named else set(facts.needs)
    return found | ({"decoder"} if facts.mixes else set())


def stage_arguments(
    args: argparse.Namespace, stage: str, start: Iterable[Path], options: Mapping[str, typing.Any]
) -> argparse.Namespace:
    """The arguments of `train STAGE` for one stage of `train all`."""
    own = {f"option_{name}": value for name, value in options.items()}
    own |= {"stage": stage, "out": args.out / stage, "start": (*args.start, *start)}
    own |= {} if STAGES[stage].games else {"profile": None}  # other stages read no turns
    return argparse.Namespace(**{**vars(args), "stages": None, "set": [], "plan": False, "trial": False, **own})
