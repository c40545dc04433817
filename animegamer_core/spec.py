"""Sizes of a world's models, and the profiles for running them.

The same classes serve every size; only the `ModelSpec` differs. Nothing here imports torch, so the command line and
ComfyUI list worlds quickly.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

from msgspec import Meta

from .json_files import to_type

PROGRAM = "python -m animegamer_core"  # the command line, as written in messages
DTYPES = ("float32", "bfloat16", "float16")  # number formats that models are loaded in
LARGEST = 1 << 24  # far above any real size; a file with a larger number is damaged
MOST_POSITIONS = 1 << 28  # values in the position table, 20 times the released one; no tensor gives its size
MOST_LEVELS = 8
MOST_LAYERS = 200  # layers of a model; each takes time to build, before its weights are checked
Size = Annotated[int, Meta(ge=1, le=LARGEST)]
Layers = Annotated[int, Meta(ge=1, le=MOST_LAYERS)]
Channels = Annotated[int, Meta(ge=0, le=4096, multiple_of=8)]  # norms take them in 8 groups
Scale = Annotated[float, Meta(ge=0, le=LARGEST)]
Timestep = Annotated[int, Meta(ge=0, le=LARGEST)]
TRAIN_STEPS = 1000  # timesteps that the decoder was trained with, 0 to 999
TIME_FACTOR = 4  # frames per latent frame: CogVideoX's causal VAE turns 1 + 4n frames into 1 + n


@dataclass(frozen=True)
class GuidanceSchedule:
    """How strong guidance is over a shot: the scale of a step is 1 + strength * rise(fraction).

    rise: 0..1, of the fraction of the steps that are left, which is 1 at the first step. by_timestep: the fraction is
    (n - t) / n of n steps with the timestep t, as in the released scripts, and thus pseudo-random where t is above n.
    distillable: whether stage `distill` can learn it. one_pass: for decoders that it has learned.
    """

    rise: Callable[[float], float]
    by_timestep: bool = False
    distillable: bool = False
    one_pass: bool = False


def _wave(fraction: float) -> float:
    return (1 - math.cos(math.pi * fraction**5)) / 2


GUIDANCE: dict[str, GuidanceSchedule] = {
    "reference_wave": GuidanceSchedule(_wave, by_timestep=True),
    "cosine": GuidanceSchedule(_wave, distillable=True),
    "constant": GuidanceSchedule(lambda fraction: 1.0, distillable=True),
    "distilled": GuidanceSchedule(lambda fraction: 0.0, one_pass=True),
}
SOLVERS = ("dpmpp_2m_sde", "ddim")  # the first is the released scripts'
EncoderVariant = typing.Literal["mlp", "linear", "addition", "cross_attention"]
Steps = int | tuple[int, ...]  # a number of steps, evenly spaced, or their timesteps, falling from 999


def dtype_name(dtype: object) -> str:
    """The name of a torch number format, such as `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _check_choice(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; choose one of {', '.join(allowed)}")


def _check_multiple(what: str, value: int, of: int) -> None:
    if value % of:
        raise ValueError(f"{what} is {value}; expected a multiple of {of}")


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How a shot is sampled; None leaves a choice to somebody else. guidance: a row of GUIDANCE.

    ValueError for unknown names and for steps that cannot be.
    """

    steps: Steps | None = None
    guidance: str | None = None
    solver: str | None = None

    def __post_init__(self) -> None:
        if self.guidance is not None:
            _check_choice("guidance", self.guidance, tuple(GUIDANCE))
        if self.solver is not None:
            _check_choice("solver", self.solver, SOLVERS)
        if self.steps is not None:
            check_steps(self.steps)

    def stated(self) -> dict[str, typing.Any]:
        """The choices that are not None."""
        values = {field.name: getattr(self, field.name) for field in dataclasses.fields(Sampling)}
        return {name: value for name, value in values.items() if value is not None}


UNSTATED = Sampling()


def check_steps(steps: Steps) -> None:
    """ValueError for a number of steps or a list of timesteps that cannot be sampled."""
    if isinstance(steps, int):
        if not 1 <= steps <= TRAIN_STEPS:
            raise ValueError(f"steps is {steps}; a shot takes 1 step or more, {TRAIN_STEPS} at most")
    elif not steps or not all(0 <= step < TRAIN_STEPS for step in steps) or list(steps) != sorted({*steps})[::-1]:
        raise ValueError(f"timesteps {', '.join(map(str, steps))}: expected falling ones of 0 to {TRAIN_STEPS - 1}")


def read_timesteps(text: str) -> tuple[int, ...]:
    """Timesteps as people write them, such as 999,856,665,399; ValueError if they are none."""
    try:
        timesteps = tuple(int(word) for word in text.split(","))
    except ValueError as error:
        raise ValueError(f"timesteps {text!r}: expected whole numbers such as 999,856,665,399") from error
    check_steps(timesteps)
    return timesteps


def step_count(steps: Steps) -> int:
    """The number of steps."""
    return steps if isinstance(steps, int) else len(steps)


@dataclass(frozen=True)
class StateSpec:
    """The shape of an action-aware representation: N tokens of width D (226 x 1920 at release)."""

    text_tokens: Size = 30  # + 196 image patches = 226, the text length that CogVideoX-2B was trained with
    image_tokens: Size = 196
    width: Size = 1920

    @property
    def tokens(self) -> int:
        """N, the number of tokens of one representation."""
        return self.text_tokens + self.image_tokens


@dataclass(frozen=True)
class TextEncoderSpec:
    """A T5 encoder for the motion text (t5-v1_1-xxl at release)."""

    vocab_size: Size = 32128
    width: Size = 4096
    head_width: Size = 64
    heads: Size = 64
    intermediate: Size = 10240
    layers: Layers = 24


@dataclass(frozen=True)
class ImageEncoderSpec:
    """A CLIP image encoder for a shot's reference frame (open_clip ViT-B-16 at release).

    The representation uses the tokens before the last block (docs/reference.md, image encoder).
    """

    image_size: Size = 224
    patch: Size = 16
    width: Size = 768
    layers: Layers = 12
    heads: Size = 12
    intermediate: Size = 3072

    def __post_init__(self) -> None:
        _check_multiple("width", self.width, self.heads)


@dataclass(frozen=True)
class EncoderSpec:
    """The shot encoder E_a: text and image encoder, and how their features are mixed (supplement, figure 1)."""

    text: TextEncoderSpec = TextEncoderSpec()
    image: ImageEncoderSpec = ImageEncoderSpec()
    variant: EncoderVariant = "mlp"


@dataclass(frozen=True)
class EngineSpec:
    """The game engine: a Mistral of these sizes (Mistral-7B-Instruct-v0.1 with 284 added tokens at release)."""

    vocab_size: Size = 32284
    hidden: Size = 4096
    intermediate: Size = 14336
    layers: Layers = 32
    heads: Size = 32
    kv_heads: Size = 8
    rope_theta: Scale = 10000.0
    max_positions: Size = 32768

    def __post_init__(self) -> None:
        _check_multiple("hidden", self.hidden, 2 * self.heads)  # RoPE rotates pairs of channels
        _check_multiple("heads", self.heads, self.kv_heads)


@dataclass(frozen=True)
class VaeSpec:
    """The causal 3-D VAE between frames and latents (CogVideoX's, 8 x 8 x 4 at release)."""

    channels: Annotated[tuple[Size, ...], Meta(min_length=1, max_length=MOST_LEVELS)] = (128, 256, 256, 512)
    layers_per_block: Layers = 3
    latent_channels: Size = 16
    norm_groups: Size = 32
    scaling_factor: Scale = 1.15258426
    tiny: tuple[Size, ...] = ()  # channels of the tiny decoder at each size; none: the world has no tiny decoder
    fast: bool = False  # whether shots are decoded by it, unless a preset says otherwise

    def __post_init__(self) -> None:
        for count in self.channels:
            _check_multiple("a number of channels", count, self.norm_groups)

    @property
    def spatial_factor(self) -> int:
        """Pixels per latent pixel along one side."""
        return 2 ** (len(self.channels) - 1)


@dataclass(frozen=True)
class DecoderSpec:
    """The shot decoder D_a: a CogVideoX transformer, its VAE, and the shot's size."""

    layers: Layers = 30
    heads: Size = 30
    head_width: Size = 64
    time_width: Size = 512
    patch: Size = 2
    frames: Size = 17
    height: Size = 480
    width: Size = 720
    fps: Size = 8
    spatial_scale: Scale = 1.875
    steps: Size | tuple[Timestep, ...] = 50  # or the timesteps that it was taught, with DDIM
    guidance_scale: Scale = 6.0  # the strength; 0 if the weights include guidance, as after stage distill
    vae: VaeSpec = VaeSpec()
    predicts_clean: bool = False  # whether the transformer's output is the clean latent; False: the velocity
    refiner: Channels = 0  # of the convolutions that refine this output; 0: none

    def __post_init__(self) -> None:
        for side in ("height", "width"):
            _check_multiple(side, getattr(self, side), self.vae.spatial_factor * self.patch)
        _check_multiple("frames - 1", self.frames - 1, TIME_FACTOR)
        _check_multiple("heads x head_width", self.heads * self.head_width, 16)  # positions are waves in three axes
        if not isinstance(self.steps, int):
            check_steps(self.steps)
        frames, _, rows, columns = self.latent_shape
        numbers = frames * (rows // self.patch) * (columns // self.patch) * self.heads * self.head_width
        if numbers > MOST_POSITIONS:
            raise ValueError(
                f"decoder: a shot of {self.frames} frames of {self.height} x {self.width} needs a table of {numbers} "
                f"numbers; expected at most {MOST_POSITIONS}"
            )

    @property
    def solver(self) -> str:
        """How its steps are taken."""
        return SOLVERS[0] if isinstance(self.steps, int) else "ddim"

    @property
    def latent_shape(self) -> tuple[int, int, int, int]:
        """(T, C, h, w) of one shot's latents."""
        factor = self.vae.spatial_factor
        frames = (self.frames - 1) // TIME_FACTOR + 1
        return frames, self.vae.latent_channels, self.height // factor, self.width // factor


@dataclass(frozen=True)
class ModelSpec:
    """All sizes of one world's models. The decoder is as wide as the state, which it reads without a projection."""

    name: str
    state: StateSpec = StateSpec()
    encoder: EncoderSpec = EncoderSpec()
    engine: EngineSpec = EngineSpec()
    decoder: DecoderSpec = DecoderSpec()

    def to_dict(self) -> dict[str, typing.Any]:
        """JSON values; `from_dict` reads them back."""
        values = dataclasses.asdict(self)
        for name in ("predicts_clean", "refiner"):
            if not values["decoder"][name]:
                del values["decoder"][name]  # worlds without it keep their fingerprint
        for name in ("tiny", "fast"):
            if not values["decoder"]["vae"][name]:
                del values["decoder"]["vae"][name]
        return values

    @classmethod
    def from_dict(cls, values: typing.Mapping[str, typing.Any]) -> ModelSpec:
        """The spec in `values`; ValueError names the first field that is missing or invalid."""
        return to_type(values, cls, "spec")


@dataclass(frozen=True)
class Profile:
    """How prompts are built and shots are guided: as the released scripts do, or as the paper describes.

    docs/reference.md, prompt, reply and sampler, lists the differences.
    """

    name: str
    history_states: bool = True  # history blocks hold the predicted numbers; False: always <Strength_0>
    doubled_stamina_end: bool = False  # history blocks end in `</ST> </ST>`
    aligned_queries: bool = True  # read the state at the query slots; False: at the last N positions, 3 later
    shared_prefill: bool = True  # text and state from one pass; False: text from a second, causal pass
    text_sees_states: bool = True  # the text pass reads past representations; False: the slot tokens' embeddings
    grammar: bool = True  # choose among valid numbers; False: free greedy text, zeros if it is unreadable
    guidance: str = "cosine"
    skip_guidance_below: float = 1.05  # below this scale a step skips the unconditional pass (72 dB PSNR); 0: never

    @property
    def released_timesteps(self) -> bool:
        """Whether shots use the released scripts' timesteps; False: evenly spaced ones, rounded down exactly."""
        # Not a field: fields are part of World.fingerprint, and a new one would reject every older story.
        # The released guidance needs them: a timestep that is off by one changes its scale arbitrarily.
        return GUIDANCE[self.guidance].by_timestep


_AS_RUN = Profile(
    name="as_run", history_states=False, doubled_stamina_end=True, aligned_queries=False, shared_prefill=False,
    text_sees_states=False, grammar=False, guidance="reference_wave", skip_guidance_below=0.0,
)  # fmt: skip
PROFILES: dict[str, Profile] = {
    "as_run": _AS_RUN,
    "reference": replace(_AS_RUN, name="reference", history_states=True, text_sees_states=True, grammar=True),
    "paper": Profile(name="paper"),
}

RELEASE = ModelSpec(name="release")
_TINY = ModelSpec(
    name="tiny",
    state=StateSpec(text_tokens=4, image_tokens=4, width=32),
    encoder=EncoderSpec(
        text=TextEncoderSpec(vocab_size=512, width=16, head_width=8, heads=2, intermediate=32, layers=2),
        image=ImageEncoderSpec(image_size=16, patch=8, width=16, layers=2, heads=2, intermediate=32),
    ),
    engine=EngineSpec(vocab_size=512, hidden=32, intermediate=64, layers=2, heads=4, kv_heads=2, max_positions=4096),
    decoder=DecoderSpec(
        layers=2, heads=2, head_width=16, time_width=32, height=32, width=48, steps=4,
        vae=VaeSpec(channels=(8, 16, 16), layers_per_block=1, latent_channels=4, norm_groups=4, scaling_factor=1.0),
    ),
)  # fmt: skip
_TOYBOX = ModelSpec(
    name="toybox",
    state=StateSpec(text_tokens=12, image_tokens=64, width=512),
    encoder=EncoderSpec(
        text=TextEncoderSpec(vocab_size=512, width=96, head_width=24, heads=4, intermediate=192, layers=2),
        image=ImageEncoderSpec(image_size=96, patch=12, width=128, layers=4, heads=4, intermediate=256),
    ),
    engine=EngineSpec(vocab_size=512, hidden=256, intermediate=640, layers=6, heads=8, kv_heads=2, max_positions=32768),
    decoder=DecoderSpec(
        layers=6, heads=8, head_width=64, time_width=32, patch=4, height=192, width=288, spatial_scale=1.0,
        steps=(800, 400), guidance_scale=0.0, predicts_clean=True, refiner=96,
        vae=VaeSpec(
            channels=(32, 64, 96), layers_per_block=1, latent_channels=16, norm_groups=8, scaling_factor=1.0,
            tiny=(64, 32, 16), fast=True,
        ),
    ),
)  # fmt: skip
SPECS: dict[str, ModelSpec] = {
    "tiny": _TINY,
    "toybox": _TOYBOX,
    "qiqi": replace(RELEASE, name="qiqi"),
    "sosuke": replace(RELEASE, name="sosuke"),
}

# The switches that an engine is trained with: which tokens it reads, and at which positions.
READING_SWITCHES = ("history_states", "doubled_stamina_end", "aligned_queries", "shared_prefill", "text_sees_states")
TRAINED_PROFILES = ("paper", "reference")  # as_run drops part of the engine's input, so it cannot be trained


@dataclass(frozen=True)
class Reading:
    """The prompt format that an engine was trained with, which play must use too.

    profile: only its READING_SWITCHES matter. window: the maximum past turns in training; None if unknown, as for
    published weights.
    """

    profile: Profile
    window: int | None = None

    def agrees(self, other: Reading) -> bool:
        """Whether both use the same tokens at the same positions; windows may differ."""
        return all(getattr(self.profile, name) == getattr(other.profile, name) for name in READING_SWITCHES)


def get_spec(name: str) -> ModelSpec:
    """The named row of SPECS, or `release`; ValueError lists the names."""
    rows = {**SPECS, "release": RELEASE}
    _check_choice("spec", name, tuple(rows))
    return rows[name]


def get_profile(name: str) -> Profile:
    """The named profile; ValueError lists the names."""
    _check_choice("profile", name, tuple(PROFILES))
    return PROFILES[name]
