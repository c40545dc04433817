"""The long jobs: train a stage, measure a world. Both show progress and can be interrupted."""

from __future__ import annotations

import functools
import time
import typing
from dataclasses import replace
from pathlib import Path

from comfy_api.v0_0_2 import io, ui

from ..animegamer_core.index import check_story_name
from ..animegamer_core.spec import TRAINED_PROFILES
from ..animegamer_core.train.staged import StageFiles
from ..animegamer_core.train.stages import OPTIONAL_STAGES, STAGES_IN_ORDER, lr_warning, stage_config
from . import host
from .models import PACKAGES
from .replay import Replays
from .values import CATEGORY, WORLD, DatasetSocket, LoraSocket, image_of_bytes
from .widgets import seed_input, world_input

if typing.TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from PIL import Image
    from torch import Tensor

    from ..animegamer_core.checkpoint import World

STAGES = (*STAGES_IN_ORDER, *OPTIONAL_STAGES)
REDRAWN_S = 1.0  # between previews of the loss
TRAINED = Replays(lambda file: host.age_of_file(Path(file)))
MEASURED = ("probes", "vae", "shots", "motion", "override", "games", "colour", "unseen")  # speed needs a quiet machine


class TrainLoRAStage(io.ComfyNode):
    """A stage of the paper's training as a file to play with."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        def number(name: str, default: int, low: int, high: int, tooltip: str) -> io.Input:
            return io.Int.Input(name, default=default, min=low, max=high, tooltip=tooltip)

        return io.Schema(
            node_id="TrainLoRAStage",
            display_name="Train LoRA Stage",
            category=CATEGORY,
            description="Trains one stage of AnimeGamer on clips and leaves a stage file that Load AnimeGamer takes. A "
            "run is a folder below output/animegamer/runs: queue the node again to go on after an interrupt or a "
            "restart, without a step lost.",
            inputs=[
                io.Combo.Input(
                    "stage",
                    options=list(STAGES),
                    default="adapt",
                    tooltip="adapt: the decoder to the engine's predictions; warmup, joint: shot encoder and decoder; "
                    "predict: the engine; vae, towers: what lies below them; distill: the decoder draws with one pass "
                    "a step.",
                ),
                io.Combo.Input(
                    "dataset",
                    options=[host.TOYBOX, *_datasets()],
                    default=host.TOYBOX,
                    tooltip="toybox draws games by itself; others are dataset folders below input/animegamer and "
                    "output/animegamer/datasets.",
                ),
                world_input(
                    "The world whose weights training begins from. They stay as they are.",
                ),
                io.String.Input(
                    "run",
                    default="my-run",
                    tooltip="Name of the run: its folder below output/animegamer/runs, with one folder a stage.",
                ),
                number("steps", 20, 1, 1_000_000, "Optimizer steps of the whole run."),
                number("batch", 4, 1, 4096, "Clips (or games, for predict) that each step learns from."),
                number("rank", 0, 0, 512, "Rank of the low-rank updates; 0 takes the recipe's."),
                io.Float.Input(
                    "lr",
                    default=0.0,
                    min=0.0,
                    max=0.1,
                    step=0.00001,
                    tooltip="Highest learning rate; 0 takes the recipe's, which is made for thousands of steps. "
                    "0.001 shows within 20 steps.",
                ),
                number("games", 8, 1, 10_000, "How many games of ten turns the toybox dataset has."),
                seed_input(
                    "Decides the drawn games, the order of clips and the noise.",
                ),
                io.Boolean.Input(
                    "resume",
                    default=True,
                    tooltip="Go on with a run of this name; off: refuse a name that is taken.",
                ),
                LoraSocket.Input("lora", optional=True, tooltip="Stages to begin from, put on top of the world first."),
                DatasetSocket.Input(
                    "game_dataset",
                    optional=True,
                    tooltip="A dataset from Build Game Dataset, in place of the one that is chosen here.",
                ),
                io.Combo.Input(
                    "profile",
                    options=[WORLD, *TRAINED_PROFILES],
                    default=WORLD,
                    optional=True,
                    tooltip="How predict, adapt and distill read turns, and how the result is played. world: as its "
                    "engine was trained to be read; paper for an engine that was never trained here.",
                ),
            ],
            outputs=[
                LoraSocket.Output(
                    "lora_out", display_name="lora", tooltip="The stages begun from, and the trained one."
                ),
                io.Image.Output("loss_plot", display_name="loss_plot", tooltip="The loss over the steps."),
                io.String.Output("report", display_name="report", tooltip="What was trained, and where it lies."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, **widgets: typing.Any) -> str:
        """Changes when the run's stage file is taken away or made by another run, or what it began from changes."""
        return TRAINED.fingerprint(widgets | _ages(widgets))

    @classmethod
    def execute(
        cls,
        stage: str,
        dataset: str,
        world: str,
        run: str,
        steps: int,
        batch: int,
        rank: int,
        lr: float,
        games: int,
        seed: int,
        resume: bool,
        lora: StageFiles | None = None,
        game_dataset: str | None = None,
        profile: str = WORLD,
    ) -> io.NodeOutput:
        called = dict(stage=stage, dataset=dataset, world=world, run=run, steps=steps, batch=batch, rank=rank, lr=lr)
        called |= dict(games=games, seed=seed, resume=resume, game_dataset=game_dataset, profile=profile)
        called |= _ages(called)
        host.require(*PACKAGES, "peft")
        from ..animegamer_core.train.job import FEATURES, Job, brief, run_job, to_train
        from ..animegamer_core.train.log import LOG, read_log
        from ..animegamer_core.train.loop import RunOptions
        from ..animegamer_core.train.plot import draw_losses

        show, begun = Bars(), tuple(lora or ())
        out = host.output_folder() / host.RUNS / check_story_name(run, "run") / stage
        chosen = None if profile == WORLD else profile
        opened = to_train(stage, host.find_world(world), [Path(path) for path, _ in begun], chosen)
        row = stage_config(stage, "lora", opened.spec.name)
        config = brief(row, steps=steps, batch=batch, lora_rank=rank, lr=lr, seed=seed)
        config = replace(config, window=opened.window)
        clips = Path(game_dataset) if game_dataset else _dataset_folder(dataset, games, seed, show)
        # The stages of a run read the same clips: what one computes of them, the next finds.
        start, features = [(Path(path), share) for path, share in begun], out.parent / FEATURES
        job = Job(stage, config, opened, clips, out, start, features)
        heard = _LossPreview(show, out / LOG)
        result = run_job(job, RunOptions(resume, heard, _asked_to_stop, host.clear_device()), show)
        lines = read_log(out / LOG)
        plot = image_of_picture(draw_losses(lines))
        report = _told(stage, lines, result.seconds, job.dataset, result.file)
        lora_out = (*begun, (str(result.file), 1.0))
        TRAINED.done(called, str(result.file))
        notes = [*opened.warnings, *filter(None, [lr_warning(config)])]
        return io.NodeOutput(lora_out, plot, report, ui=looks(cls, plot, report, notes))


