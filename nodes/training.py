"""TrainLoRAStage and TrainFilmWorld: training with progress, interrupt and resume; and what pages show of all runs.

    GET /animegamer/training[?run=R&stage=S]   without names: the current run, or else the last one
The event `animegamer.training` says that a run has started, progressed or ended; the page then asks the route.
"""

from __future__ import annotations

import functools
import time
import typing
from dataclasses import replace
from pathlib import Path

from comfy_api.v0_0_2 import io

from ..animegamer_core.files import check_folder_name
from ..animegamer_core.spec import TRAINED_PROFILES
from ..animegamer_core.train.stages import OPTIONAL_STAGES, STAGES_IN_ORDER, stage_config
from . import comfyui, worlds
from .fingerprints import Fingerprints
from .models import PACKAGES, GameModel
from .values import WORLD, DatasetSocket, LoraSocket, ModelSocket, image_of_picture, report_ui
from .weights import world_folder
from .widgets import choice_input, given_to, number_input, schema, seed_input, world_input

if typing.TYPE_CHECKING:
    from collections.abc import Mapping

    Json = dict[str, typing.Any]

NIGHTS = "toybox at night"  # drawn at night, captioned as day: a short training on it shows
STAGES = (*STAGES_IN_ORDER, *OPTIONAL_STAGES)
EVENT = "animegamer.training"
CURVE = ("step", "loss", "held_out_loss")  # of a line of the log
EVERY_SECONDS = 1.0  # between two events of a run
COST = {"predict": 0.1}  # time of a step, where joint is 1: with 8 clips on two CPU cores 0.3 s, in the others 4.1 s
MOST_RUNS, MOST_POINTS, MOST_LINES, MOST_SHEETS = 100, 400, 60, 40
_at_work: dict[tuple[str, str], Json] = {}  # (run, stage) that this ComfyUI trains now -> its `_place`
BEGUN = "world"  # in a run's folder: the world that a film's training begins with
WORLDS = Fingerprints(worlds.world_version)
TRAINED = Fingerprints(lambda file: worlds.file_version(Path(file)))


