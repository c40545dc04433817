"""The stages of a build: data, probes, the stages of `animegamer_core.train`, and calibration."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from accelerate.utils import broadcast_object_list

from ...data.dataset import TURNS, DatasetFolder
from ...data.motion import level_edges, median_by_level
from ...data.records import ClipRecord, read_table
from ...files import make_folder, write_text
from ...game.state import MotionTable
from ...json_files import read_json
from ...model.prompt import GameTokenizer
from ...spec import PROFILES
from ...toybox.calibration import CALIBRATED_VALUES, DATA_VALUES, values_note
from ...toybox.dataset import write_dataset
from ...toybox.splits import TRAINED_LIFE
from ...toybox.world import Scene, vocabulary
from ...train.distributed import processes
from ...train.parts import MODELS, WorldParts
from ...train.run import train_stage
from ...train.stages import stage_config
from ...train.training_data import TrainingData, add_frames
from ...weights import World, open_world, save_world
from ...weights.parts import ENCODER_PARTS
from .calibrate import decoder_response, played_states
from .probes import build_probes
from .recipe import MIXED, Recipe

Say = Callable[[str], object]

TRAINED_PARTS = {"vae": ("vae",), "towers": ENCODER_PARTS, "joint": ("decoder", *ENCODER_PARTS), "predict": ("engine",)}
# build stage -> the stage of recipe `scratch` whose row it uses, if it has another name
ROWS = {"tiny": "vae", "pretrain": "joint", "played": "adapt"}
SHIPPED_FILE_BYTES = 15 * 10**6  # keeps each of the world's files below 16 MB
LICENCE = "Apache-2.0. Drawn by animegamer_core.toybox and trained on nothing else."


class Deadline:
    """The time at which work must stop. minutes: from now; None for no limit."""

    def __init__(self, minutes: float | None = None) -> None:
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    @property
    def over(self) -> bool:
        """Whether the time has run out."""
        return self._end is not None and time.monotonic() >= self._end

    @property
    def minutes(self) -> float:
        """The minutes left, as in StageConfig: above 0, or 0 for no limit."""
        return 0.0 if self._end is None else max(0.001, (self._end - time.monotonic()) / 60)


@dataclass(frozen=True)
class BuildDir:
    """A build's folder: dataset/, games/ (first pictures), world/ (fp16, as shipped), runs/<stage>/, stages.json.

    say: shows a line of progress. data: where dataset/ and games/ are instead, if builds share them.
    """

    folder: Path
    recipe: Recipe
    device: str
    say: Say
    data: Path | None = None

    @property
    def world(self) -> Path:
        """The world folder that the stages fill."""
        return self.folder / "world"

    def dataset_folder(self, name: str) -> Path:
        """The folder of `dataset` or `games`."""
        return (self.data or self.folder) / name

    def measured_table(self) -> MotionTable:
        """The motion table of the dataset: its level edges and medians, without calibration."""
        values = [row.motion_value for row in read_table(self.dataset_folder("dataset") / TURNS, ClipRecord)]
        edges = level_edges(values)
        return MotionTable("toybox", median_by_level(values, edges), edges)

    def settings(self, stage: str) -> dict[str, object]:
        """The recipe's settings of a stage, as plain JSON values."""
        recipe = self.recipe
        own = {
            "data": asdict(recipe.dataset_games),
            "games": asdict(recipe.engine_games),
            "probes": asdict(recipe.probes),
            "calibrate": recipe.calibrated_on,
        }
        return json.loads(json.dumps({"recipe": own.get(stage, recipe.changes.get(stage, {}))}))

    def check_recipe(self, stage: str) -> None:
        """ValueError if this folder's stage was started with another recipe, such as `--quick`."""
        before = self.log().get(stage, {}).get("settings")
        if before is not None and before != self.settings(stage):
            raise ValueError(
                f"stage {stage} in {self.folder} was built with {json.dumps(before)}, now it is "
                f"{json.dumps(self.settings(stage))}; build in another --work folder"
            )

    def log(self) -> dict[str, dict[str, Any]]:
        """For each stage, its seconds over all calls, whether it is finished, and its settings."""
        path = self.folder / "stages.json"
        return read_json(path, dict[str, dict[str, Any]]) if path.is_file() else {}

    def is_finished(self, stage: str) -> bool:
        """Whether a stage is finished."""
        return bool(self.log().get(stage, {}).get("finished"))

    def progress(self, name: str) -> Callable[..., None]:
        """A function that shows about ten lines: how much is done of all, and values by name if there are any."""
        shown = -1

        def show(done: int, total: int, values: Mapping[str, float] = MappingProxyType({})) -> None:
            nonlocal shown
            if 10 * done // total > shown:
                shown = 10 * done // total
                self.say(f"{name}: {done}/{total}" + "".join(f" {key} {value:.4g}" for key, value in values.items()))

        return show

    def note(self, stage: str, seconds: float, finished: bool) -> None:
        """Add to a stage's seconds in the log, and note whether it is finished; only the main process writes."""
        if not processes().is_main_process:
            return
        before = self.log()
        total = before.get(stage, {}).get("seconds", 0.0) + round(seconds, 1)
        log = {**before, stage: {"seconds": total, "finished": finished, "settings": self.settings(stage)}}
        write_text(self.folder / "stages.json", json.dumps(log, indent=1))