class EvaluateGame(io.ComfyNode):
    """The Toybox's acceptance table, or the paper's, in small."""

    @classmethod
    def define_schema(cls) -> io.Schema:
        return io.Schema(
            node_id="EvaluateGame",
            display_name="Evaluate Game",
            category=CATEGORY,
            description="Plays and draws held-out Toybox games and measures them: what probes recognise, how far shots "
            "move, what the engine remembers; or the figures of the paper's table. One game gives a first impression; "
            "the command line measures all.",
            inputs=[
                world_input(
                    "A world that was built by the Toybox recipe, which brings its own probes. The paper's table takes "
                    "any world.",
                ),
                io.Int.Input(
                    "games",
                    default=1,
                    min=1,
                    max=50,
                    tooltip="Games of ten turns to play, everything else in proportion; a game takes minutes on a CPU.",
                ),
                seed_input(
                    "Another seed asks other games; for the paper's table, other noise.",
                ),
                io.Combo.Input(
                    "table",
                    options=list(TABLES),
                    default="toybox",
                    optional=True,
                    tooltip="toybox: the acceptance table with its targets. paper: CLIP-I, DreamSim, CLIP-T, ACC-F, "
                    "MAE-F, character state and seconds on the frozen benchmark, by the Toybox's own towers.",
                ),
            ],
            outputs=[
                io.String.Output("report", display_name="report", tooltip="The table: value, interval, and target."),
                io.Image.Output("sheet", display_name="sheet", tooltip="Pictures of what was measured, on one sheet."),
            ],
            is_output_node=True,
        )

    @classmethod
    def fingerprint_inputs(cls, world: str | None = None, **_: object) -> str:
        """Changes when the world on disk does."""
        return host.age_of_world(world or "")

    @classmethod
    def execute(cls, world: str, games: int, seed: int, table: str = "toybox") -> io.NodeOutput:
        host.require(*PACKAGES, "cv2")
        if table not in TABLES:
            raise ValueError(f"unknown table {table!r}; choose {' or '.join(TABLES)}")
        text, picture = TABLES[table](host.find_world(world), games, seed)
        sheet = image_of_picture(picture)
        return io.NodeOutput(text, sheet, ui=looks(cls, sheet, text))


def _acceptance(world: World, games: int, seed: int) -> tuple[str, Image.Image]:
    """The acceptance table of a Toybox world, and its pictures on one sheet."""
    from ..animegamer_core.evaluate.acceptance.lab import Lab
    from ..animegamer_core.evaluate.acceptance.table import accept
    from ..animegamer_core.evaluate.acceptance.trial import QUICK, Trial

    # Worker processes would start ComfyUI's own main module again, so everything is drawn here.
    lab = Lab(world, host.clear_device(), workers=1, on_progress=Bars())
    for model in (lab.engine, lab.decoder, lab.encoder, lab.probes):
        host.make_interruptible(model)
    report = accept(Trial(lab, QUICK.limited(games), seed), MEASURED)
    return report.text, report.sheet()