class TrainLoRAStage(io.ComfyNode):
    """Trains one of the paper's stages; the result is a LoRA file."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="TrainLoRAStage",
            search_aliases=("fine-tune", "finetune", "training", "adapter", "own style"),
            advanced=("rank", "profile"),
            inputs=[
                choice_input("stage", STAGES, "adapt"),
                choice_input("dataset", [worlds.TOYBOX, NIGHTS, *dataset_folders()], worlds.TOYBOX),
                world_input(),
                io.String.Input("run", default="my-run"),
                number_input("steps", 20, 1, 1_000_000),
                number_input("batch", 4, 1, 4096),
                number_input("rank", 0, 0, 512),
                io.Float.Input("lr", default=0.0, min=0.0, max=0.1, step=0.00001),
                number_input("games", 8, 1, 10_000),
                seed_input(),
                io.Boolean.Input("resume", default=True),
                LoraSocket.Input("lora", optional=True),
                DatasetSocket.Input("game_dataset", optional=True),
                choice_input("profile", [WORLD, *TRAINED_PROFILES], WORLD, optional=True),
                number_input("shots_every", 0, 0, 1_000_000, optional=True),
            ],
            outputs=[LoraSocket.Output("lora_out"), io.Image.Output("loss_plot"), io.String.Output("report")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: typing.Any) -> str:
        """Changes when the LoRA file is deleted or written by another run, or when the world or dataset changes."""
        return TRAINED.fingerprint(widgets | _versions(widgets))

    @classmethod
    def execute(cls, **inputs: typing.Any) -> io.NodeOutput:
        given, fingerprinted = given_to(cls, inputs), inputs | _versions(inputs)
        comfyui.require(*PACKAGES, "peft")
        from ..animegamer_core.train.log import draw_losses

        job = _job(given, comfyui.NodeProgress())
        file, lines = _train(given.run, job, given.resume)
        plot = image_of_picture(draw_losses(lines))
        report = _report(given.stage, lines, job["dataset"], file)
        TRAINED.record(fingerprinted, str(file))
        lora = (*(given.lora or ()), (str(file), 1.0))
        return io.NodeOutput(lora, plot, report, ui=report_ui(cls, plot, report, job["world"].warnings))


class TrainFilmWorld(io.ComfyNode):
    """Makes a small world of a dataset's words, trains all of its stages, and hands it on to be played."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return schema(
            node_id="TrainFilmWorld",
            search_aliases=("own film", "own world", "new world", "vocabulary", "train all"),
            inputs=[
                DatasetSocket.Input("game_dataset"),
                io.String.Input("world", default="my-film"),
                io.Float.Input("effort", default=1.0, min=0.01, max=10.0, step=0.01),
                seed_input(),
            ],
            outputs=[ModelSocket.Output("model"), io.String.Output("instruction"), io.String.Output("report")],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: typing.Any) -> str:
        """Changes when the world is deleted or written by another node."""
        return WORLDS.fingerprint(widgets)

    @classmethod
    def execute(cls, game_dataset: str, world: str, effort: float, seed: int) -> io.NodeOutput:
        comfyui.require(*PACKAGES, "peft")
        from ..animegamer_core.data.dataset import DatasetFolder
        from ..animegamer_core.train.job import FEATURES, short_config
        from ..animegamer_core.train.parts import world_for_stage
        from ..animegamer_core.train.stages import film_plan
        from ..animegamer_core.train.world_setup import extended_world, finished_world
        from ..animegamer_core.weights import open_world
        from ..animegamer_core.weights.world import LEAST_EFFORT, MANIFEST

        dataset, target = DatasetFolder.open(game_dataset), world_folder(world)
        # A run belongs to what it is trained on: after other words it begins again, after an interrupt it continues.
        film = f"{world}-{dataset.digest(captions=True)[:8]}"
        run, clips = f"{film}-{effort:g}-{seed}", len(dataset.training_clips)
        runs = comfyui.output_folder() / comfyui.RUNS
        out, cache = runs / run, runs / f"{film}-{seed}" / FEATURES  # another effort reads the same clips
        if not (out / BEGUN / MANIFEST).is_file():
            extended_world(worlds.find_world(worlds.TOYBOX), dataset, out / BEGUN, seed)
        begun, start = open_world(out / BEGUN), []
        rows = film_plan(clips)
        plan = {stage: max(1, round(row.steps * effort)) for stage, row in rows.items()}
        for stage, row in rows.items():
            reads = world_for_stage(stage, begun, [path for path, _ in start])
            config = replace(short_config(row, steps=plan[stage], seed=seed), window=reads.window)
            job = dict(stage=stage, config=config, world=reads, dataset=dataset.path, out=out / stage)
            file, _ = _train(run, {**job, "start": list(start), "cache": cache}, True, plan)
            start.append((file, 1.0))
        finished_world(begun, start, target, effort)
        WORLDS.record({"game_dataset": game_dataset, "world": world, "effort": effort, "seed": seed}, world)
        is_test = effort < LEAST_EFFORT
        test = f" at effort {effort:g}, which is only a test: set it to 1 to learn the film" if is_test else ""
        note = f"World {world} is trained on {clips} clips{test}. Press R to find it in the Play tab."
        report = f"{note}\nIt is in {target}; losses and checkpoints are in {out}."
        first = dataset.turns[dataset.training_clips[0]].instruction
        return io.NodeOutput(GameModel(open_world(target)), first, report, ui=report_ui(cls, None, report, [note]))


