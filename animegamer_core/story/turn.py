"""One turn: predict the state that follows a session, and draw it. The player and the nodes share this code.

An address is the SHA-256 of everything that a result depends on. Imports no torch.
"""

from __future__ import annotations

import hashlib
import json
import typing
from dataclasses import asdict, dataclass, replace

from ..game.director import LOOKS_BACK
from ..game.life import PUBLISHED_RULES, Life, Values
from ..game.plain import Reading, read_plainly
from ..game.state import GameSession, GameState, Turn
from ..spec import SOLVERS, Steps

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..model.decoder import ShotDecoder
    from ..model.latents import StartLatent
    from ..model.prompt import GameTokenizer
    from ..model.sampler import OnStep
    from ..runtime.models import Models, PlaySettings
    from ..weights import World


@dataclass(frozen=True)
class StateKey:
    """Everything that a prediction depends on. world: its fingerprint. parent: the address of the state before, for
    turn 1 of the opening; None if there is no opening. recalled: the numbers of the turns that it read instead of the
    oldest of the window.
    """

    world: str
    parent: str | None
    instruction: str
    window: int
    profile: str
    precision: str
    recalled: tuple[int, ...] = ()


@dataclass(frozen=True)
class ShotKey:
    """Everything that a shot depends on. state: the address of its state. motion: the motion condition, px per frame.

    latent: the SHA-256 of the latent that it started from; empty if from noise, as in play. denoise: how much of that
    latent was drawn again.
    """

    world: str
    state: str
    seed: int
    motion: float
    steps: Steps
    guidance: str
    precision: str
    latent: str = ""
    denoise: float = 1.0
    solver: str = SOLVERS[0]


@dataclass(frozen=True)
class OpeningKey:
    """How a game starts. text: the picture's motion text. picture: the SHA-256 of its representation; None without one.
    stats: their values.
    """

    world: str
    text: str
    picture: str | None
    stats: Values


Key = StateKey | ShotKey | OpeningKey


def address_of(key: Key) -> str:
    """64 hex digits: the SHA-256 of a key as canonical JSON."""
    text = json.dumps(asdict(key), sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def opening_address(fingerprint: str, session: GameSession) -> str | None:
    """The address of a session's opening, the parent of turn 1; None if it has no picture and the usual stats."""
    picture = session.picture
    if picture is not None and picture.state.representation is None and picture.address is not None:
        return picture.address
    if picture is None and session.start == (session.rules or PUBLISHED_RULES).start:
        return None
    return address_of(opening_key(fingerprint, session))


def with_opening_address(fingerprint: str, session: GameSession) -> GameSession:
    """The session with the opening's address on its picture, to know it once the representation is dropped."""
    if session.picture is None:
        return session
    picture = replace(session.picture, address=opening_address(fingerprint, session))
    return replace(session, turns=(picture, *session.turns[1:]))


def opening_key(fingerprint: str, session: GameSession) -> OpeningKey:
    """The key of a session's opening. The representation of its picture, if any, must be in memory."""
    picture, digest = session.picture, None
    if picture is not None and picture.state.representation is not None:
        values = picture.state.representation.float().contiguous().numpy()
        digest = hashlib.sha256(values.tobytes()).hexdigest()
    text = "" if picture is None else picture.instruction
    return OpeningKey(fingerprint, text, digest, session.start)


class SavedStates(typing.Protocol):
    """What a prediction asks of a story."""

    def find_state(self, address: str) -> GameState | None:
        """A state that is known, without its representation."""

    def load_turn(self, turn: Turn) -> Turn:
        """The turn with its representation."""


@dataclass(frozen=True)
class Prediction:
    """The state that follows a session. known: it was read from the story."""

    key: StateKey
    state: GameState
    known: bool

    def follow(self, session: GameSession, seed: int) -> GameSession:
        """The session with this turn."""
        return session.step(self.key.instruction, self.state, seed, address_of(self.key), self.key.recalled)


def state_key(
    fingerprint: str,
    session: GameSession,
    instruction: str,
    profile: str,
    precision: str,
    recalled: tuple[int, ...] = (),
) -> StateKey:
    """The key of the turn that follows a session. instruction: cleaned. recalled: as from `GameSession.recall`."""
    turns = session.turns
    parent = turns[-1].address if turns and turns[-1].number > 0 else opening_address(fingerprint, session)
    assert session.window is not None, "call with_defaults first"
    return StateKey(fingerprint, parent, instruction, session.window, profile, precision, recalled)


def read_typed(life: Life, tokenizer: GameTokenizer, session: GameSession, text: str) -> Reading:
    """What a player typed, cleaned, in words that the world knows (game/plain.py); ValueError if it shows nothing."""
    past = [turn.instruction for turn in session.turns[-LOOKS_BACK:]]
    life = replace(life, rules=session.rules or life.rules)
    return read_plainly(text, life, past, tokenizer.unknown_words(text))


def predict_turn(
    world: World, models: Models, session: GameSession, instruction: str, story: SavedStates | None = None
) -> Prediction:
    """The turn that follows a session: from the story if it is known there, else from the engine. Writes nothing.

    instruction: cleaned. With memory `recall` and no story, only turns whose representations are in memory are
    recalled.
    """
    recalled = session.recall(instruction, stored=story is not None)
    key = state_key(world.fingerprint, session, instruction, world.profile.name, models.precision, recalled)
    past = list(session.past(recalled))
    if story is not None:
        known = story.find_state(address_of(key))
        if known is not None:
            return Prediction(key, known, known=True)
        past = [story.load_turn(turn) for turn in past]
    return Prediction(key, models.engine().predict(past, instruction), known=False)


def shot_key(
    world: World,
    models: Models,
    settings: PlaySettings,
    turn: Turn,
    motion: float,
    seed: int | None = None,
    start: StartLatent | None = None,
) -> ShotKey:
    """The key of a turn's shot. settings: with their sampling. motion: in px per frame at 480 px height.

    seed: None is the turn's own. start: the latent that it starts from; None: from noise.
    """
    assert settings.steps and settings.guidance and settings.solver, "call with_preset first"
    return ShotKey(
        world=world.fingerprint,
        state=turn.address or "",
        seed=turn.seed if seed is None else seed,
        motion=motion,
        steps=settings.steps,
        guidance=settings.guidance,
        precision=f"{models.precision}{settings.precision_suffix}",
        latent="" if start is None else start.digest,
        denoise=1.0 if start is None else start.denoise,
        solver=settings.solver,
    )


def draw_turn(
    decoder: ShotDecoder, turn: Turn, key: ShotKey, on_step: OnStep | None = None, start: StartLatent | None = None
) -> Tensor:
    """The latent of a turn's shot by its key: (1, C, T, H, W) fp32, for `ShotDecoder.decode_vae`.

    start: the latent that the key was made with; with denoise 0, it is returned.
    """
    import torch

    assert key.latent == ("" if start is None else start.digest)
    if start is not None and start.denoise == 0:
        return start.latent_BCTHW
    state_ND = turn.state.representation
    if state_ND is None:
        raise ValueError(f"the representation of turn {turn.number} is not in memory; load the turn from its story")
    latents = decoder.sample(
        state_ND[None],
        torch.tensor([key.motion]),
        [key.seed],
        steps=key.steps,
        guidance=key.guidance,
        solver=key.solver,
        on_step=on_step,
        start=start,
    )
    return decoder.to_vae(latents)
