"""Frozen sizes and names: what a world is made of, and how it is run.

Everything runs at every size through the same classes; only a `ModelSpec` row differs. This file imports no torch, so
that the command line and ComfyUI can list worlds at once.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass, replace

PROGRAM = "python -m animegamer_core"  # the command line, as messages name it
ENCODER_VARIANTS = ("mlp", "linear", "addition", "cross_attention")
GUIDANCE_NAMES = ("reference_wave", "cosine", "constant", "distilled")
DTYPES = ("float32", "bfloat16", "float16")  # number formats that models are loaded in
LARGEST = 1 << 24  # no size of any model comes near: what a file says beyond it is damage
TIME_FACTOR = 4  # frames a latent frame: CogVideoX's causal VAE turns 1 + 4n frames into 1 + n


def dtype_name(dtype: object) -> str:
    """The name of a torch number format, such as `bfloat16`."""
    return str(dtype).removeprefix("torch.")


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"unknown {what} {value!r}; choose one of {', '.join(allowed)}")


@dataclass(frozen=True)
class StateSpec:
    """The shape of an action-aware representation: N tokens of width D (226 x 1920 at release)."""

    text_tokens: int = 30  # + 196 image patches = 226, the length that CogVideoX-2B was trained to read
    image_tokens: int = 196
    width: int = 1920

    @property
    def tokens(self) -> int:
        """N, the tokens of one representation."""
        return self.text_tokens + self.image_tokens


@dataclass(frozen=True)
class TextTowerSpec:
    """A T5 encoder that reads the motion text (t5-v1_1-xxl at release)."""

    vocab_size: int = 32128
    width: int = 4096
    head_width: int = 64
    heads: int = 64
    intermediate: int = 10240
    layers: int = 24


@dataclass(frozen=True)
class ImageTowerSpec:
    """A CLIP vision tower that reads a shot's reference frame (open_clip ViT-B-16 at release).

    The last block is not run: the representation reads the tokens before it (reference-facts 9).
    """

    image_size: int = 224
    patch: int = 16
    width: int = 768
    layers: int = 12
    heads: int = 12
    intermediate: int = 3072

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"an image tower {self.width} wide does not split into {self.heads} heads")


@dataclass(frozen=True)
class EncoderSpec:
    """The shot encoder E_a: two towers and how their features are mixed (supplement, figure 1)."""

    text: TextTowerSpec = TextTowerSpec()
    image: ImageTowerSpec = ImageTowerSpec()
    variant: str = "mlp"

    def __post_init__(self) -> None:
        _one_of("encoder variant", self.variant, ENCODER_VARIANTS)


@dataclass(frozen=True)
class EngineSpec:
    """The game engine: a Mistral of these sizes (Mistral-7B-Instruct-v0.1 with 284 added tokens at release)."""

    vocab_size: int = 32284
    hidden: int = 4096
    intermediate: int = 14336
    layers: int = 32
    heads: int = 32
    kv_heads: int = 8
    rope_theta: float = 10000.0
    max_positions: int = 32768

    def __post_init__(self) -> None:
        if self.hidden % (2 * self.heads) or self.heads % self.kv_heads:  # positions turn pairs of channels
            raise ValueError(
                f"an engine {self.hidden} wide does not split into {self.heads} heads of an even width that share "
                f"{self.kv_heads} key heads"
            )


@dataclass(frozen=True)
class VaeSpec:
    """The causal 3-D VAE between frames and latents (CogVideoX's, 8 x 8 x 4 at release)."""

    channels: tuple[int, ...] = (128, 256, 256, 512)
    layers_per_block: int = 3
    latent_channels: int = 16
    norm_groups: int = 32
    scaling_factor: float = 1.15258426

    def __post_init__(self) -> None:
        if not self.channels or any(count % self.norm_groups for count in self.channels):
            raise ValueError(
                f"a VAE with levels of {self.channels} channels does not split into {self.norm_groups} groups"
            )

    @property
    def spatial_factor(self) -> int:
        """Pixels a latent pixel along one side."""
        return 2 ** (len(self.channels) - 1)


@dataclass(frozen=True)
class DecoderSpec:
    """The shot decoder D_a: a CogVideoX transformer, its VAE, and the shot's size."""

    layers: int = 30
    heads: int = 30
    head_width: int = 64
    time_width: int = 512
    patch: int = 2
    frames: int = 17
    height: int = 480
    width: int = 720
    fps: int = 8
    spatial_scale: float = 1.875
    steps: int = 50
    guidance_scale: float = 6.0
    vae: VaeSpec = VaeSpec()

    @property
    def latent_shape(self) -> tuple[int, int, int, int]:
        """(T, C, h, w) of one shot's latents."""
        factor = self.vae.spatial_factor
        frames = (self.frames - 1) // TIME_FACTOR + 1
        return frames, self.vae.latent_channels, self.height // factor, self.width // factor


@dataclass(frozen=True)
class ModelSpec:
    """All sizes of one world's models."""

    name: str
    state: StateSpec = StateSpec()
    encoder: EncoderSpec = EncoderSpec()
    engine: EngineSpec = EngineSpec()
    decoder: DecoderSpec = DecoderSpec()

    def __post_init__(self) -> None:
        hidden = self.decoder.heads * self.decoder.head_width
        if hidden != self.state.width:
            raise ValueError(
                f"spec {self.name!r}: the decoder is {hidden} wide and the state {self.state.width}; "
                "the transformer reads states as they are, so give both the same width"
            )

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain values for a json file; `from_dict` reads them back."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: typing.Mapping[str, typing.Any]) -> ModelSpec:
        """The spec in `values`; ValueError names the first field that is unknown, missing, or no size of a model."""
        return _from_dict(cls, values, "spec")


@dataclass(frozen=True)
class Profile:
    """Named switches between the released scripts' behaviour and the clean reading (reference-facts 3, 4, 6, 12)."""

    name: str
    history_states: bool = True  # history blocks tell what was predicted; False: always <Strength_0>
    doubled_stamina_end: bool = False  # a history block ends in `</ST> </ST>`
    aligned_queries: bool = True  # read the state at the query slots; False: at the last N positions, 3 later
    shared_prefill: bool = True  # text and state from one pass; False: text from a second, plainly causal pass
    text_sees_states: bool = True  # the text pass reads past representations; False: learned slot embeddings
    grammar: bool = True  # only digits that make a valid state; False: free greedy text, zeros if unreadable
    guidance: str = "cosine"
    skip_guidance_below: float = 1.05  # weaker steps leave the unconditional half out: 71 dB PSNR; 0 never skips

    def __post_init__(self) -> None:
        _one_of("guidance", self.guidance, GUIDANCE_NAMES)

    @property
    def released_timesteps(self) -> bool:
        """Whether shots take the released scripts' timesteps; False: evenly spaced ones, rounded down exactly."""
        # Not a field: the fields are part of World.fingerprint, so one more would make every older story foreign.
        # The released guidance needs them, since a timestep that is off by one changes its scale arbitrarily.
        return self.guidance == "reference_wave"


_AS_RUN = Profile(
    name="as_run",
    history_states=False,
    doubled_stamina_end=True,
    aligned_queries=False,
    shared_prefill=False,
    text_sees_states=False,
    grammar=False,
    guidance="reference_wave",
    skip_guidance_below=0.0,
)
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
        text=TextTowerSpec(vocab_size=512, width=16, head_width=8, heads=2, intermediate=32, layers=2),
        image=ImageTowerSpec(image_size=16, patch=8, width=16, layers=2, heads=2, intermediate=32),
    ),
    engine=EngineSpec(vocab_size=512, hidden=32, intermediate=64, layers=2, heads=4, kv_heads=2, max_positions=4096),
    decoder=DecoderSpec(
        layers=2,
        heads=2,
        head_width=16,
        time_width=32,
        height=32,
        width=48,
        steps=4,
        vae=VaeSpec(channels=(8, 16, 16), layers_per_block=1, latent_channels=4, norm_groups=4, scaling_factor=1.0),
    ),
)
_TOYBOX = ModelSpec(
    name="toybox",
    state=StateSpec(text_tokens=12, image_tokens=64, width=256),
    encoder=EncoderSpec(
        text=TextTowerSpec(vocab_size=512, width=96, head_width=24, heads=4, intermediate=192, layers=2),
        image=ImageTowerSpec(image_size=96, patch=12, width=128, layers=4, heads=4, intermediate=256),
    ),
    engine=EngineSpec(vocab_size=512, hidden=192, intermediate=512, layers=6, heads=6, kv_heads=2, max_positions=32768),
    decoder=DecoderSpec(
        layers=7,
        heads=4,
        head_width=64,
        time_width=128,
        patch=4,
        height=96,
        width=144,
        spatial_scale=1.0,
        steps=20,
        guidance_scale=2.0,
        vae=VaeSpec(channels=(32, 64, 96), layers_per_block=1, latent_channels=8, norm_groups=8, scaling_factor=1.0),
    ),
)
SPECS: dict[str, ModelSpec] = {
    "tiny": _TINY,
    "toybox": _TOYBOX,
    "qiqi": replace(RELEASE, name="qiqi"),
    "sosuke": replace(RELEASE, name="sosuke"),
}


