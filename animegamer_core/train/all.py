"""`train all`: prints a plan, then runs the stages of a recipe one after another, like `train STAGE`; skips done ones.

The pace is measured on the first 20 steps of each stage. Those steps are part of the run, so a stage's pace is only
known once it has started. `--trial` measures all stages first, on steps that are thrown away: each stage takes its
first 20 steps in a folder of its own, starting from the trial adapters of the stages before it. Features of the text
encoder, the image encoder and the VAE stay in the cache, so that only loading, these steps and the engine's predictions
are done twice.
"""

from __future__ import annotations

import gc
import shlex
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from ..checkpoint import World, open_world
from ..checkpoint.parts import PLAY_PARTS
from ..checkpoint.storage import read_json
from ..data.dataset import DatasetFolder
from ..spec import PROGRAM, get_spec
from .chain import SCRATCH, begins_from, played_with, read_settings, stages_of
from .checkpoints import CHECKPOINTS, check_settings, list_checkpoints, read_state, step_of
from .distributed import processes
from .job import FEATURES, RunOrigin, check_origin, to_train
from .one_stage import is_in_world, train_one_stage
from .plan import Chain, Plan, StageRun, make_plan, size_text, stage_file, with_paces
from .progress import MEASURED_STEPS, FirstSteps, Pace, Report, duration
from .request import TrainRequest
from .run import RESULT
from .stages import SCRATCH_SPECS, STAGES, StageConfig
from .trainable import read_config
from .world_setup import words_tokenizer, world_exists

TRIAL = "trial"  # folder in the run's folder


def train_all(request: TrainRequest, report: Report) -> int:
    """Print the plan and train the stages; returns the exit status.

    ValueError, before the first step, if options, data or files do not fit one of the stages, or if there is too little
    free disk space.
    """
    chain = _open(request)
    plan = make_plan(chain)
    if request.trial:
        plan.check_disk()
        processes().wait_for_everyone()
        paces = _run_trial(chain, report)
        if paces is None:
            report("the trial was stopped before any stage started; the same command starts again")
            return 130
        plan = with_paces(plan, paces)
    for line in plan.lines():
        report(line)
    plan.check_disk()
    if request.plan:
        return 0
    processes().wait_for_everyone()  # no process writes before all have checked the disk
    status, done = _train_stages(chain, plan, report)
    if done:
        _report_how_to_play(chain, report)
    return status


def _open(request: TrainRequest) -> Chain:
    """Open the run's world and dataset, and set up its stages.

    ValueError if they do not fit together, or if the folder holds an earlier run.
    """
    folder = DatasetFolder.open(request.dataset, clips=False)  # check_stage checks them if a stage reads clips
    world = open_world(request.world) if world_exists(request.world) else None
    if world is None and not request.spec:
        raise ValueError(f"{request.world} does not exist yet; choose the sizes of a new world with --spec")
    spec = world.spec if world is not None else get_spec(request.spec)
    recipe = request.recipe or (SCRATCH if spec.name in SCRATCH_SPECS else "lora")
    scratch = recipe == SCRATCH
    if scratch and request.start:
        raise ValueError("--start: recipe scratch starts from the world itself; drop it, or give --recipe lora")
    if scratch and request.trial:
        raise ValueError("--trial: recipe scratch trains the world itself, so a trial would change it; drop it")
    # features of small worlds stay in memory; otherwise one folder serves all stages
    request = replace(request, cache=request.cache or (None if scratch else request.out / FEATURES))
    names = stages_of(recipe, request.stages)
    for name in () if request.resume or request.plan else names:
        if list_checkpoints(request.out / name / CHECKPOINTS) or _is_done(request.out / name):
            out = request.out / name
            raise ValueError(f"{out} already holds a run; continue it (--resume), or choose another folder (--out)")
    settings = read_settings(request.set, stages_of(recipe))
    requests = {name: _stage_request(request, name, settings[name]) for name in names}
    own = {name: requests[name].config(recipe, spec) for name in names}
    configs = own if scratch else _with_earlier(request.out, stages_of(recipe), own)
    runs = []
    for name in names:
        begins = () if scratch else begins_from(name, configs)
        files = [stage_file(request.out / before) for before in begins]
        stage = replace(requests[name], start=(*request.start, *files))
        runs.append(_stage_run(stage, own[name], begins, recipe, world, folder))
    has_engine = world is not None and world.has("engine")
    tokenizer = world.tokenizer() if has_engine else words_tokenizer(folder.turns, spec)
    return Chain(request, recipe, world, spec, tokenizer, folder, runs, configs)


def _stage_request(request: TrainRequest, stage: str, settings: Mapping[str, object]) -> TrainRequest:
    """The request of one stage, in a folder of its name."""
    profile = request.profile if STAGES[stage].games else None  # other stages read no turns
    options = {**request.options, **settings}
    return replace(request, stage=stage, out=request.out / stage, profile=profile, options=options)


def _with_earlier(out: Path, names: Sequence[str], own: Mapping[str, StageConfig]) -> dict[str, StageConfig]:
    """The configurations of this run's stages, and of earlier stages whose adapters are in its folder.

    ValueError for an unfinished stage in the folder that this run does not include.
    """
    found = {}
    for name in names:
        if name in own:
            found[name] = own[name]
        elif _is_done(out / name):
            found[name] = read_config(stage_file(out / name))[1]
        elif list_checkpoints(out / name / CHECKPOINTS):
            raise ValueError(f"{out / name} holds an unfinished run; add {name} to --stages, or move it away")
    return found


def _is_done(out: Path) -> bool:
    """Whether a stage's folder holds its result and its adapter."""
    path = out / RESULT
    return path.is_file() and read_json(path).get("stage") == out.name and stage_file(out).is_file()