def _train(
    run: str, job: Mapping[str, typing.Any], resume: bool, plan: Mapping[str, int] | None = None
) -> tuple[Path, list[dict[str, float]]]:
    """Train a stage with progress on the node and in the panel; (its LoRA file, the lines of its log).

    plan: the steps of all stages that the node trains, if there are others. Events say when this one begins and, at
    most once a second, that it goes on; and how it ended, unless the next one begins.
    """
    from ..animegamer_core.train.job import train_adapter
    from ..animegamer_core.train.log import LOG, draw_losses, read_log
    from ..animegamer_core.train.run import stage_file

    progress, out, stage = comfyui.NodeProgress(), job["out"], job["stage"]
    place, state, sent_at = _place(stage, plan or {stage: job["config"].steps}), "failed", 0.0
    node = comfyui.running_node()
    since = (0, time.monotonic())  # a step and when it had ended; 0 while none has: the pace counts from there

    def send(state: str) -> None:
        left = place["left"] if state == "trains" and not place["prepares"] else None
        steps = place["steps"]
        comfyui.send(EVENT, {"run": run, "stage": stage, "steps": steps, "state": state, "node": node, "left": left})

    def goes_on() -> bool:
        """Tell the pages, at most once a second; whether it told them."""
        nonlocal sent_at
        now = time.monotonic()
        if is_due := now - sent_at >= EVERY_SECONDS:
            sent_at = now
            send("trains")
        return is_due

    def on_feature(what: str, done: int, total: int) -> None:  # the node's bar and the panel move together
        nonlocal since, sent_at
        since = (0, time.monotonic())
        place["prepares"] = [done, total] if done < total else None
        sent_at = sent_at if place["prepares"] else 0.0  # until the first step, pages would show the last but one
        goes_on()
        # A bar that has begun to count steps goes on with them; a full one would promise an end before the first step.
        is_shown = place["prepares"] and not place["before"]
        progress(*((what, done, total) if is_shown else ("steps", place["before"], place["of"])))

    def on_step(step: int, *_: object) -> None:
        nonlocal since
        now = time.monotonic()
        if since[0] or step == 1:  # a resumed run does not say from which step it went on
            place["left"] = (now - since[1]) / (step - since[0]) * (place["steps"] - step + place["later"])
        if goes_on():
            progress("steps", place["before"] + step, place["of"], draw_losses(read_log(out / LOG)))
        if not since[0]:
            since = (step, now)  # the first step takes longer than others

    def should_stop() -> bool:  # by ComfyUI's exception; the loop saves a checkpoint before it goes on
        return bool(comfyui.stop_if_interrupted())

    _at_work[run, stage] = place
    send("begun")
    try:
        options = {"on_step": on_step, "should_stop": should_stop, "device": comfyui.clear_device()}
        train_adapter(**job, on_progress=on_feature, resume=resume, **options)
        state = "finished"
    except comfyui.interrupt():
        state = "stopped"
        raise
    finally:
        del _at_work[run, stage]
        if state != "finished" or place["number"] == place["stages"]:
            send(state)
    return stage_file(out, stage), read_log(out / LOG)


def _place(stage: str, plan: Mapping[str, int]) -> Json:
    """Where a stage stands among those that its node trains: its number, the steps before it and of all, and what takes
    as many steps of its own as the stages after it. left: seconds until all have ended, at the pace so far. prepares:
    [done, all] of the clips whose features are computed before its first step.
    """
    steps, index = [*plan.values()], [*plan].index(stage)
    before, of = sum(steps[:index]), sum(steps)
    later = sum(count * COST.get(name, 1) for name, count in [*plan.items()][index + 1 :]) / COST.get(stage, 1)
    place = {"steps": steps[index], "number": index + 1, "stages": len(steps), "before": before, "of": of}
    return {**place, "later": later, "left": None, "prepares": None}


def dataset_folders() -> dict[str, Path]:
    """The folders of finished datasets, by their names in the list. Names from widgets never become paths."""
    roots = {"input": comfyui.input_folder(), "output": comfyui.output_folder() / comfyui.DATASETS}
    return {
        f"{name}/{info.parent.name}": info.parent
        for name, root in roots.items()
        for info in sorted(root.glob("*/dataset.json"))
    }


def dataset_version(folder: Path) -> str:
    """Text that changes when a dataset's tables do; empty if there is no finished dataset."""
    from ..animegamer_core.data.dataset import GAMES, INFO, TURNS

    if not (folder / INFO).is_file():
        return ""
    return " ".join(worlds.file_version(folder / name) for name in (INFO, TURNS, GAMES))


def _versions(widgets: Mapping[str, typing.Any]) -> dict[str, str]:
    """The versions of the world and the dataset; the toybox dataset has none, since it is drawn again if missing."""
    folder = dataset_folders().get(widgets.get("dataset") or "")
    version = "" if folder is None else dataset_version(folder)
    return {"versions": f"{worlds.world_version(widgets.get('world') or '')} {version}"}


def _job(given: typing.Any, progress: comfyui.NodeProgress) -> dict[str, typing.Any]:
    """What `train_adapter` takes for the node's inputs; ValueError if they do not fit together."""
    from ..animegamer_core.train.job import FEATURES, short_config
    from ..animegamer_core.train.parts import world_for_stage

    out = comfyui.output_folder() / comfyui.RUNS / check_folder_name(given.run, "run") / given.stage
    lora = [(Path(path), strength) for path, strength in given.lora or ()]
    profile = None if given.profile == WORLD else given.profile
    world = world_for_stage(given.stage, worlds.find_world(given.world), [path for path, _ in lora], profile)
    config = short_config(
        stage_config(given.stage, "lora", world.spec),
        steps=given.steps,
        batch=given.batch,
        lora_rank=given.rank,
        lr=given.lr,
        seed=given.seed,
        shots_every=given.shots_every,
    )
    config = replace(config, window=world.window)
    clips = Path(given.game_dataset) if given.game_dataset else _dataset_folder(given, progress)
    # All stages of a run share the features that they compute from the clips.
    cache = out.parent / FEATURES
    return dict(stage=given.stage, config=config, world=world, dataset=clips, out=out, start=lora, cache=cache)


