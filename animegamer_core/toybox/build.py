"""The recipe of the embedded world: `python -m animegamer_core.toybox.build --work DIR`.

    data      draw the games, measure their motion, write a dataset folder
    games     as many games again and more for the engine, of whose clips it needs the first picture alone
    probes    train the judges on true clips of other seeds; frozen before any decoder is trained
    scorers    train the towers that score pictures against pictures and texts, on true clips of further seeds
    vae towers warmup joint predict adapt    the stages of `animegamer_core.train`, each from the last one's world
    polish     the VAE's decoder alone, once the latents that everything else was trained on are fixed
    calibrate  measure how far the decoder's shots move, and set the world's motion table by it

Every stage ends within 8 minutes on one H200 and leaves its result in DIR; finished stages are passed over, so a fresh
machine goes on from `--export`ed files. `--quick` runs everything in miniature, to try the machinery.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.dataset import TURNS, DatasetFolder
from ..data.motion import level_edges, median_by_level
from ..files import write_text
from ..prompt import GameTokenizer
from ..spec import PROFILES, SPECS, ModelSpec
from ..state import MotionTable
from .dataset import Casting, write_dataset
from .parcel import PIECE_BYTES, packed, write_pieces
from .parcel import PIECES as EXPORT_PIECES
from .probes import ProbeRecipe, build_probes
from .scorer_checks import ScorerRecipe, build_scorers
from .world import vocabulary

if TYPE_CHECKING:
    from ..train.material import TrainingData
    from ..train.parts import WorldParts
    from ..train.run import StageResult

TRAINED = ("vae", "towers", "warmup", "joint", "predict", "adapt", "polish")
DRAWN = ("data", "games")
STAGES = (*DRAWN, "probes", "scorers", *TRAINED, "calibrate")
ROWS = {"polish": "vae"}  # build stages that train another stage's row of the recipe
SHIPPED_FILE_BYTES = 15 * 10**6  # a world's files stay under 16 MB each
LICENCE = "Apache-2.0. Drawn by animegamer_core.toybox and trained on nothing else."

Say = Callable[[str], None]


@dataclass(frozen=True)
class Recipe:
    """What a build makes. changes: stage -> the fields of its StageConfig that differ from the scratch recipe's row.

    casting: the games that encoder and decoder are trained on. played: those that the engine is trained on, which
    overfits fewer.
    """

    spec: ModelSpec
    casting: Casting
    played: Casting
    probes: ProbeRecipe
    scorers: ScorerRecipe
    calibrated_on: int  # training scenes whose shots are measured
    changes: dict[str, dict[str, object]] = field(default_factory=dict)


FULL = Recipe(
    spec=SPECS["toybox"],
    casting=Casting(games=1000, held_out=20),
    played=Casting(games=3000, held_out=20),
    probes=ProbeRecipe(clips=6000, held_out=500, steps=2500, control_steps=500),
    scorers=ScorerRecipe(scenes=6000, held_out=500, steps=400, control_steps=80),
    calibrated_on=16,
    changes={
        "vae": {"steps": 3200, "batch": 8, "lr": 1e-3, "kl": 1e-4},
        "towers": {"steps": 2000},
        "warmup": {"steps": 400, "lr": 1e-3},
        "joint": {"steps": 6500, "lr": 1e-3},
        "predict": {"steps": 8000},
        "adapt": {"steps": 2000},
        "polish": {"trainable": (r"^decoder\.vae\.decoder\.",), "steps": 2600, "batch": 8, "lr": 5e-4, "motion": 1.0},
    },
)
QUICK = Recipe(
    spec=SPECS["toybox"],
    casting=Casting(games=4, held_out=1, turns=5),
    played=Casting(games=6, held_out=1, turns=5),
    probes=ProbeRecipe(clips=24, held_out=8, steps=3, control_steps=2),
    scorers=ScorerRecipe(scenes=24, held_out=8, steps=3, control_steps=2),
    calibrated_on=1,
    changes={stage: {"steps": 2, "batch": 4, "lr_warmup": 1, "log_every": 1, "validate_every": 0} for stage in TRAINED},
)


@dataclass(frozen=True)
class Workshop:
    """A build's folder: dataset/, games/ (first pictures), world/ (fp16, as shipped), runs/<stage>/, stages.json."""

    folder: Path
    recipe: Recipe
    device: str
    say: Say

    @property
    def dataset(self) -> Path:
        """The dataset folder."""
        return self.folder / "dataset"

    @property
    def games(self) -> Path:
        """The dataset folder that the engine is trained on."""
        return self.folder / "games"

    @property
    def world(self) -> Path:
        """The world folder that the stages fill."""
        return self.folder / "world"

    def measured_table(self) -> MotionTable:
        """The dataset's own motion levels: their borders and medians; ValueError before the dataset is measured."""
        lines = (self.dataset / TURNS).read_text(encoding="utf-8").splitlines()
        values = [json.loads(line)["motion_value"] for line in lines]
        edges = level_edges(values)
        return MotionTable("toybox", median_by_level(values, edges), edges)

    def settings(self, stage: str) -> dict[str, object]:
        """What the recipe says of a stage, as json keeps it."""
        recipe = self.recipe
        own = {
            "data": asdict(recipe.casting),
            "games": asdict(recipe.played),
            "probes": asdict(recipe.probes),
            "scorers": asdict(recipe.scorers),
            "calibrate": recipe.calibrated_on,
        }
        return json.loads(json.dumps({"recipe": own.get(stage, recipe.changes.get(stage, {}))}))

    def check_recipe(self, stage: str) -> None:
        """ValueError if this folder's stage was begun by another recipe, as `--quick` is."""
        before = self.log().get(stage, {}).get("settings")
        if before is not None and before != self.settings(stage):
            raise ValueError(
                f"stage {stage} in {self.folder} was built with {json.dumps(before)}, now it is "
                f"{json.dumps(self.settings(stage))}; build in another --work folder"
            )

    def log(self) -> dict[str, dict[str, object]]:
        """Stage -> its seconds over all calls, whether it is finished, and its settings."""
        path = self.folder / "stages.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

    def is_finished(self, stage: str) -> bool:
        """Whether a stage has nothing left to do."""
        return bool(self.log().get(stage, {}).get("finished"))

    def note(self, stage: str, seconds: float, finished: bool) -> None:
        """Add to a stage's seconds, and say whether it is finished."""
        before = self.log()
        total = before.get(stage, {}).get("seconds", 0.0) + round(seconds, 1)
        log = {**before, stage: {"seconds": total, "finished": finished, "settings": self.settings(stage)}}
        write_text(self.folder / "stages.json", json.dumps(log, indent=1))


