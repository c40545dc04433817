"""What each training stage reads and trains, and its configuration in each recipe.

Recipe `lora` has the paper's settings for fine-tuning published weights (supplement 3.1; docs/reference.md, training),
for GPUs of 80 GB. `lora24` trains only LoRA, on one GPU of 24 GB. `scratch` is for a small world whose models start
with random weights.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..spec import GUIDANCE, TRAIN_STEPS, ModelSpec, check_steps

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The fixed properties of a stage, independent of its configuration.

    needs: the models that it trains or computes features with. reads: features, as `training_data` names them; `image`
    is of the frame that the encoder reads. makes: those of the models that it creates, with random weights, if a small
    world lacks them. outdates: features that must be computed again after it. captions: whether every clip needs one.
    mixes: whether it trains the layers that compute the decoder's unconditional state. contrasts: whether its loss
    compares the samples of a micro-batch, so that their number changes it. optional: whether a world is complete
    without it.
    """

    needs: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...] = ()
    outdates: tuple[str, ...] = ()
    captions: bool = True
    mixes: bool = False
    contrasts: bool = False
    optional: bool = False


_ENCODED = ("latents", "text", "image")
_PLAYED = ("latents", "states", "predicted")
_REPRESENTED = ("states", "predicted")
_EVERY = ("encoder", "decoder", "engine")
STAGES = {
    "vae": Stage(needs=("decoder",), reads=("frames",), makes=("decoder",), outdates=("latents",), captions=False),
    "towers": Stage(
        needs=("encoder",),
        reads=("first",),
        makes=("encoder",),
        outdates=("text", "image", "image_random", *_REPRESENTED),
        contrasts=True,
    ),
    "warmup": Stage(needs=("encoder", "decoder"), reads=_ENCODED, outdates=_REPRESENTED, mixes=True),
    "joint": Stage(needs=("encoder", "decoder"), reads=_ENCODED, outdates=_REPRESENTED, mixes=True),
    "predict": Stage(needs=("encoder", "engine"), reads=("states",), makes=("engine",), outdates=("predicted",)),
    "adapt": Stage(needs=_EVERY, reads=_PLAYED),
    "distill": Stage(needs=_EVERY, reads=_PLAYED, optional=True),  # for faster sampling
}
ALL_STAGES = tuple(STAGES)
STAGES_IN_ORDER = tuple(name for name, stage in STAGES.items() if not stage.optional)
ADAPTER_STAGES = STAGES_IN_ORDER[2:]  # which train a published world, each from the adapters of those before
OPTIONAL_STAGES = tuple(name for name, stage in STAGES.items() if stage.optional)


def models_of(stage: str, sheets: bool) -> tuple[str, ...]:
    """The models that a stage loads: those that it needs, and a decoder if only its contact sheets need one."""
    needs = STAGES[stage].needs
    return (*needs, "decoder") if sheets and stage == "predict" else needs


HEADS = r"^heads\."  # layers that only training needs, which are always trained

Check = tuple[Callable[[Any], bool], str]  # a check of an option's value, and its description
_AT_LEAST_1: Check = (lambda value: value >= 1, "1 or more")
_AT_LEAST_0: Check = (lambda value: value >= 0, "0 or more")
_CHANCE: Check = (lambda value: 0 <= value <= 1, "0 to 1")
_ABOVE_0: Check = (lambda value: value > 0, "above 0, or inf for no limit")
DISTILLABLE = tuple(name for name, row in GUIDANCE.items() if row.distillable)
_RATIO: Check = (lambda value: value == 0 or value > 1, "above 1, or 0")
_RATE: Check = (lambda value: 0 < value < 1, "above 0 and below 1")
_DECAY: Check = (lambda value: 0 <= value < 1, "0 or more and below 1")
_MOST_STEPS: Check = (lambda value: value <= TRAIN_STEPS, f"{TRAIN_STEPS} at most")


