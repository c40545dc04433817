"""Train and score variants until all are done or the time is over, and carry a work folder between machines."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ...toybox.parcel import PIECE_BYTES, PIECES, packed, unpack, write_pieces
from ...train.adapters import read_stage_file, save_stage_file
from ...train.checkpoints import CHECKPOINTS, list_checkpoints, write_slimmed
from ...train.log import LOG
from ...train.run import RESULT
from ..table.records import differences
from .scores import Examiner, Samples
from .shop import Deadline, Shop
from .variants import VARIANTS, Variant

PARCEL = "ablations"


def run_ablations(
    shop: Shop, examiner: Examiner, variants: Sequence[Variant], deadline: Deadline, score_only: bool = False
) -> bool:
    """Train what is lacking, score what is trained; False where the time ran out, or a score lacks its training.

    Whatever is done already, in this process or another, is passed over; ValueError where that was scored with other
    towers, whose similarities cannot stand in one table with these.
    """
    _check_towers(shop, examiner)
    done = True
    for variant in variants:
        for family in variant.families:
            if shop.scores_file(variant.name, family).is_file():
                continue
            if not score_only and not shop.train(variant, family, deadline):
                shop.say(f"{variant.name}: the time is over; the same command goes on from here")
                return False
            if not all(shop.is_trained(*step) for step in variant.path(family)):
                shop.say(f"{variant.name}: not trained yet, so its {family} are not scored")
                done = False
                continue
            if deadline.over:
                return False
            _score(shop, examiner, variant, family, deadline)
            if not shop.scores_file(variant.name, family).is_file():
                shop.say(
                    f"{variant.name}: the time is over while another process holds it; its {family} are not scored"
                )
                return False
    return done


def _check_towers(shop: Shop, examiner: Examiner) -> None:
    now = _files(None if examiner.towers is None else examiner.towers.facts)
    for path in (shop.scores_file(row.name, family) for row in VARIANTS.values() for family in row.families):
        if path.is_file() and (found := list(differences(_files(Samples.read(path).facts["towers"]), now))):
            raise ValueError(
                f"{path} was scored with other towers: {'; '.join(found[:3])}; give those, or delete it and all others "
                "like it, and they are scored anew"
            )


def _files(towers: Mapping[str, Any] | None) -> dict[str, Any]:
    """The files of towers, with their hashes, which alone decide a similarity; their folders may have other names."""
    return {name: (towers.get(name) or {}).get("files") for name in ("clip", "dreamsim")} if towers else {}


def _score(shop: Shop, examiner: Examiner, variant: Variant, family: str, deadline: Deadline) -> None:
    path = shop.scores_file(variant.name, family)
    with shop.held(f"variants/{variant.name}/scoring", deadline, path.is_file) as mine:  # others may train it meanwhile
        if mine and not path.is_file():
            examiner.score(variant, family).save(path)
            shop.say(f"{variant.name}: {family} scored")


def export(shop: Shop, folder: Path, most: int = PIECES * PIECE_BYTES) -> list[Path]:
    """What a fresh machine needs to go on, in pieces of 15 MiB: the dataset's lines, logs and scores, and of variants
    whose scores are still due their finished stages in 16 bits and their last checkpoint.

    most: bytes in all; of what does not fit, checkpoints stay behind first, then the stages of the last variants.
    """
    with tempfile.TemporaryDirectory() as made:
        sources, bulky = _small(shop), _bulky(shop, Path(made))
        room = most - sum(path.stat().st_size for path in sources.values() if path.is_file())
        for name in sorted(bulky, key=lambda name: CHECKPOINTS in name):
            size = sum(path.stat().st_size for path in (bulky[name], *bulky[name].rglob("*")) if path.is_file())
            if size <= room:
                sources[name] = bulky[name]
                room -= size
            else:
                shop.say(f"export: {name} left out, too large")
        return write_pieces(packed(sources), folder, PARCEL)


def bring(folder: Path, work: Path) -> None:
    """Unpack what `export` wrote into a work folder."""
    work.mkdir(parents=True, exist_ok=True)
    unpack(folder, PARCEL, work)


def _small(shop: Shop) -> dict[str, Path]:
    names = ["job.json", "dataset/turns.jsonl", "games/turns.jsonl"]
    for pattern in ("*/*.json", f"*/runs/*/{LOG}", f"*/runs/*/{RESULT}"):
        names += [path.relative_to(shop.folder).as_posix() for path in sorted((shop.folder / "variants").glob(pattern))]
    return {name: shop.folder / name for name in names}


def _bulky(shop: Shop, made: Path) -> dict[str, Path]:
    """Smaller copies, by their names in the archive, of what variants that are not scored yet go on from."""
    due = [
        (row, family)
        for row in VARIANTS.values()
        for family in row.families
        if not shop.scores_file(row.name, family).is_file()
    ]
    steps = dict.fromkeys(step for row, family in due for step in row.path(family))
    copies = {}
    for variant, stage in steps:
        run = shop.run_of(variant, stage)
        place = run.relative_to(shop.folder).as_posix()
        if shop.is_trained(variant, stage):
            copy = made / variant / f"{stage}.safetensors"
            _halved(shop.stage_file(variant, stage), copy)
            copies[f"{place}/{copy.name}"] = copy
        for path in list_checkpoints(run / CHECKPOINTS)[-1:] if not shop.is_trained(variant, stage) else ():
            copies[f"{place}/{CHECKPOINTS}/{path.name}"] = write_slimmed(path, made / variant / stage)
    return copies


def _halved(file: Path, copy: Path) -> None:
    """A stage file with its tensors in 16 bits."""
    stage, config, tensors = read_stage_file(file)
    half = {name: value.to(torch.float16) for name, value in tensors.items()}
    save_stage_file(copy, stage, config, half, {})