def build(shop: Workshop, stages: Sequence[str], minutes: float | None = None) -> bool:
    """Run the stages that are not finished yet, in order; False if the time ran out before the last one's end.

    ValueError where the folder's dataset, or one of these stages, was built by another recipe.
    """
    for stage in dict.fromkeys((*DRAWN, *stages)):
        shop.check_recipe(stage)
    end = None if minutes is None else time.monotonic() + 60 * minutes
    material = None  # the dataset, models and features that one training stage hands to the next
    for stage in stages:
        if shop.is_finished(stage):
            continue
        started = time.monotonic()
        shop.note(stage, 0.0, finished=False)
        if stage in OWN_STAGES:
            OWN_STAGES[stage](shop)
        else:
            wanted = _games if stage == "predict" else _dataset
            if material is None or material[0] is not wanted:
                material = wanted, *_open(shop, wanted)
            left = 0.0 if end is None else max(0.1, (end - time.monotonic()) / 60)
            result = _train(shop, stage, *material[1:], left)
            material = wanted, result.parts, result.data
            if not result.done:
                shop.note(stage, time.monotonic() - started, finished=False)
                shop.say(f"{stage}: the time is over; the same command goes on from here")
                return False
        shop.note(stage, time.monotonic() - started, finished=True)
        shop.say(f"{stage}: done in {time.monotonic() - started:.0f} s")
        if end is not None and time.monotonic() > end:
            return False
    return True


def _dataset(shop: Workshop) -> DatasetFolder:
    """The dataset, with whatever it lacks drawn: all of it, or the clips that did not travel to this machine."""
    return write_dataset(shop.dataset, shop.recipe.casting, on_clip=_told(shop, "data"))


