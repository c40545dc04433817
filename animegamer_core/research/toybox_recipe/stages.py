"""The stages of a build: data, probes and scoring models, the stages of `animegamer_core.train`, and calibration."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from accelerate.utils import broadcast_object_list

from ...checkpoint import World, open_world, save_world
from ...checkpoint.parts import ENCODER_PARTS
from ...data.cache import FeatureStore
from ...data.dataset import DatasetFolder
from ...model.prompt import GameTokenizer
from ...spec import PROFILES
from ...toybox.calibration import BUILDER, BUILT_BY, CALIBRATED_VALUES, DATA_VALUES, values_note
from ...toybox.dataset import write_dataset
from ...toybox.editions import EDITION_NOTE, FIRST
from ...toybox.world import vocabulary
from ...train.distributed import processes
from ...train.loop import RunOptions
from ...train.parts import MODELS, WorldParts, without_guidance
from ...train.run import StageResult, train_stage
from ...train.stages import stage_config
from ...train.training_data import TrainingData, add_frames
from .build_dir import BuildDir, Deadline, clip_progress
from .calibrate import decoder_response, played_states
from .probes import build_frame_probes, build_probes
from .recipe import DRAWN
from .scoring_checks import build_scoring_models
from .vae_start import begin_vae

# stage -> the parts that it has added to the world when it is finished
TRAINED_PARTS = {"vae": ("vae",), "towers": ENCODER_PARTS, "joint": ("decoder", *ENCODER_PARTS), "predict": ("engine",)}
ROWS = {"polish": "vae"}  # build stage -> the stage of recipe `scratch` whose row it uses, if it has another name
SHIPPED_FILE_BYTES = 15 * 10**6  # keeps each of the world's files below 16 MB
LICENCE = "Apache-2.0. Drawn by animegamer_core.toybox and trained on nothing else."


def build(work: BuildDir, stages: Sequence[str], deadline: Deadline) -> bool:
    """Run the stages that are not finished yet, in order; False if the time ran out.

    All processes of a run work on the stages of `animegamer_core.train`; the main one does the others. ValueError if
    the folder's dataset, or one of these stages, was built with another recipe.
    """
    for stage in dict.fromkeys((*DRAWN, *stages)):
        work.check_recipe(stage)
    todo = [stage for stage in stages if not work.is_finished(stage)]
    processes().wait_for_everyone()  # all must have read the log before it changes
    material = None  # the dataset, models and features, which one training stage passes on to the next
    for stage in todo:
        started = time.monotonic()
        work.note(stage, 0.0, finished=False)
        if stage in OWN_STAGES:
            if processes().is_main_process:
                OWN_STAGES[stage](work)
            processes().wait_for_everyone()
        else:
            dataset = _engine_games if stage == "predict" else _dataset
            if material is None or material[0] is not dataset:
                material = dataset, *_open(work, dataset)
            result = _train(work, stage, *material[1:], deadline.minutes)
            material = dataset, result.parts, result.data
            if not result.done:
                work.note(stage, time.monotonic() - started, finished=False)
                work.say(f"{stage}: time is up; run the same command again to continue")
                return False
        work.note(stage, time.monotonic() - started, finished=True)
        work.say(f"{stage}: done in {time.monotonic() - started:.0f} s")
        if broadcast_object_list([deadline.over])[0]:
            return False
    return True


def _dataset(work: BuildDir) -> DatasetFolder:
    """The dataset; draws missing clips."""
    return write_dataset(work.dataset, work.recipe.dataset_games, on_clip=clip_progress(work.say, "data"))


def _engine_games(work: BuildDir) -> DatasetFolder:
    """The engine's games, with only the first picture of each clip; draws missing ones."""
    progress = clip_progress(work.say, "games")
    return write_dataset(work.games, work.recipe.engine_games, pictures_only=True, on_clip=progress)


def _loss_progress(work: BuildDir, stage: str, every: int) -> Callable[[int, int, float], None]:
    def show(done: int, total: int, loss: float) -> None:
        if done % every == 1 or done == total:
            work.say(f"{stage}: {done}/{total} loss {loss:.3f}")

    return show


def _draw(work: BuildDir) -> None:
    """Draw the dataset, and create the world with the dataset's motion table."""
    backend = _dataset(work).info["settings"]["motion"]["backend"]
    table, recipe = work.measured_table(), work.recipe
    provenance = {
        BUILT_BY: BUILDER,
        "motion backend": backend,
        DATA_VALUES: values_note(table),
        "encoder and decoder trained on": recipe.dataset_games.trained_on,
        "engine trained on": f"{recipe.engine_games.trained_on}, of each clip the first picture",
    }
    if recipe.edition is not FIRST:
        provenance[EDITION_NOTE] = str(recipe.edition.number)
    facts = {"motion_table": table, "provenance": provenance, "licence": LICENCE, "life": recipe.edition.life}
    save_world(work.world, recipe.spec, trained_window=stage_config("predict").window, **facts)