def _option(default: Any, text: str, *checks: Check, choices: tuple[str, ...] = ()) -> Any:
    """A field with its help text for the command line, and the checks or choices for its values."""
    return dataclasses.field(default=default, metadata={"help": text, "checks": checks, "choices": choices})


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """The settings of one stage; ValueError for an impossible value.

    Names of parameters start with encoder., decoder. or engine.
    """

    trainable: tuple[str, ...] = _option((), "regular expressions for names of parameters to train; the rest is frozen")
    lora_rank: int = _option(0, "LoRA rank; 0: no LoRA", _AT_LEAST_0)
    lora_alpha: float = _option(1.0, "the LoRA is scaled by alpha / rank")
    lora_dropout: float = _option(0.0, "dropout on the LoRA's inputs")
    lora_targets: tuple[str, ...] = _option((), "regular expressions for names of linear layers that get a LoRA")

    steps: int = _option(1000, "optimizer steps for the whole stage", _AT_LEAST_1)
    batch: int = _option(64, "clips (or games) per optimizer step, over all processes", _AT_LEAST_1)
    per_card: int = _option(0, "most samples of a step computed at a time, to save memory; 0: no limit", _AT_LEAST_0)
    minutes: float = _option(0.0, "save a checkpoint and stop after this many minutes; 0: no limit", _AT_LEAST_0)
    seed: int = _option(0, "seed for new weights, sampling order and noise")

    lr: float = _option(1e-3, "peak learning rate", _RATE)
    lr_warmup: int = _option(100, "warm-up steps of the learning rate", _AT_LEAST_0)
    weight_decay: float = _option(0.01, "weight decay for matrices; vectors have none")
    beta2: float = _option(0.99, "AdamW's beta2")
    muon: float = _option(0.0, "train matrices and filters by Muon with this times lr; 0: AdamW for all", _AT_LEAST_0)
    clip: float = _option(1.0, "gradient norm above which gradients are clipped", _ABOVE_0)
    ema: float = _option(0.999, "decay of the weights' moving average (EMA); 0: no average", _DECAY)

    precision: str = _option(
        "bf16",
        "bf16: autocast on a GPU; native: also on a CPU that multiplies bf16 itself; no: float32 everywhere",
        choices=("bf16", "native", "no"),
    )
    halve_frozen: bool = _option(False, "keep frozen weights in bf16 on a GPU, where autocast computes in bf16 anyway")
    checkpointing: bool = _option(False, "recompute activations in the backward pass, to save memory")
    compile: bool = _option(False, "compile the transformer; slow start, faster steps")

    drop_text: float = _option(0.0, "probability of replacing a sample's motion text with ''", _CHANCE)
    drop_text_features: float = _option(0.0, "probability of zeroing a sample's text features", _CHANCE)
    drop_image: float = _option(0.0, "probability of zeroing a sample's image features", _CHANCE)
    drop_both: float = _option(0.0, "probability of zeroing both, which is guidance's unconditional input", _CHANCE)
    encoder_frame: str = _option("first", "frame that the shot encoder reads", choices=("first", "random"))
    motion_scope: bool = _option(True, "condition the decoder on each clip's motion value; off: on one for all")
    played_steps: float = _option(0.0, "probability of a timestep that play takes, instead of any", _CHANCE)
    own_steps: float = _option(
        0.0, "last part of the stage that also reads what the decoder drew, for a world of few steps", _CHANCE
    )
    true_states: float = _option(0.0, "probability that adaptation reads the true representation", _CHANCE)

    crop: tuple[int, ...] = _option((), "height and width of the VAE's crops, multiples of 8; none: whole frames")
    moving: float = _option(
        1.0, "weight, in losses, of pixels (or latents) that change, and of those around", _AT_LEAST_1
    )
    mse: float = _option(1.0, "weight of the VAE's mean squared error")
    edge: float = _option(0.5, "weight of the L1 error of differences between neighbouring pixels")
    edge_scales: int = _option(1, "number of scales for this loss: full size, half, quarter ...", _AT_LEAST_1)
    motion: float = _option(0.0, "weight of the L1 error of differences between consecutive frames")
    kl: float = _option(1e-6, "weight of the VAE's KL divergence from a normal distribution")
    latent_noise: float = _option(
        0.0, "most noise, in deviation, that is added to a clip's latents before the VAE draws it again", _AT_LEAST_0
    )
    pixels: float = _option(0.0, "weight of the loss that reconstructs patches from image features")

    alpha: float = _option(1.0, "weight of the representation's squared error")
    beta: float = _option(0.0, "weight of 1 - cosine of the representation")
    window: int = _option(4, "maximum past turns in a prompt; each step draws a number from 0 to this", _AT_LEAST_0)
    recall: float = _option(0.0, "probability of replacing a prompt's oldest turns, as in memory recall", _CHANCE)
    history_noise: float = _option(0.0, "maximum standard deviation of the noise on past representations")
    teacher_guidance: str = _option("cosine", "guidance schedule that stage distill learns", choices=DISTILLABLE)
    timesteps: tuple[int, ...] = _option((), "timesteps that stage distill teaches, such as 999 908; none: all")
    teacher_steps: int = _option(0, "steps of a few-step student's teacher; 0: the world's", _AT_LEAST_0, _MOST_STEPS)
    pairs: int = _option(1000, "steps by the teacher's shots, before a few-step student is matched", _AT_LEAST_0)
    matching_lr: float = _option(1e-5, "learning rate while a few-step student is matched", _RATE)
    fake_updates: int = _option(5, "updates of the fake score for each of the student's", _AT_LEAST_1)
    gan: float = _option(0.03, "weight of a few-step student's loss against the judge of clips", _AT_LEAST_0)
    watch_every: int = _option(100, "matching steps between comparisons with the teacher's shots", _AT_LEAST_1)
    collapse: float = _option(2.5, "largest ratio of their motion, chroma, variance; more stops; 0: no limit", _RATIO)

    log_every: int = _option(20, "steps between log lines", _AT_LEAST_1)
    save_every: int = _option(500, "steps between checkpoints", _AT_LEAST_1)
    validate_every: int = _option(0, "steps between validation losses on held-out games; 0: none", _AT_LEAST_0)
    shots_every: int = _option(0, "steps between contact sheets of shots; 0: none", _AT_LEAST_0)
    shots_steps: int = _option(
        10, "sampling steps for those shots; the world's, if these are fewer", _AT_LEAST_1, _MOST_STEPS
    )

    def __post_init__(self) -> None:
        for option in dataclasses.fields(self):
            value, choices = getattr(self, option.name), option.metadata["choices"]
            for allows, expected in option.metadata["checks"]:
                if not allows(value):
                    raise ValueError(f"{option.name} is {value}; expected {expected}")
            if choices and value not in choices:
                raise ValueError(f"{option.name} is {value!r}; choose {' or '.join(choices)}")
        if self.crop and (len(self.crop) != 2 or any(side < 8 or side % 8 for side in self.crop)):
            raise ValueError(f"crop is {self.crop}; expected a height and a width, multiples of 8, or none")
        if self.timesteps:
            check_steps(self.timesteps)
            if self.pairs > self.steps:
                raise ValueError(f"pairs is {self.pairs}, more than all {self.steps} steps; give fewer pairs")
        if self.lora_rank and not self.lora_targets:
            raise ValueError(f"lora_rank is {self.lora_rank}, but this stage has no lora_targets; give 0")

    def matches(self, step: int) -> bool:
        """Whether step 0, 1, ... matches distributions: of a few-step student's, those after `pairs`."""
        return bool(self.timesteps) and step >= self.pairs

    def keeps_frozen_in_bf16(self, device: torch.device) -> bool:
        """Whether frozen weights are kept in bf16, which is so only if autocast computes in bf16 anyway."""
        return self.halve_frozen and self.precision != "no" and device.type != "cpu"

    def micro_batches(self, processes: int) -> int:
        """The number of micro-batches into which each process splits its part of a batch, for `per_card`."""
        samples = self.batch // processes
        fewest = -(-samples // self.per_card) if self.per_card else 1
        return next(count for count in range(fewest, samples + 1) if samples % count == 0)


_MIX = r"^encoder\.(text|image)_(proj|norm|attention)\."
_SCOPE = r"^decoder\.transformer\.ofs_embedding\."
_MODULATION = r"^decoder\.transformer\.transformer_blocks\.\d+\.norm[12]\.linear\."  # adaLN_modulations as released
_ATTENTION = (r"^decoder\.transformer\.transformer_blocks\.\d+\.attn1\.(to_q|to_k|to_v|to_out\.0)$",)
_PROJECTIONS = (r"^engine\.llm\.model\.layers\.\d+\.(self_attn\.[qkvo]_proj|mlp\.(gate|up|down)_proj)$",)

_WARMUP = StageConfig(
    trainable=(_MIX, _SCOPE),
    steps=10_000,
    batch=24,
    lr=2e-4,
    beta2=0.95,
    ema=0.0,
    halve_frozen=True,
    checkpointing=True,
    per_card=4,
    drop_text=0.05,
    drop_text_features=0.1,
    drop_image=0.05,
)
_JOINT = replace(
    _WARMUP,
    trainable=(_MIX, _SCOPE, _MODULATION),
    lora_rank=64,
    lora_alpha=1.0,  # the released LoRA is scaled by 1/64 (docs/reference.md, LoRA)
    lora_targets=_ATTENTION,
    steps=80_000,
)
LORA: dict[str, StageConfig] = {
    "vae": StageConfig(trainable=(r"^decoder\.vae\.",), steps=10_000, batch=8, lr=1e-5, checkpointing=True),
    "towers": StageConfig(trainable=(r"^encoder\.(text|image)_tower\.",), steps=10_000, batch=256, lr=1e-5),
    "warmup": _WARMUP,
    "joint": _JOINT,
    "predict": StageConfig(
        trainable=(r"^engine\.project_(in|out)\.", r"embed_tokens|lm_head", r"^engine\.llm\..*norm"),
        lora_rank=32,
        lora_alpha=32.0,
        lora_dropout=0.05,
        lora_targets=_PROJECTIONS,
        steps=15_000,
        batch=384,  # 16 on each of 24 cards
        per_card=4,
        halve_frozen=True,
        lr=5e-5,
        ema=0.0,
        checkpointing=True,
    ),
    "adapt": replace(_JOINT, trainable=(_SCOPE, _MODULATION), steps=10_000, lr=5e-5),
    "distill": replace(_JOINT, trainable=(), steps=5_000, lr=5e-5),  # the teacher is the decoder without the LoRA
}

_LORA_ONLY: dict[str, Any] = {"trainable": (), "batch": 8, "per_card": 1}
LORA24: dict[str, StageConfig] = {
    "warmup": replace(_WARMUP, batch=8, per_card=1),  # trains 18 M values, and no LoRA
    "joint": replace(_JOINT, **_LORA_ONLY),
    "predict": replace(LORA["predict"], **_LORA_ONLY),
    "adapt": replace(LORA["adapt"], **_LORA_ONLY),
    "distill": replace(LORA["distill"], **_LORA_ONLY),
}

_SCRATCH_JOINT = StageConfig(
    trainable=(_MIX, r"^decoder\.transformer\."),
    steps=6000,
    batch=256,
    lr=1.5e-3,
    drop_text=0.05,
    drop_text_features=0.05,
    drop_image=0.05,
    drop_both=0.1,  # guidance needs both at zero; 0.5 % of samples, as published, are too few here
    validate_every=500,
)
_SCRATCH: dict[str, StageConfig] = {
    "vae": StageConfig(trainable=(r"^decoder\.vae\.",), steps=4000, batch=32, lr=1e-3),
    "towers": StageConfig(trainable=(r"^encoder\.(text|image)_tower\.",), steps=2000, batch=512, lr=1e-3, pixels=1.0),
    "warmup": replace(_SCRATCH_JOINT, steps=500),  # the decoder has random weights, so it is trained too
    "joint": _SCRATCH_JOINT,
    "predict": StageConfig(
        trainable=(r"^engine\.",), steps=6000, batch=128, lr=1e-3, history_noise=0.3, validate_every=500
    ),
    "adapt": replace(_SCRATCH_JOINT, trainable=(r"^decoder\.transformer\.",), steps=2000, lr=3e-4),
    "distill": replace(_SCRATCH_JOINT, trainable=(r"^decoder\.transformer\.",), steps=2000, lr=3e-4, drop_both=0.0),
}
RECIPES = {"lora": LORA, "lora24": LORA24, "scratch": _SCRATCH}
SCRATCH = "scratch"
ALL = "all"  # in the place of a stage: all of the recipe
SCRATCH_SPECS = ("tiny", "toybox")  # specs without published weights to start with
# These save memory at the published sizes, but only cost time for a small world.
_SMALL_WORLD: dict[str, Any] = {"per_card": 0, "checkpointing": False}


def stage_config(stage: str, recipe: str = "scratch", spec: ModelSpec | None = None) -> StageConfig:
    """The row of a stage in a recipe. spec: of the world that is trained. ValueError if the recipe lacks the stage."""
    if stage not in RECIPES[recipe]:
        raise ValueError(f"recipe {recipe!r} has no stage {stage!r}, only {', '.join(RECIPES[recipe])}; choose lora")
    row = RECIPES[recipe][stage]
    if spec is not None and spec.name in SCRATCH_SPECS:
        row = replace(row, **_SMALL_WORLD)
    return row


def film_plan(clips: int) -> dict[str, StageConfig]:
    """The stages that make a world of so many clips of one film, beginning with the Toybox's weights.

    145 clips get about what docs/film-world.md measured. 8 clips were a mosaic with 84 steps of joint; with these, 8
    and 80 clips come back as the film has them, but soft. Numbers for more than 145 clips are not tried.
    """
    batch = min(64, max(4, 1 << (clips // 2).bit_length() - 1))
    steps = {"joint": 35 * clips, "predict": 10 * clips, "adapt": 8 * clips}
    most, least = {"joint": 10_000, "predict": 3000, "adapt": 2400}, {"joint": 1000, "predict": 300, "adapt": 240}
    rows: dict[str, Any] = {
        "joint": {"lr": 6e-4, "batch": batch},
        "predict": {"lr": 5e-4, "batch": min(batch, 16)},
        "adapt": {"lr": 2e-4, "batch": batch, "true_states": 0.5},
    }
    for stage, row in rows.items():
        row |= {"steps": min(most[stage], max(least[stage], steps[stage])), "precision": "native"}
        rows[stage] = replace(_SCRATCH[stage], **_SMALL_WORLD, **row, validate_every=0)
    return rows


@dataclass(frozen=True, kw_only=True)
class TrainRequest:
    """What a run of `train` is asked for; the command line is made from these fields."""

    stage: str
    dataset: Path
    """Dataset folder."""
    world: str
    """World to start from: a folder, created if it is new; a small one is trained in place (see --recipe). 'toybox'
    also works, with a recipe that does not change it."""
    out: Path
    """Folder for log, checkpoints and the adapter."""
    spec: str | None = None
    """Sizes of a new world: tiny, toybox, release."""
    resume: bool = False
    """Continue the run in --out."""
    recipe: Literal["lora", "lora24", "scratch"] | None = None
    """lora: as in the paper, for GPUs with 80 GB; lora24: for one with 24 GB; both write an adapter and do not change
    the world. scratch: train all weights, written into the world folder. Unset: scratch for specs tiny and toybox, else
    lora."""
    start: tuple[Path, ...] = ()
    """Adapters to start from, in order."""
    profile: Literal["paper", "reference"] | None = None
    """Prompt format in training, and then in play; unset: what the engine was trained with, or paper if this program
    has not trained it yet."""
    cache: Path | None = None
    """Folder of computed features, which stages may share; unset: one in --out."""
    stages: str | None = None
    """train all: only these stages, separated by commas."""
    set: tuple[str, ...] = ()
    """train all: options of one stage as STAGE.OPTION=VALUE, such as joint.steps=2000; separate several values of one
    option by spaces, in quotes."""
    plan: bool = False
    """train all: print the plan and stop."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Values of StageConfig by name."""

    def config(self, recipe: str, spec: ModelSpec | None = None) -> StageConfig:
        """The recipe's row for the stage, with the options applied. spec: of the world that is trained."""
        return replace(stage_config(self.stage, recipe, spec), **self.options)


def matching(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The names that match any pattern, in order; ValueError for an invalid regular expression."""
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as error:
            raise ValueError(f"pattern {pattern!r} is not a valid regular expression ({error}); correct it") from error
    return tuple(name for name in names if any(pattern.search(name) for pattern in compiled))