def _games(shop: Workshop) -> DatasetFolder:
    """The engine's games, with whatever they lack drawn."""
    return write_dataset(shop.games, shop.recipe.played, pictures_only=True, on_clip=_told(shop, "games"))


def _told(shop: Workshop, stage: str) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if done % 1000 == 0 or done == total:
            shop.say(f"{stage}: {done} of {total} clips")

    return told


def _draw(shop: Workshop) -> None:
    from ..checkpoint import save_world
    from ..train.stages import stage_config
    from .calibrate import BUILDER, BUILT_BY, DATA_VALUES, values_note

    backend = _dataset(shop).info["settings"]["motion"]["backend"]
    table, recipe = shop.measured_table(), shop.recipe
    provenance = {
        BUILT_BY: BUILDER,
        "motion backend": backend,
        DATA_VALUES: values_note(table),
        "encoder and decoder trained on": recipe.casting.trained_on,
        "engine trained on": f"{recipe.played.trained_on}, of each clip the first picture",
    }
    facts = {"motion_table": table, "provenance": provenance, "licence": LICENCE}
    save_world(shop.world, shop.recipe.spec, trained_window=stage_config("predict").window, **facts)


def _train_probes(shop: Workshop) -> None:
    def told(done: int, total: int, loss: float) -> None:
        if done % 500 == 1 or done == total:
            shop.say(f"probes: {done}/{total} loss {loss:.3f}")

    facts = build_probes(shop.world, shop.recipe.probes, shop.device, on_loss=told)
    shop.say(f"probes: {facts['accuracy']}")


def _train_scorers(shop: Workshop) -> None:
    def told(done: int, total: int, loss: float) -> None:
        if done % 100 == 1 or done == total:
            shop.say(f"scorers: {done}/{total} loss {loss:.3f}")

    facts = build_scorers(shop.world, shop.recipe.scorers, shop.device, on_loss=told)
    shop.say(f"scorers: {facts['retrieval']}")


def _open(shop: Workshop, dataset: Callable[[Workshop], DatasetFolder]) -> tuple[WorldParts, TrainingData]:
    """The models as far as they are built, and a dataset with its clips on the device."""
    from ..checkpoint import open_world
    from ..data.cache import FeatureStore
    from ..train.material import TrainingData, add_frames
    from ..train.parts import MODELS, WorldParts

    world = open_world(shop.world)
    folder = dataset(shop)
    loaded = WorldParts.load(world)
    tokenizer = GameTokenizer.from_words(vocabulary(), world.spec.state.tokens)
    absent = [name for name in MODELS if getattr(loaded, name) is None]
    fresh = WorldParts.new(world.spec, tokenizer, PROFILES["paper"], models=absent)
    parts = replace(loaded, **{name: getattr(fresh, name) for name in absent})
    data = add_frames(TrainingData(folder, FeatureStore())).to(shop.device)
    return parts, data