# The switches that decide what an engine's weights mean: which tokens it reads, and at which positions.
READING_SWITCHES = ("history_states", "doubled_stamina_end", "aligned_queries", "shared_prefill", "text_sees_states")
TRAINED_PROFILES = ("paper", "reference")  # as_run drops what the engine saw, so nothing can be learned from it


@dataclass(frozen=True)
class Reading:
    """How an engine was trained to be read, which play has to repeat.

    profile: its READING_SWITCHES count. window: the most past turns that training showed; None where nobody stated it,
    as for published weights.
    """

    profile: Profile
    window: int | None = None

    def agrees(self, other: Reading) -> bool:
        """Whether both read the same tokens at the same positions; windows may differ."""
        return all(getattr(self.profile, name) == getattr(other.profile, name) for name in READING_SWITCHES)

    def to_dict(self) -> dict[str, typing.Any]:
        """Plain values for a json file; `from_dict` reads them back."""
        switches = {name: getattr(self.profile, name) for name in READING_SWITCHES}
        return {"profile": self.profile.name, **switches, "window": self.window}

    @classmethod
    def from_dict(cls, values: typing.Mapping[str, typing.Any]) -> Reading:
        """The reading in `values`; ValueError for a profile that this program does not have, or has otherwise."""
        name, window = values.get("profile"), values.get("window")
        if not isinstance(name, str) or name not in PROFILES:
            raise ValueError(f"profile {str(name)[:40]!r} is unknown here; expected one of {', '.join(PROFILES)}")
        if window is not None and (type(window) is not int or not 0 <= window <= LARGEST):
            raise ValueError(f"window is {str(window)[:40]!r}; expected the number of past turns")
        read = cls(PROFILES[name], window)
        for switch, ours in read.to_dict().items():
            if values.get(switch) != ours:
                raise ValueError(f"{switch} of profile {name!r} is {str(values.get(switch))[:40]!r}, here it is {ours}")
        return read


