"""`train all`: a plan, then the stages of a recipe one after another as `train STAGE` runs them; a done one is skipped.

Hours are measured on the first 20 steps of each stage as it runs. Those steps are the run's own; but a stage begins
from what the one before has learned, so its pace is not known before. `--trial` measures all of them first.
"""

from __future__ import annotations

import argparse
import gc
import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..checkpoint import World, open_world
from ..checkpoint.parts import PLAY_PARTS
from ..checkpoint.storage import read_json
from ..data.dataset import DatasetFolder
from ..spec import PROGRAM, get_spec
from .chain import SCRATCH, begins_from, played_with, read_settings, stage_arguments, stages_of
from .checkpoints import CHECKPOINTS, check_settings, list_checkpoints, step_of
from .cli import IN_WORLD, config_of, is_there, words_tokenizer
from .job import FEATURES, check_job, to_train
from .pace import MEASURED_STEPS, FirstSteps, Pace
from .plan import Chain, Plan, StagePlan, StageRun, make_plan, size_text, stage_file, with_paces
from .run import RESULT
from .spread import processes
from .stages import SCRATCH_SPECS, STAGES, StageConfig
from .telling import duration
from .trial import run_trial

Say = Callable[[str], object]
Train = Callable[[argparse.Namespace, Say], int]


def run_all(args: argparse.Namespace, train: Train, say: Say) -> int:
    """Print the plan and run the stages with `train`; returns the exit status. ValueError, before the first step, for
    options, data or files that do not fit any of the stages, and where the disk has no room for what they write.
    """
    chain = _open(args)
    plan = make_plan(chain, args.world, args.out)
    if args.trial:
        plan.check_disk()
        processes().wait_for_everyone()
        paces = run_trial(chain, args.out, train, say)
        if paces is None:
            say("the trial was stopped, and nothing is begun; the same command begins again")
            return 130
        plan = with_paces(plan, paces)
    for line in plan.lines():
        say(line)
    plan.check_disk()
    if args.plan:
        return 0
    processes().wait_for_everyone()  # nothing is written before every process has looked at the disk
    status, done = _run_stages(args, chain, plan, train, say)
    if done:
        _say_how_to_play(args, chain, say)
    return status


def _open(args: argparse.Namespace) -> Chain:
    """World, dataset and stages of a run; ValueError where they do not fit, or an earlier run is in the way."""
    folder = DatasetFolder.open(args.dataset, clips=False)  # check_stage looks for them if a stage reads any
    world = open_world(args.world) if is_there(args.world) else None
    if world is None and not args.spec:
        raise ValueError(f"{args.world} is no world yet; say with --spec which sizes it shall have")
    spec = world.spec if world is not None else get_spec(args.spec)
    recipe = args.recipe or (SCRATCH if spec.name in SCRATCH_SPECS else "lora")
    if recipe == SCRATCH and args.start:
        raise ValueError("--start: recipe scratch begins from the world itself; leave it out, or give --recipe lora")
    if recipe == SCRATCH and args.trial:
        raise ValueError("--trial: recipe scratch trains the world itself, so there is none to try on; leave it out")
    args = argparse.Namespace(**{**vars(args), "cache": args.cache or _own_cache(args, recipe)})
    names = stages_of(recipe, args.stages)
    for name in () if args.resume or args.plan else names:
        _refuse_second(args.out / name)
    settings = read_settings(args.set, stages_of(recipe))
    row = "" if recipe == SCRATCH else spec.name
    own = {name: config_of(stage_arguments(args, name, (), settings[name]), recipe, row) for name in names}
    configs = own if recipe == SCRATCH else _with_earlier(args.out, stages_of(recipe), own)
    runs = []
    for name in names:
        begins = () if recipe == SCRATCH else begins_from(name, configs)
        files = [stage_file(args.out / before) for before in begins]
        its = stage_arguments(args, name, files, settings[name])
        runs.append(_stage_run(its, own[name], begins, recipe, world, folder))
    has_engine = world is not None and world.has("engine")
    tokenizer = world.tokenizer() if has_engine else words_tokenizer(folder.turns, spec)
    return Chain(recipe, world, spec, tokenizer, folder, runs, configs)


def _own_cache(args: argparse.Namespace, recipe: str) -> Path | None:
    """Where features are kept unless --cache says: in one folder for all stages; those of small worlds in memory."""
    return None if recipe == SCRATCH else args.out / FEATURES


def _refuse_second(out: Path) -> None:
    """ValueError where a stage's folder holds a run that shall not be gone on with."""
    if list_checkpoints(out / CHECKPOINTS) or _has_ended(out):
        raise ValueError(f"{out} holds a run already; go on with it (--resume), or choose another folder (--out)")


def _with_earlier(out: Path, names: Sequence[str], own: Mapping[str, StageConfig]) -> dict[str, StageConfig]:
    """The configurations of this run's stages and of those whose files lie in its folder; ValueError for a stage that
    was begun there, did not end, and is left out now.
    """
    found = {}
    for name in names:
        if name in own:
            found[name] = own[name]
        elif _has_ended(out / name):
            values = _settings_of(stage_file(out / name))
            plain = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
            found[name] = StageConfig(**plain)
        elif list_checkpoints(out / name / CHECKPOINTS):
            raise ValueError(f"{out / name} holds a run that has not ended; add {name} to --stages, or move it away")
    return found