def _train(shop: Workshop, stage: str, parts: WorldParts, data: TrainingData, minutes: float) -> StageResult:
    from ..checkpoint import open_world
    from ..train.loop import RunOptions
    from ..train.run import train_stage
    from ..train.stages import stage_config

    def told(done: int, total: int, values: dict[str, float]) -> None:
        if done % max(1, total // 12) < 20 or done == total:
            shop.say(f"{stage}: {done}/{total} " + " ".join(f"{name} {value:.4g}" for name, value in values.items()))

    config = replace(stage_config(ROWS.get(stage, stage)), **shop.recipe.changes.get(stage, {}), minutes=minutes)
    result = train_stage(
        ROWS.get(stage, stage), config, parts, data, shop.folder / "runs" / stage, RunOptions(on_step=told)
    )
    if result.done:
        import torch

        result.parts.save(open_world(shop.world), dtype=torch.float16, max_shard_bytes=SHIPPED_FILE_BYTES)
    return result


def _calibrate(shop: Workshop) -> None:
    """The values that condition the decoder at each level, from shots of training scenes."""
    from ..checkpoint import open_world, save_world
    from .calibrate import CALIBRATED_VALUES, calibrated_table, played_states, values_note

    world = open_world(shop.world)
    engine, encoder = world.load_engine(shop.device), world.load_encoder(shop.device)
    scenes = [row[0] for row in shop.recipe.casting.scenes().values()][: shop.recipe.calibrated_on]
    measured = shop.measured_table()
    states = played_states(scenes, measured, engine, encoder)

    def told(done: int, count: int) -> None:
        shop.say(f"calibrate: {done}/{count}")

    table = calibrated_table(measured, world.load_decoder(shop.device), states, told)
    shop.say(f"calibrate: shots move {measured.values} px when told {table.values}")
    provenance = {**world.provenance, CALIBRATED_VALUES: values_note(table)}
    facts = {"motion_table": table, "provenance": provenance, "licence": world.licence}
    save_world(shop.world, world.spec, trained_window=world.trained_window, **facts)


OWN_STAGES: dict[str, Callable[[Workshop], object]] = {  # those that are no stage of `animegamer_core.train`
    "data": _draw,
    "games": _games,
    "probes": _train_probes,
    "scorers": _train_scorers,
    "calibrate": _calibrate,
}


def export(shop: Workshop, folder: Path) -> list[Path]:
    """What a fresh machine needs to go on, as at most 8 pieces of one archive, of at most 15 MiB each.

    An unfinished stage travels with its last checkpoint, its moments and average in 16 bits; where that is too much,
    without it.
    """
    with tempfile.TemporaryDirectory() as slimmed:
        unfinished = [stage for stage in TRAINED if not shop.is_finished(stage)]
        checkpoints = dict(path for stage in unfinished for path in _slimmed(shop, stage, Path(slimmed)))
        data = packed({**_sources(shop), **checkpoints})
    if len(data) > EXPORT_PIECES * PIECE_BYTES:
        shop.say(f"export: {', '.join(checkpoints)} left out, too large")
        data = packed(_sources(shop))
    return write_pieces(data, folder, "toybox")


def _slimmed(shop: Workshop, stage: str, folder: Path) -> list[tuple[str, Path]]:
    """(name in the archive, folder) of a smaller copy of a stage's last checkpoint, if it has one."""
    from ..train.checkpoints import CHECKPOINTS, list_checkpoints, write_slimmed

    return [
        (path.relative_to(shop.folder).as_posix(), write_slimmed(path, folder / stage))
        for path in list_checkpoints(shop.folder / "runs" / stage / CHECKPOINTS)[-1:]
    ]


def _sources(shop: Workshop) -> dict[str, Path]:
    """What always travels, by its name in the archive."""
    names = (
        "world",
        "stages.json",
        "dataset/turns.jsonl",
        "games/turns.jsonl",
        *(f"runs/{stage}/log.jsonl" for stage in TRAINED),
    )
    return {name: shop.folder / name for name in names}


def main(argv: Sequence[str] | None = None) -> int:
    """The command; exit status 0 when all asked stages are finished, 3 when the time ran out."""
    import torch

    parser = argparse.ArgumentParser(prog="python -m animegamer_core.toybox.build", description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="the build's folder")
    parser.add_argument("--stages", default=",".join(STAGES), help="comma-separated, in order (default: all)")
    parser.add_argument("--minutes", type=float, help="stop, resumable, after so many minutes")
    parser.add_argument("--quick", action="store_true", help="in miniature: tries the machinery, learns nothing")
    parser.add_argument("--export", type=Path, help="afterwards write here what a fresh machine needs to go on")
    args = parser.parse_args(argv)
    unknown = [stage for stage in args.stages.split(",") if stage not in STAGES]
    if unknown:
        raise ValueError(f"unknown stage {unknown[0]!r}; choose from {', '.join(STAGES)}")
    started = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"

    def say(line: str) -> None:
        sys.stderr.write(f"[{time.monotonic() - started:6.1f} s] {line}\n")

    args.work.mkdir(parents=True, exist_ok=True)
    shop = Workshop(args.work, QUICK if args.quick else FULL, device, say)
    finished = build(shop, args.stages.split(","), args.minutes)
    if args.export:
        export(shop, args.export)
    return 0 if finished else 3


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (ValueError, OSError) as error:
        sys.stderr.write(f"build: {error}\n")
        sys.exit(2)