def build(
    work: BuildDir, stages: Sequence[str], deadline: Deadline, known: dict[str, TrainingData] | None = None
) -> bool:
    """Run the stages that are not finished yet, in order; False if the time ran out.

    known: the datasets by name with the features computed so far, which one build may leave to the next.

    All processes of a run work on the stages of `animegamer_core.train`; the main one does the others. ValueError if
    the folder's dataset, or one of these stages, was built with another recipe.
    """
    for stage in dict.fromkeys(("data", "games", *stages)):
        work.check_recipe(stage)
    todo = [stage for stage in stages if not work.is_finished(stage)]
    processes().wait_for_everyone()  # all must have read the log before it changes
    known = {} if known is None else known
    parts, read = None, ""  # the models that the last training stage left, and the dataset that it read
    for stage in todo:
        started = time.monotonic()
        work.note(stage, 0.0, finished=False)
        if stage in OWN_STAGES:
            if processes().is_main_process:
                OWN_STAGES[stage](work)
            processes().wait_for_everyone()
        else:
            name = "games" if stage == "predict" else "dataset"
            data = known[name] if name in known else _open_data(work, name)
            if parts is None or read != name:
                parts = _open_models(work)
            trained = _train(work, stage, parts, data, deadline.minutes)
            if trained is None:
                work.note(stage, time.monotonic() - started, finished=False)
                work.say(f"{stage}: time is up; run the same command again to continue")
                return False
            (parts, known[name]), read = trained, name
        work.note(stage, time.monotonic() - started, finished=True)
        work.say(f"{stage}: done in {time.monotonic() - started:.0f} s")
        if broadcast_object_list([deadline.over])[0]:
            return False
    return True


def draw_games(work: BuildDir, name: str) -> DatasetFolder:
    """Folder `dataset`, or `games` with only the first picture of each clip, for the engine; draws missing clips.

    Games of `dataset` that `games` has too are not measured again.
    """
    recipe, only, folder = work.recipe, name == "games", work.dataset_folder(name)
    drawn, games = recipe.dataset_games, recipe.engine_games if only else recipe.dataset_games
    measured = work.dataset_folder("dataset") / TURNS
    begins = drawn == replace(games, games=drawn.games, unmatched_adverbs=drawn.unmatched_adverbs)
    if only and begins and games.games >= drawn.games and measured.is_file() and not (folder / TURNS).exists():
        make_folder(folder)
        write_text(folder / TURNS, measured.read_text(encoding="utf-8"))
    return write_dataset(folder, games, pictures_only=only, on_clip=work.progress(name))


def _draw(work: BuildDir) -> None:
    """Draw the dataset, and create the world with the dataset's motion table."""
    backend = draw_games(work, "dataset").info["settings"]["motion"]["backend"]
    table, recipe = work.measured_table(), work.recipe
    provenance = {
        "built by": "animegamer_core.toybox.build",
        "motion backend": backend,
        DATA_VALUES: values_note(table),
        "encoder and decoder trained on": recipe.dataset_games.trained_on,
        "engine trained on": f"{recipe.engine_games.trained_on}, of each clip the first picture",
    }
    save_world(
        work.world,
        recipe.spec,
        motion_table=table,
        provenance=provenance,
        licence=LICENCE,
        trained_window=stage_config("predict").window,
        life=TRAINED_LIFE,
    )


