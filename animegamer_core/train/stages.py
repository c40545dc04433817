"""What each training stage is, reads and trains: its facts, and its configuration in each recipe.

Recipe `lora` holds the paper's rows for fine-tuning published weights (supplement 3.1, reference-facts 10), for cards
of 80 GB; `lora24` trains low-rank updates alone, on one card of 24 GB; `scratch` holds the rows for a small world whose
parts begin with random weights.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Container, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..models import MOST_STEPS


@dataclass(frozen=True, kw_only=True)
class Stage:
    """What a stage is, whatever its configuration.

    needs: the models that it trains or computes features with. makes: those of them that a small world need not have
    yet; they begin with random weights. reads: features, as `material` names them; `image` is of the frame that the
    encoder reads. outdates: features that its result computes anew. after: the stages whose files it
    begins from where a published world is trained; None where its published weights are left as they are. captions:
    whether clips without one are refused. games: whether it reads games, not clips alone. mixes: whether it trains what
    the decoder's representation of nothing is computed from. contrasts: whether samples of a part are told from one
    another, so that parts of another size have other losses. optional: whether a world is whole without it. baseline:
    whether it trains what a world is compared with, and no world.
    """

    needs: tuple[str, ...]
    reads: tuple[str, ...]
    makes: tuple[str, ...] = ()
    outdates: tuple[str, ...] = ()
    after: tuple[str, ...] | None = None
    captions: bool = True
    games: bool = False
    mixes: bool = False
    contrasts: bool = False
    optional: bool = False
    baseline: bool = False

    @property
    def borrows_decoder(self) -> bool:
        """Whether a decoder that no step reads draws its contact sheets."""
        return "states" in self.reads and "decoder" not in self.needs

    @property
    def trains_engine(self) -> bool:
        """Whether its result is how an engine reads turns."""
        return "engine" in self.makes

    @property
    def conditions_on_motion(self) -> bool:
        """Whether it trains the decoder to follow motion values, so that its result belongs to a motion table."""
        return "latents" in self.reads and not self.baseline

    @property
    def reads_representations(self) -> bool:
        """Whether it reads what a trained encoder makes of shots, or an engine that learned that."""
        return bool({"states", "predicted"} & set(self.reads))


_ENCODED = ("latents", "text", "image")
_PLAYED = ("latents", "states", "predicted")
_EVERY = ("encoder", "decoder", "engine")
STAGES: dict[str, Stage] = {
    "vae": Stage(needs=("decoder",), reads=("frames",), makes=("decoder",), outdates=("latents",), captions=False),
    "towers": Stage(
        needs=("encoder",),
        reads=("frames",),
        makes=("encoder",),
        outdates=("text", "image", "image_random", "states", "predicted"),
        contrasts=True,
    ),
    "warmup": Stage(
        needs=("encoder", "decoder"), reads=_ENCODED, outdates=("states", "predicted"), after=(), mixes=True
    ),
    "joint": Stage(
        needs=("encoder", "decoder"), reads=_ENCODED, outdates=("states", "predicted"), after=("warmup",), mixes=True
    ),
    "predict": Stage(
        needs=("encoder", "engine"),
        reads=("states",),
        makes=("engine",),
        outdates=("predicted",),
        after=("joint",),
        games=True,
    ),
    "adapt": Stage(needs=_EVERY, reads=_PLAYED, after=("joint", "predict"), games=True),
    "distill": Stage(needs=_EVERY, reads=_PLAYED, games=True, optional=True),  # for a world that shall draw faster
    "gc": Stage(needs=("decoder",), reads=("latents", "instruction"), baseline=True),
}
ALL_STAGES = tuple(STAGES)
STAGES_IN_ORDER = tuple(name for name, stage in STAGES.items() if not (stage.optional or stage.baseline))
OPTIONAL_STAGES = tuple(name for name, stage in STAGES.items() if stage.optional)
BASELINE_STAGES = tuple(name for name, stage in STAGES.items() if stage.baseline)


def _option(default: Any, text: str) -> Any:
    """A field with the sentence that documents it on the command line."""
    return dataclasses.field(default=default, metadata={"help": text})


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """One stage of training. Names of parameters begin with encoder., decoder., engine. or heads."""

    trainable: tuple[str, ...] = _option((), "regular expressions, searched in parameter names; the rest is frozen")
    lora_rank: int = _option(0, "rank of the low-rank updates; 0 trains none")
    lora_alpha: float = _option(1.0, "updates are scaled by alpha / rank")
    lora_dropout: float = _option(0.0, "dropout in front of the low-rank updates")
    lora_targets: tuple[str, ...] = _option((), "regular expressions, searched in names of linear layers")

    steps: int = _option(1000, "optimizer steps of the whole stage")
    batch: int = _option(64, "clips (or games) of one optimizer step, over all processes")
    accumulation: int = _option(1, "parts that a process splits its share of a batch into, to save memory")
    per_card: int = _option(0, "most samples that a process computes at a time; raises accumulation; 0: no limit")
    minutes: float = _option(0.0, "save a checkpoint and stop after so many minutes; 0 sets no limit")
    seed: int = _option(0, "decides weights, order and noise")

    lr: float = _option(1e-3, "highest learning rate")
    lr_floor: float = _option(0.02, "learning rate at the end, as a share of the highest")
    lr_warmup: int = _option(100, "steps over which the learning rate rises")
    optimizer: str = _option("adamw", "adamw: fused on a GPU; adamw8bit: moments in 8 bits (needs torchao)")
    weight_decay: float = _option(0.01, "of matrices; vectors are not decayed")
    beta2: float = _option(0.99, "AdamW's second momentum")
    clip: float = _option(1.0, "greatest norm of the gradient")
    ema: float = _option(0.999, "share of the old average kept each step; 0 keeps the last weights")

    precision: str = _option("bf16", "bf16: autocast on a GPU; no: float32 everywhere")
    halve_frozen: bool = _option(False, "keep frozen weights in bf16 on a GPU, which autocast computes with anyhow")
    checkpointing: bool = _option(False, "recompute activations in the backward pass, to save memory")
    compile: bool = _option(False, "compile the transformer: slow start, faster steps")
    deterministic: bool = _option(False, "sum in one order on a GPU, so that a run repeats to the digit; slower")

    drop_text: float = _option(0.0, "chance that a sample's motion text is read as ''")
    drop_text_features: float = _option(0.0, "chance that a sample's text features are zero")
    drop_image: float = _option(0.0, "chance that a sample's image features are zero")
    drop_both: float = _option(0.0, "chance that both are zero, which guidance reads as unconditional")
    encoder_frame: str = _option("first", "the frame that the shot encoder reads: first, or random")
    motion_scope: bool = _option(True, "tell the decoder each clip's motion value; off: the same value for all")
    sample_latents: bool = _option(True, "draw latents from the VAE's posterior; off: take its mean")
    band_timesteps: bool = _option(True, "each sample of a batch draws its timestep from a band of its own")

    l1: float = _option(1.0, "weight of the VAE's mean absolute error")
    mse: float = _option(1.0, "weight of the VAE's mean squared error")
    edge: float = _option(0.5, "weight of the mean absolute error of differences between neighbouring pixels")
    motion: float = _option(0.0, "weight of the mean absolute error of differences between consecutive frames")
    kl: float = _option(1e-6, "weight of the VAE's divergence from a normal distribution")
    clip_lengths: tuple[int, ...] = _option((17,), "frames of the VAE's clips; one length is drawn each step")
    pixels: float = _option(0.0, "weight of rebuilding patches from image features, beside the contrastive loss")

    cross_entropy: float = _option(1.0, "weight of the state block's tokens")
    alpha: float = _option(1.0, "weight of the representation's squared error")
    beta: float = _option(0.0, "weight of 1 - cosine of the representation")
    window: int = _option(4, "past turns of the longest game; each step draws 0 to so many")
    history_noise: float = _option(0.0, "highest standard deviation of noise on past representations")
    history_own: float = _option(
        0.0, "chance that a past representation is the engine's own; for an engine that is trained already"
    )
    teacher_guidance: str = _option("cosine", "what stage distill makes of two passes one of: cosine, or constant")
    free_running: bool = _option(False, "adaptation reads predictions of games that the engine played alone")

    log_every: int = _option(20, "steps between lines of the log")
    save_every: int = _option(500, "steps between checkpoints")
    validate_every: int = _option(0, "steps between losses on held-out games; 0 measures none")
    shots_every: int = _option(0, "steps between contact sheets of shots from the weights so far; 0 draws none")
    shots_steps: int = _option(10, "sampler steps of those shots")
    shard_mb: int = _option(1024, "largest file of a checkpoint, in MiB")

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "accumulation", "log_every", "save_every", "shots_steps", "shard_mb"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        if self.shots_steps > MOST_STEPS:
            raise ValueError(f"shots_steps is {self.shots_steps}; expected {MOST_STEPS} at most")
        for name in ("lora_rank", "per_card", "minutes", "validate_every", "shots_every", "window", "lr_warmup"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        for name in ("drop_text", "drop_text_features", "drop_image", "drop_both", "history_own", "lr_floor"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 to 1")
        for name, allowed in (
            ("precision", ("bf16", "no")),
            ("encoder_frame", ("first", "random")),
            ("teacher_guidance", ("cosine", "constant")),
            ("optimizer", ("adamw", "adamw8bit")),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(f"{name} is {getattr(self, name)!r}; choose {' or '.join(allowed)}")
        if self.lora_rank and not self.lora_targets:
            raise ValueError(
                f"lora_rank is {self.lora_rank}, but no layer takes low-rank updates in this stage; give 0"
            )
        if not self.clip > 0:
            raise ValueError(f"clip is {self.clip}, with which nothing trains; expected above 0, or inf for no limit")
        if not self.clip_lengths:
            raise ValueError("clip_lengths is empty; give at least one number of frames")
        if not 0 < self.lr < 1 or not 0 <= self.ema < 1:
            raise ValueError(f"lr {self.lr} and ema {self.ema} must lie between 0 and 1")

    def parts(self, processes: int) -> int:
        """Into how many parts each process splits its share of a batch: `accumulation`, or more to keep `per_card`."""
        share = self.batch // processes
        smallest = -(-share // self.per_card) if self.per_card else 1
        return next(
            parts
            for parts in range(self.accumulation, share + 1)
            if share % parts == 0 and parts % self.accumulation == 0 and parts >= smallest
        )


_MIX = r"^encoder\.(text|image)_(proj|norm|attention)\."
_SCOPE = r"^decoder\.transformer\.ofs_embedding\."
_MODULATION = r"^decoder\.transformer\.transformer_blocks\.\d+\.norm[12]\.linear\."  # reference: adaLN_modulations
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
    lora_alpha=1.0,  # the released updates are scaled by 1/64 (reference-facts 5.5)
    lora_targets=_ATTENTION,
    steps=80_000,
)
LORA: dict[str, StageConfig] = {
    "vae": StageConfig(trainable=(r"^decoder\.vae\.",), steps=10_000, batch=8, lr=1e-5, checkpointing=True),
    "towers": StageConfig(trainable=(r"^encoder\.(text|image)_tower\.", r"^heads\."), steps=10_000, batch=256, lr=1e-5),
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
        accumulation=16,
        per_card=4,
        halve_frozen=True,
        lr=5e-5,
        ema=0.0,
        checkpointing=True,
    ),
    "adapt": replace(_JOINT, trainable=(_SCOPE, _MODULATION), steps=10_000, lr=5e-5),
    "distill": replace(_JOINT, trainable=(), steps=5_000, lr=5e-5),  # the teacher is the decoder without the updates
    "gc": replace(_JOINT, trainable=(), drop_image=0.0),  # "the same configuration" as D_a's (supplement 3.2)
}

_UPDATES_ALONE: dict[str, Any] = {"trainable": (), "batch": 8, "accumulation": 1, "per_card": 1}
LORA24: dict[str, StageConfig] = {
    "warmup": replace(_WARMUP, batch=8, per_card=1),  # trains 18 M values, and has no updates
    "joint": replace(_JOINT, **_UPDATES_ALONE),
    "predict": replace(LORA["predict"], **_UPDATES_ALONE),
    "adapt": replace(LORA["adapt"], **_UPDATES_ALONE),
    "distill": replace(LORA["distill"], **_UPDATES_ALONE),
}

_SCRATCH_JOINT = StageConfig(
    trainable=(_MIX, r"^decoder\.transformer\."),
    steps=6000,
    batch=256,
    lr=1.5e-3,
    drop_text=0.05,
    drop_text_features=0.05,
    drop_image=0.05,
    drop_both=0.1,  # guidance reads both as zero; 0.5 % of samples, as published, is too few here
    validate_every=500,
)
SCRATCH: dict[str, StageConfig] = {
    "vae": StageConfig(trainable=(r"^decoder\.vae\.",), steps=4000, batch=32, lr=1e-3),
    "towers": StageConfig(
        trainable=(r"^encoder\.(text|image)_tower\.", r"^heads\."), steps=2000, batch=512, lr=1e-3, pixels=1.0
    ),
    "warmup": replace(_SCRATCH_JOINT, steps=500),  # the decoder knows nothing yet, so it learns along
    "joint": _SCRATCH_JOINT,
    "predict": StageConfig(
        trainable=(r"^engine\.",), steps=6000, batch=128, lr=1e-3, history_noise=0.3, validate_every=500
    ),
    "adapt": replace(_SCRATCH_JOINT, trainable=(r"^decoder\.transformer\.",), steps=2000, lr=3e-4),
    "distill": replace(_SCRATCH_JOINT, trainable=(r"^decoder\.transformer\.",), steps=2000, lr=3e-4, drop_both=0.0),
    "gc": replace(
        _SCRATCH_JOINT,
        trainable=(r"^decoder\.transformer\.",),
        drop_text=_SCRATCH_JOINT.drop_both,  # stock guidance reads '' as unconditional
        drop_text_features=0.0,
        drop_image=0.0,
        drop_both=0.0,
    ),
}
RECIPES = {"lora": LORA, "lora24": LORA24, "scratch": SCRATCH}
SCRATCH_SPECS = ("tiny", "toybox")  # specs without published weights to begin with
# What saves memory at the published sizes costs a small world time.
ROOMY: dict[str, Any] = {"per_card": 0, "checkpointing": False}

# Learning rates outside these bands hardly ever train well: (low, high) for low-rank updates and for whole weights.
_LR_BANDS = {"lora": (1e-5, 1e-3), "whole": (1e-5, 5e-3)}


def stage_config(stage: str, recipe: str = "scratch", spec: str = "") -> StageConfig:
    """The row of a stage, for the world of a spec of that name where one is given; ValueError lists the stages, the
    recipes, or the stages that a recipe has.
    """
    for what, value, known in (
        ("recipe", recipe, RECIPES),
        ("stage", stage, ALL_STAGES),
    ):
        if value not in known:
            raise ValueError(f"unknown {what} {value!r}; choose one of {', '.join(known)}")
    if stage not in RECIPES[recipe]:
        raise ValueError(f"recipe {recipe!r} has no stage {stage!r}, only {', '.join(RECIPES[recipe])}; take lora")
    row = RECIPES[recipe][stage]
    return replace(row, **ROOMY) if spec in SCRATCH_SPECS else row


def check_there(path: str | Path) -> None:
    """ValueError unless the path of a stage file is a file's."""
    if not Path(path).is_file():
        raise ValueError(f"there is no stage file {path}; give a file that a training stage wrote")