def _paper_table(world: World, games: int, seed: int) -> tuple[str, Image.Image]:
    """The paper's table on the first games of the frozen benchmark, and its plots on one sheet."""
    from ..animegamer_core.evaluate.table.player import WorldPlayer
    from ..animegamer_core.evaluate.table.small import evaluate_small
    from ..animegamer_core.play import PlaySettings

    player = WorldPlayer(world, PlaySettings(device=str(host.clear_device())))
    for model in (player.engine, player.decoder):
        host.make_interruptible(model)
    small = evaluate_small(player, host.output_folder() / host.EVALUATIONS, games, seed, Bars())
    return small.text, small.sheet


TABLES = {"toybox": _acceptance, "paper": _paper_table}


class Bars:
    """Progress on the running node, one bar a kind of work; looks for the interrupt at every report."""

    def __init__(self) -> None:
        self._kind: tuple[str, int] | None = None

    def __call__(self, what: str, done: int, total: int, picture: Image.Image | None = None) -> None:
        if self._kind != (what, total):
            self._kind, self._report = (what, total), host.progress(total)
        self._report(done, picture)


class _LossPreview:
    """Shows the steps of training, and from time to time the loss so far."""

    def __init__(self, show: Bars, log: Path) -> None:
        self._show, self._log, self._drawn = show, log, 0.0

    def __call__(self, step: int, steps: int, values: Mapping[str, float]) -> None:
        from ..animegamer_core.train.log import read_log
        from ..animegamer_core.train.plot import draw_losses

        picture = None
        if time.monotonic() - self._drawn > REDRAWN_S:
            picture, self._drawn = draw_losses(read_log(self._log)), time.monotonic()
        self._show("steps", step, steps, picture)


def _asked_to_stop() -> bool:
    """Raises ComfyUI's interrupt; training saves a checkpoint before it goes on up."""
    host.stop_if_interrupted()
    return False


def _datasets() -> dict[str, Path]:
    """Finished dataset folders by their names in the list; compared with, never made into paths."""
    roots = {"input": host.input_folder(), "output": host.output_folder() / host.DATASETS}
    return {
        f"{name}/{info.parent.name}": info.parent
        for name, root in roots.items()
        for info in sorted(root.glob("*/dataset.json"))
    }


def age_of_dataset(folder: Path) -> str:
    """Changes when a dataset's tables do; empty where there is no finished dataset."""
    from ..animegamer_core.data.dataset import GAMES, INFO, TURNS

    return (
        " ".join(host.age_of_file(folder / name) for name in (INFO, TURNS, GAMES)) if (folder / INFO).is_file() else ""
    )


def _ages(widgets: Mapping[str, typing.Any]) -> dict[str, str]:
    """What a run begins from and lies on disk; the toybox dataset is drawn anew where it is gone."""
    folder = _datasets().get(widgets.get("dataset") or "")
    age = "" if folder is None else age_of_dataset(folder)
    return {"ages": f"{host.age_of_world(widgets.get('world') or '')} {age}"}


def _dataset_folder(name: str, games: int, seed: int, show: Bars) -> Path:
    """The folder of a listed dataset; the Toybox's games are drawn into one first, as far as it lacks them."""
    if name != host.TOYBOX:
        found = _datasets()
        if name not in found:
            raise ValueError(
                f"dataset {name!r} is not there: put its folder (turns.jsonl, games.jsonl, dataset.json, clips) into "
                f"{host.input_folder()} and press R, or choose toybox"
            )
        return found[name]
    host.require("cv2")
    from ..animegamer_core.toybox.dataset import Casting, write_dataset

    folder = host.output_folder() / host.DATASETS / f"toybox-{games}-{seed}"
    casting = Casting(games=games, held_out=0, first=games * seed)
    # Worker processes would start ComfyUI's own main module again, so one process draws.
    return write_dataset(folder, casting, workers=1, on_clip=functools.partial(show, "clips")).path


def _told(stage: str, lines: list[dict[str, float]], seconds: float, dataset: Path, file: Path) -> str:
    """What a finished run did, for the report."""
    losses = [line["loss"] for line in lines]
    part = max(1, len(losses) // 5)
    first, last = sum(losses[:part]) / part, sum(losses[-part:]) / part
    return (
        f"{stage}: {lines[-1]['step']} steps in {seconds:.0f} s, loss {first:.4g} at first, {last:.4g} at last\n"
        f"trained on {dataset}\nstage file {file}"
    )


def image_of_picture(picture: Image.Image) -> Tensor:
    """A picture as an IMAGE of one frame."""
    import numpy as np

    return image_of_bytes(np.array(picture.convert("RGB"))[None])


def looks(cls: type[io.ComfyNode], image: Tensor | None, text: str, notes: Iterable[str] = ()) -> dict[str, typing.Any]:
    """The `ui` of a job: its picture if it has one, its report and notes to the user."""
    shown = list(notes)
    noted = {"animegamer_notes": shown} if shown else {}
    pictured = {} if image is None else ui.PreviewImage(image, cls=cls).as_dict()
    return {**pictured, "text": [text], **noted}