def _has_ended(out: Path) -> bool:
    """Whether a folder holds a stage's result and its file."""
    path = out / RESULT
    return path.is_file() and read_json(path).get("stage") == out.name and stage_file(out).is_file()


def _settings_of(file: Path) -> dict[str, object]:
    """The settings that a stage file was trained with; its tensors stay unread."""
    from safetensors import safe_open

    with safe_open(file, framework="pt") as opened:
        return json.loads(opened.metadata()["config"])


def _stage_run(
    args: argparse.Namespace,
    config: StageConfig,
    begins: tuple[str, ...],
    recipe: str,
    world: World | None,
    folder: DatasetFolder,
) -> StageRun:
    """A stage and how far it is; ValueError where its folder holds a run of something else, or with other settings."""
    kept = list_checkpoints(args.out / CHECKPOINTS)
    done = _has_ended(args.out) and (recipe != SCRATCH or _is_in_world(args))
    if kept or done:
        start = [(file, 1.0) for file in args.start]
        read = world and to_train(args.stage, world, args.start, args.profile)
        profile = read.profile.name if read is not None and STAGES[args.stage].games else None
        check_job(args.out, args.stage, folder, start, None if recipe == SCRATCH else read, profile)
        stored = read_json(kept[-1] / "state.json")["config"] if kept else _settings_of(stage_file(args.out))
        if not hasattr(args, "option_window"):  # a world may state its own
            config = replace(config, window=stored["window"])
        check_settings(kept[-1] if kept else args.out, args.stage, stored, config)
    return StageRun(args.stage, args, config, begins, done, step_of(kept[-1]) if kept else 0)


def _is_in_world(args: argparse.Namespace) -> bool:
    """Whether the world has got what the stage trained; ValueError where another has."""
    trained = read_json(args.out / RESULT).get(IN_WORLD)
    if trained is not None and trained != str(Path(args.world).resolve()):
        raise ValueError(f"{args.out} has trained {trained}, not {args.world}; choose another folder for this world")
    return trained is not None


def _run_stages(args: argparse.Namespace, chain: Chain, plan: Plan, train: Train, say: Say) -> tuple[int, bool]:
    """Run the stages that are not done; returns (exit status, whether all of them are done now)."""
    begun = time.monotonic()
    for at, run in enumerate(chain.runs):
        if run.done:
            continue
        say(f"stage {run.stage}, {at + 1} of {len(chain.runs)}")
        own = {"after_step": FirstSteps(plan.stages[at].steps_left, processes().device, _measured(plan, at, say))}
        if not run.config.minutes or hasattr(args, "option_minutes"):
            own |= _minutes_left(args, begun)
        status = train(argparse.Namespace(**{**vars(run.args), **own}), say)
        processes().wait_for_everyone()  # the main process writes the file that the next stage begins from
        gc.collect()  # models hold on to themselves, and the next stage wants their memory
        if status or not _has_ended(run.args.out):
            say(f"{at} of {len(chain.runs)} stages are done; the same command with --resume goes on in {run.stage}")
            return status, False
    return 0, True


def _minutes_left(args: argparse.Namespace, begun: float) -> dict[str, float]:
    """What is left for a stage of --minutes, which counts for all of them together; a little, so that no process of
    several leaves the others alone, where nothing is left.
    """
    limit = getattr(args, "option_minutes", 0.0)
    return {"option_minutes": max(1e-6, limit - (time.monotonic() - begun) / 60)} if limit else {}


def _measured(plan: Plan, at: int, say: Say) -> Callable[[Pace], None]:
    """Says what a stage's first steps mean for the rest, and which stages are still to be measured."""
    stage: StagePlan = plan.stages[at]

    def report(pace: Pace) -> None:
        steps = min(MEASURED_STEPS, stage.steps_left)
        peak = f"; at most {size_text(pace.peak_bytes)} of GPU memory" if pace.peak_bytes else ""
        later = [other.stage for other in plan.stages[at + 1 :] if other.size is not None]
        say(
            f"measured on the first {steps} steps: {pace.seconds:.2g} s a step, stage {stage.stage} takes "
            f"{duration(pace.seconds * (stage.steps_left - steps))} more{peak}"
            + (f"; then {', '.join(later)}, measured when they run" if later else "")
        )

    return report


def _say_how_to_play(args: argparse.Namespace, chain: Chain, say: Say) -> None:
    """The command that plays what was trained, where it is enough to play with."""
    words = [*PROGRAM.split(), "play", "--world", args.world]
    if chain.recipe == SCRATCH:
        playable = not open_world(args.world).missing(PLAY_PARTS)
    else:
        names = played_with(chain.runs[-1].stage, chain.configs)
        files = [*args.start, *(stage_file(args.out / name) for name in names)]
        words += [word for file in files for word in ("--stage-file", str(file))]
        playable = bool(names)
    say("all stages are done" + ("; this plays the world with them:" if playable else ""))
    if playable:
        say(shlex.join(words))