def _dataset_folder(given: typing.Any, progress: comfyui.NodeProgress) -> Path:
    """The folder of the chosen dataset; for the Toybox its games are drawn first, unless they exist."""
    nights = given.dataset == NIGHTS
    if given.dataset != worlds.TOYBOX and not nights:
        found = dataset_folders()
        if given.dataset not in found:
            raise ValueError(
                f"dataset {given.dataset!r} was not found: put its folder (turns.jsonl, games.jsonl, dataset.json, "
                f"clips) into {comfyui.input_folder()} and press R, or choose {worlds.TOYBOX}"
            )
        return found[given.dataset]
    comfyui.require("cv2")
    from ..animegamer_core.toybox.dataset import DatasetGames, write_dataset

    folder = comfyui.output_folder() / comfyui.DATASETS / f"toybox{'-night' * nights}-{given.games}-{given.seed}"
    dataset_games = DatasetGames(games=given.games, held_out=0, first=given.games * given.seed, nights=nights)
    # Not in worker processes: each would start ComfyUI's main module again.
    return write_dataset(folder, dataset_games, workers=1, on_clip=functools.partial(progress, "clips")).path


def _report(stage: str, lines: list[dict[str, float]], dataset: Path, file: Path) -> str:
    losses = [line["loss"] for line in lines]
    part = max(1, len(losses) // 5)
    first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
    end = lines[-1]
    return (
        f"{stage}: {end['step']} steps in {end['seconds']:.0f} s, loss {first:.4g} at the start, "
        f"{last:.4g} at the end\n"
        f"trained on {dataset}\nLoRA file {file}"
    )


def training(query: Mapping[str, str]) -> Json:
    """The route's answer; ValueError for an unknown run. Names are compared, never made into paths."""
    folders = _run_folders()
    wanted = (query.get("run", ""), query.get("stage", ""))
    if wanted == ("", ""):
        wanted = next(reversed([*_at_work]), next(iter(folders), wanted))
    runs = [{"run": run, "stage": stage} for run, stage in list(folders)[:MOST_RUNS]]
    if wanted == ("", ""):
        return {"runs": runs}
    if wanted not in folders:
        raise ValueError(f"there is no run {wanted[0]!r} with stage {wanted[1]!r} in output/animegamer/runs")
    return {"runs": runs, "run": wanted[0], "stage": wanted[1], **_progress(folders[wanted], _at_work.get(wanted))}


def _run_folders() -> dict[tuple[str, str], Path]:
    """The folders of runs at work, and of those that have a log, the last one written to first."""
    from ..animegamer_core.train.log import LOG

    root = comfyui.output_folder() / comfyui.RUNS
    found = sorted(root.glob(f"*/*/{LOG}"), key=lambda log: (-log.stat().st_mtime, log))
    logged = {(log.parent.parent.name, log.parent.name): log.parent for log in found}
    return logged | {(run, stage): root / run / stage for run, stage in _at_work}


def _progress(folder: Path, place: Json | None) -> Json:
    """What the panel shows of a run. place: of one at work."""
    from ..animegamer_core.train.checkpoints import RESULT
    from ..animegamer_core.train.log import LOG, SHEETS, read_log
    from ..animegamer_core.weights.storage import read_json

    lines = read_log(folder / LOG)
    ended = place is None and (folder / RESULT).is_file()
    sheets = sorted((folder / SHEETS).glob("step-*.png"))[-MOST_SHEETS:]
    return {
        "active": place is not None,
        "ended": ended,
        "draws": not (folder.parent / BEGUN).is_dir(),  # TrainFilmWorld draws no shots
        **(place or {"steps": read_json(folder / RESULT).get("steps") if ended else None}),
        "curve": [{name: line[name] for name in CURVE if name in line} for line in _thinned(lines)],
        "log": lines[-MOST_LINES:],
        "sheets": [{"step": int(sheet.stem.removeprefix("step-")), **comfyui.output_item(sheet)} for sheet in sheets],
    }


def _thinned(lines: list[dict[str, float]]) -> list[dict[str, float]]:
    """At most about MOST_POINTS lines, evenly spaced, with the last one and all that have a held-out loss."""
    every = max(1, -(-len(lines) // MOST_POINTS))
    last = len(lines) - 1
    return [line for at, line in enumerate(lines) if at % every == 0 or at == last or "held_out_loss" in line]