def _stage_run(
    request: TrainRequest,
    config: StageConfig,
    begins: tuple[str, ...],
    recipe: str,
    world: World | None,
    folder: DatasetFolder,
) -> StageRun:
    """A stage and its progress; ValueError if its folder holds another run, or one with other settings."""
    saved = list_checkpoints(request.out / CHECKPOINTS)
    done = _is_done(request.out) and (recipe != SCRATCH or is_in_world(request))
    if saved or done:
        read = world and to_train(request.stage, world, request.start, request.profile)
        origin = RunOrigin(request.stage, folder, request.starts, read, in_place=recipe == SCRATCH)
        check_origin(request.out, origin)
        left = saved[-1] if saved else stage_file(request.out)
        stored = read_state(left).config if saved else asdict(read_config(left)[1])
        if "window" not in request.options:  # an unset window may come from the world
            config = replace(config, window=stored["window"])
        check_settings(left, request.stage, stored, config)
    return StageRun(request, config, begins, done, step_of(saved[-1]) if saved else 0)


def _run_trial(chain: Chain, report: Report) -> dict[str, Pace] | None:
    """The pace of each stage that is not done; None if Ctrl-C stopped the trial. Leaves only the cache behind."""
    paces: dict[str, Pace] = {}
    folder = chain.request.out / TRIAL
    _remove(folder)
    try:
        for run in (run for run in chain.runs if not run.done):
            report(f"trial of stage {run.stage}")
            request = _trial_request(chain, run, lambda pace, stage=run.stage: paces.update({stage: pace}))
            if train_one_stage(request, lambda line: None):  # the losses of a trial are not reported
                return None
            processes().wait_for_everyone()  # the main process writes the adapter that the next stage starts from
            if pace := paces.get(run.stage):
                report(f"trial of stage {run.stage}: {pace.seconds:.2g} s a step{_peak(', ', pace)}")
    finally:
        _remove(folder)
    return paces


def _trial_request(chain: Chain, run: StageRun, measured: Callable[[Pace], object]) -> TrainRequest:
    """The request for a stage's first steps, which start from the adapters of done stages and of trials."""
    out, tried = chain.request.out, {other.stage for other in chain.runs if not other.done}
    folders = [(out / TRIAL if name in tried else out) / name for name in run.begins]
    steps = min(MEASURED_STEPS, run.config.steps)
    brief = {"steps": steps, "lr_warmup": min(steps, run.config.lr_warmup), "save_every": steps}
    brief |= {"minutes": 0.0, "validate_every": 0, "shots_every": 0}
    return replace(
        run.request,
        out=out / TRIAL / run.stage,
        start=(*chain.request.start, *map(stage_file, folders)),
        resume=False,
        options={**run.request.options, **brief},
        after_step=FirstSteps(steps, processes().device, measured),
    )


def _remove(folder: Path) -> None:
    """Let the main process remove a trial's folder; the others wait."""
    if processes().is_main_process:
        shutil.rmtree(folder, ignore_errors=True)
    processes().wait_for_everyone()


def _peak(before: str, pace: Pace) -> str:
    return f"{before}at most {size_text(pace.peak_bytes)} of GPU memory" if pace.peak_bytes else ""


def _train_stages(chain: Chain, plan: Plan, report: Report) -> tuple[int, bool]:
    """Train the stages that are not done; returns (exit status, whether all stages are done now)."""
    begun, limit = time.monotonic(), chain.request.options.get("minutes", 0.0)
    for at, run in enumerate(chain.runs):
        if run.done:
            continue
        report(f"stage {run.stage}, {at + 1} of {len(chain.runs)}")
        options = dict(run.request.options)
        if limit:
            # for all stages together; never 0, which means no limit, and no process may skip a stage alone
            options["minutes"] = max(1e-6, limit - (time.monotonic() - begun) / 60)
        measure = FirstSteps(plan.stages[at].steps_left, processes().device, _pace_report(plan, at, report))
        status = train_one_stage(replace(run.request, options=options, after_step=measure), report)
        processes().wait_for_everyone()  # the main process writes the adapter that the next stage starts from
        gc.collect()  # models are in reference cycles, and the next stage needs their memory
        if status or not _is_done(run.request.out):
            report(
                f"{at} of {len(chain.runs)} stages are done; the same command with --resume continues in {run.stage}"
            )
            return status, False
    return 0, True


def _pace_report(plan: Plan, at: int, report: Report) -> Callable[[Pace], None]:
    """A callback that reports a stage's pace and remaining time, and which stages are still to be measured."""
    stage = plan.stages[at]

    def measured(pace: Pace) -> None:
        steps = min(MEASURED_STEPS, stage.steps_left)
        later = [other.run.stage for other in plan.stages[at + 1 :] if not other.run.done]
        report(
            f"measured on the first {steps} steps: {pace.seconds:.2g} s a step, stage {stage.run.stage} takes "
            f"{duration(pace.seconds * (stage.steps_left - steps))} more{_peak('; ', pace)}"
            + (f"; then {', '.join(later)}, measured when they run" if later else "")
        )

    return measured


def _report_how_to_play(chain: Chain, report: Report) -> None:
    """Report that all stages are done, and the command that plays the result if the world is then complete."""
    request = chain.request
    words = [*PROGRAM.split(), "play", "--world", request.world]
    if chain.recipe == SCRATCH:
        playable = not open_world(request.world).missing(PLAY_PARTS)
    else:
        names = played_with(chain.runs[-1].stage, chain.configs)
        files = [*request.start, *(stage_file(request.out / name) for name in names)]
        words += [word for file in files for word in ("--lora", str(file))]
        playable = bool(names)
    report("all stages are done" + ("; this plays the world with them:" if playable else ""))
    if playable:
        report(shlex.join(words))