def to_make(stage: str, world: str, there: Container[str]) -> tuple[str, ...]:
    """The models that a small world lacks and the stage makes; ValueError where another stage has to make one first."""
    facts = STAGES[stage]
    lacking = tuple(name for name in facts.needs if name not in there)
    for name in lacking:
        if name not in facts.makes:
            maker = next(other for other, its in STAGES.items() if name in its.makes)
            raise ValueError(f"{world} has no {name} yet, which stage {stage} begins from; stage {maker} makes it")
    return lacking


def lr_warning(config: StageConfig) -> str | None:
    """A sentence if the learning rate lies outside the band known to work, or is never reached."""
    low, high = _LR_BANDS["lora" if config.lora_rank else "whole"]
    if not low <= config.lr <= high:
        return f"learning rate {config.lr:g} lies outside {low:g} to {high:g}, where such training is known to work"
    if config.lr_warmup > config.steps:
        return (
            f"the learning rate rises over lr_warmup {config.lr_warmup} of {config.steps} steps, so it ends at "
            f"{config.lr * config.steps / config.lr_warmup:.3g} and never reaches {config.lr:g}; lower lr_warmup"
        )
    return None


def matching(patterns: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """The names that any pattern is found in, in order; ValueError for one that is no regular expression."""
    compiled = [_compiled(pattern) for pattern in patterns]
    return tuple(name for name in names if any(pattern.search(name) for pattern in compiled))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression ({error}); correct it") from error