def _train_probes(work: BuildDir) -> None:
    progress = _loss_progress(work, "probes", every=500)
    facts = build_probes(work.world, work.recipe.probes, work.device, on_loss=progress)
    work.say(f"probes: {facts['accuracy']}")


def _train_frame_probes(work: BuildDir) -> None:
    assert work.recipe.frames is not None, "only recipes with these probes have their stage"
    facts = build_frame_probes(work.world, work.recipe.frames, work.device, on_loss=_loss_progress(work, "frames", 500))
    work.say(f"frames: {facts['accuracy']}")


def _train_scoring_models(work: BuildDir) -> None:
    progress = _loss_progress(work, "scorers", every=100)
    facts = build_scoring_models(work.world, work.recipe.scoring, work.device, on_loss=progress)
    work.say(f"scorers: {facts['retrieval']}")


def _open(work: BuildDir, dataset: Callable[[BuildDir], DatasetFolder]) -> tuple[WorldParts, TrainingData]:
    """The models trained so far, new ones for the rest, and a dataset with its clips on the device."""
    world = open_world(work.world)
    _check_trained(work, world)
    with processes().main_process_first():
        clips = dataset(work)
    loaded = WorldParts.load(world)
    tokenizer = GameTokenizer.from_words(vocabulary(), world.spec.state.tokens)
    absent = [name for name in MODELS if getattr(loaded, name) is None]
    fresh = WorldParts.new(world.spec, tokenizer, PROFILES["paper"], models=absent)
    if fresh.decoder is not None and world.has("vae"):  # only the transformer is missing
        source = world.storage.source("vae")
        fresh.decoder.vae.load_state_dict({name: source.tensor(name).float() for name in source.keys()})  # noqa: SIM118
    parts = replace(loaded, **{name: getattr(fresh, name) for name in absent})
    data = add_frames(TrainingData(clips, FeatureStore()))
    return parts, replace(data, store=data.store.to(work.device))


def _check_trained(work: BuildDir, world: World) -> None:
    """ValueError if the world lacks a part that a finished stage trained; it would be replaced by random weights."""
    for stage, parts in TRAINED_PARTS.items():
        if work.is_finished(stage) and (lacking := [part for part in parts if not world.has(part)]):
            raise ValueError(
                f"stage {stage} is finished, but {world.folder} is missing {', '.join(lacking)}; copy it from the "
                "folder in which the stage was finished"
            )


def _train(work: BuildDir, stage: str, parts: WorldParts, data: TrainingData, minutes: float) -> StageResult:
    def show(done: int, total: int, values: dict[str, float]) -> None:
        if done % max(1, total // 12) < 20 or done == total:
            work.say(f"{stage}: {done}/{total} " + " ".join(f"{name} {value:.4g}" for name, value in values.items()))

    row = ROWS.get(stage, stage)
    if stage == "vae" and work.vae is not None:
        with processes().main_process_first():
            begin_vae(work.vae, parts, open_world(work.world))
    config = replace(stage_config(row), **work.recipe.changes.get(stage, {}), minutes=minutes)
    result = train_stage(row, config, parts, data, work.folder / "runs" / stage, RunOptions(on_step=show))
    if result.done and stage == "distill":  # the weights include guidance now, so play needs none
        result = replace(result, parts=result.parts.with_spec(without_guidance(result.parts.spec)))
    if result.done and processes().is_main_process:
        result.parts.save(open_world(work.world), dtype=torch.float16, max_shard_bytes=SHIPPED_FILE_BYTES)
    processes().wait_for_everyone()
    return result


def _calibrate(work: BuildDir) -> None:
    """Set the calibrated motion values of the world, measured on shots of training scenes."""
    world = open_world(work.world)
    engine, encoder = world.load_engine(work.device), world.load_encoder(work.device)
    scenes = [row[0] for row in work.recipe.dataset_games.scenes().values()][: work.recipe.calibrated_on]
    measured = work.measured_table()
    states = played_states(scenes, measured, engine, encoder)

    def show(done: int, count: int) -> None:
        work.say(f"calibrate: {done}/{count}")

    table = decoder_response(measured, world.load_decoder(work.device), states, show).calibrated(measured)
    work.say(f"calibrate: shots move {measured.values} px when conditioned on {table.values}")
    provenance = {**world.provenance, CALIBRATED_VALUES: values_note(table)}
    facts = {"motion_table": table, "provenance": provenance, "licence": world.licence}
    save_world(work.world, world.spec, trained_window=world.trained_window, **facts)


OWN_STAGES: dict[str, Callable[[BuildDir], object]] = {  # those that are not stages of `animegamer_core.train`
    "data": _draw,
    "games": _engine_games,
    "probes": _train_probes,
    "frames": _train_frame_probes,
    "scorers": _train_scoring_models,
    "calibrate": _calibrate,
}