def get_spec(name: str) -> ModelSpec:
    """The named row of SPECS, or `release`; ValueError lists the names."""
    rows = {**SPECS, "release": RELEASE}
    _one_of("spec", name, tuple(rows))
    return rows[name]


def get_profile(name: str) -> Profile:
    """The named profile; ValueError lists the names."""
    _one_of("profile", name, tuple(PROFILES))
    return PROFILES[name]


def _from_dict(cls: type, values: typing.Mapping[str, typing.Any], where: str) -> typing.Any:
    """Rebuild a (nested) spec dataclass from plain json values, refusing what it does not know or what lacks."""
    hints = typing.get_type_hints(cls)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise ValueError(f"{where}: unknown field {unknown[0]!r}; expected {', '.join(hints)}")
    fields = {}
    for name, value in values.items():
        kind = hints[name]
        if dataclasses.is_dataclass(kind):
            value = _from_dict(kind, _checked(value, dict, f"{where}.{name}"), f"{where}.{name}")
        elif typing.get_origin(kind) is tuple:
            value = tuple(
                _checked(item, int, f"{where}.{name}") for item in _checked(value, list | tuple, f"{where}.{name}")
            )
        else:
            value = _checked(value, float | int if kind is float else kind, f"{where}.{name}")
        fields[name] = value
    required = (field.name for field in dataclasses.fields(cls) if field.default is dataclasses.MISSING)
    for name in required:
        if name not in fields:
            raise ValueError(f"{where}.{name} is missing; expected {hints[name].__name__}")
    return cls(**fields)


def _checked(value: typing.Any, kind: typing.Any, where: str) -> typing.Any:
    if not isinstance(value, kind) or isinstance(value, bool) and kind is not bool:
        raise ValueError(f"{where}: {str(value)[:40]!r} is not of type {kind}")
    if isinstance(value, int) and not isinstance(value, bool) and not 1 <= value <= LARGEST:
        raise ValueError(f"{where}: {str(value)[:40]} is no size; expected 1 to {LARGEST}")
    if isinstance(value, float) and not 0 <= value <= LARGEST:
        raise ValueError(f"{where}: {value} is no scale; expected 0 to {LARGEST}")
    return value