def _open_data(work: BuildDir, name: str) -> TrainingData:
    """A dataset with its clips on the device."""
    with processes().main_process_first():
        clips = draw_games(work, name)
    data = TrainingData(clips)
    if data.fits:
        data = add_frames(data)
    return replace(data, store={name: rows.to(work.device) for name, rows in data.store.items()})


def _open_models(work: BuildDir) -> WorldParts:
    """The models trained so far, and new ones for the rest."""
    world = open_world(work.world)
    for stage, parts in TRAINED_PARTS.items():  # a lost part would be replaced by random weights
        if work.is_finished(stage) and (lacking := [part for part in parts if not world.has(part)]):
            raise ValueError(
                f"stage {stage} is finished, but {world.folder} is missing {', '.join(lacking)}; copy it from the "
                "folder in which the stage was finished"
            )
    loaded = WorldParts.load(world)
    tokenizer = GameTokenizer.from_words(vocabulary(references=True), world.spec.state.tokens)
    absent = [name for name in MODELS if getattr(loaded, name) is None]
    fresh = WorldParts.new(world.spec, tokenizer, PROFILES["paper"], models=absent)
    if fresh.decoder is not None and world.has("vae"):  # only the transformer is missing
        source = world.source("vae")
        fresh.decoder.vae.load_state_dict({name: source.tensor(name).float() for name in source.keys()})  # noqa: SIM118
    return replace(loaded, **{name: getattr(fresh, name) for name in absent})


def _train(
    work: BuildDir, stage: str, parts: WorldParts, data: TrainingData, minutes: float
) -> tuple[WorldParts, TrainingData] | None:
    """As `train_stage`; the world gets the trained weights."""

    row, out = ROWS.get(stage, stage), work.folder / "runs" / stage
    config = replace(stage_config(row), **work.recipe.changes.get(stage, {}), minutes=minutes)
    # in memory, since other processes may be ahead of the one that writes files
    before = [value.clone() for value in parts.decoder.transformer.parameters()] if stage in MIXED else []
    trained = train_stage(row, config, parts, data, out, on_step=work.progress(stage), device=torch.device(work.device))
    if trained is None:
        return None
    parts, data = trained
    if before:
        for start, end in zip(before, parts.decoder.transformer.parameters(), strict=True):
            end.data = torch.lerp(start.to(end), end.data, MIXED[stage])
    if processes().is_main_process:
        parts.save(open_world(work.world), dtype=torch.float16, max_shard_bytes=SHIPPED_FILE_BYTES)
    processes().wait_for_everyone()
    return parts, data


def _calibrate(work: BuildDir) -> None:
    games, measured = work.recipe.dataset_games.scenes().values(), work.measured_table()
    scenes = [row[0] for row in games][: work.recipe.calibrated_on]
    table = calibrate_world(open_world(work.world), measured, scenes, work.device, work.progress("calibrate"))
    work.say(f"calibrate: shots move {measured.values} px when conditioned on {table.values}")


def calibrate_world(
    world: World,
    measured: MotionTable,
    scenes: Sequence[Scene],
    device: str,
    on_shot: Callable[[int, int], None] | None = None,
) -> MotionTable:
    """Set the calibrated motion values of a world, measured on shots of training scenes, and store its weights in 8
    bits. measured: the motion table of its data.
    """
    engine, encoder = world.load_engine(device), world.load_encoder(device)
    states, decoder = played_states(scenes, measured, engine, encoder), world.load_decoder(device)
    table = decoder_response(measured, decoder, states, on_shot).calibrated(measured)
    world = replace(world, motion_table=table, provenance={**world.provenance, CALIBRATED_VALUES: values_note(table)})
    WorldParts.load(world).in_memory().save(world, dtype=torch.int8, max_shard_bytes=SHIPPED_FILE_BYTES)
    return table


OWN_STAGES: dict[str, Callable[[BuildDir], object]] = {  # those that are not stages of `animegamer_core.train`
    "data": _draw,
    "games": lambda work: draw_games(work, "games"),
    "probes": lambda work: build_probes(work.world, work.recipe.probes, work.device, on_loss=work.progress("probes")),
    "calibrate": _calibrate,
}
