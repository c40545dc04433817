"""The verbs that make worlds: `convert` and `fetch` from published files, `new` from free base models."""
# ruff: noqa: T201

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from ..data.dataset import DatasetFolder
from ..messages import shell_word
from ..spec import PROGRAM
from ..weights import open_world
from ..weights.convert import convert, new_world
from ..weights.downloads import LANGUAGE_MODELS, BaseFolders, find_base
from ..weights.fetch import BASE, FetchPlan, fetch, plan_fetch, plan_text
from .options import Flag, Progress, confirmed, one_of

ADDED_BY = {"text_tower": ("text encoder", "--t5 DIR"), "image_tower": ("image encoder", "--clip DIR")}


@dataclass(frozen=True, kw_only=True)
class Convert:
    src: Positional[Path]
    """Folder with MLLM-*/, VDM_Decoder-*/, VAE and Mistral."""
    out: Path
    """World folder to create or complete."""
    name: str | None = None
    """Which world, if SRC holds several: qiqi or sosuke."""

    def run(self) -> int:
        """Convert; print the licence notice and the parts that are missing."""
        show = Progress().show_bytes
        world = convert(self.src, self.out, show, name=self.name)
        print(f"world {world.spec.name!r} is in {world.folder}", *world.missing(), "", world.licence, sep="\n", end="")
        return 0


@dataclass(frozen=True, kw_only=True)
class Fetch:
    world: Positional[str | None] = None
    """qiqi or sosuke."""
    base: Flag = False
    """The free base models from which `new` makes a world."""
    mistral: Annotated[str, one_of([model.name for model in LANGUAGE_MODELS])] = LANGUAGE_MODELS[0].name
    """With --base: the language model."""
    out: Path | None = None
    """The world folder to make, or the folder for the base models; default: worlds/WORLD, or downloads."""
    towers: Flag = False
    """Also the text and image encoders (T5, CLIP), needed only to encode shots and to train; --base includes them."""
    yes: Flag = False
    """Do not ask."""

    def run(self) -> int:
        """Print what will be downloaded, ask, download; 1 if the answer is no."""
        if self.base == (self.world is not None):
            raise ValueError("give either the name of a world (qiqi, sosuke) or --base")
        what = self.world.lower() if self.world else BASE
        out = self.out or Path("downloads" if self.base else f"worlds/{what}")
        plan = plan_fetch(what, out, encoders=self.towers, mistral=self.mistral)
        print(plan_text(plan), end="")
        if plan.steps and not self.yes and not confirmed("Download this, under these licences?"):
            print("Nothing was downloaded.")
            return 1
        progress, done = Progress(), 0

        def count(new: int, what: str) -> None:
            nonlocal done
            done += new
            progress.show_bytes(done, plan.bytes, what)

        fetch(plan, count)
        print(f"All files are there. {_next_step(plan)}")
        return 0


def _next_step(plan: FetchPlan) -> str:
    """The command that uses what was downloaded."""
    if plan.world != BASE:
        return f"Play with: {PROGRAM} play --world {shell_word(plan.out)}"
    folders = vars(find_base(plan.out)).items()
    options = " ".join(f"--{name} {shell_word(path)}" for name, path in folders if path is not None)
    return f"Make a world with: {PROGRAM} new {options} --out worlds/mine"


@dataclass(frozen=True, kw_only=True)
class New:
    out: Path
    """World folder to create or complete."""
    cogvideox: Path | None = None
    """CogVideoX-2b in the diffusers layout."""
    mistral: Path | None = None
    """Mistral-7B-Instruct-v0.1, v0.2 or v0.3 for transformers."""
    t5: Path | None = None
    """t5-v1_1-xxl; unset: CogVideoX-2b's own text_encoder."""
    clip: Path | None = None
    """CLIP-ViT-B-16-laion2B-s34B-b88K, needed to train."""
    start: Annotated[str | None, arg(name="from")] = None
    """Instead of base models: begin with a small world, such as toybox."""
    dataset: Path | None = None
    """With --from: the dataset whose words the new world knows too."""
    seed: int = 0
    """Seed of the random initial weights."""

    def run(self) -> int:
        """Make the world; print where it is, what it lacks, its licences and the next command."""
        if self.start is not None:
            return self._extend()
        if self.cogvideox is None or self.mistral is None or self.dataset is not None:
            raise ValueError("give --cogvideox and --mistral, or --from and --dataset")
        folders, show = BaseFolders(self.cogvideox, self.mistral, self.t5, self.clip), Progress().show_bytes
        world = new_world(folders, self.out, show, seed=self.seed)
        size = sum(note.bytes for note in world.files.values()) / 1e9
        print(f"world {world.spec.name!r} is in {world.folder}, {size:.2f} GB; it has not been trained on a film yet")
        for part, (name, option) in ADDED_BY.items():
            if not world.has(part):
                print(f"its {name} is missing, which training needs; run this again with {option}")
        next_step = f"{PROGRAM} train warmup --dataset DATASET --world {shell_word(world.folder)} --out runs/warmup"
        print("", world.licence, f"Next: {next_step}", sep="\n")
        return 0

    def _extend(self) -> int:
        """Make a world that begins with another one's weights."""
        from ..train.world_setup import extended_world

        if self.dataset is None or any((self.cogvideox, self.mistral, self.t5, self.clip)):
            raise ValueError("--from needs --dataset, and takes none of --cogvideox, --mistral, --t5 and --clip")
        world = extended_world(open_world(self.start), DatasetFolder.open(self.dataset), self.out, self.seed)
        folder, dataset = shell_word(world.folder), shell_word(self.dataset)
        print(f"{world.folder} has the weights of {self.start}, and knows the words of {self.dataset} too")
        print(f"Next: {PROGRAM} train all --dataset {dataset} --world {folder} --out runs/{world.folder.name}")
        return 0
