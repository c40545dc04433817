"""One turn: predict the state that follows a session, and draw it. The player and the nodes share this code."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from ..game.state import GameSession, GameState, Turn
from ..runtime.models import Models, PlaySettings
from ..spec import resolve_sampling
from .content_store import ShotKey, StateKey, address_of, opening_address

if typing.TYPE_CHECKING:
    from torch import Tensor

    from ..model.decoder import ShotDecoder
    from ..model.latents import StartLatent
    from ..model.sampler import OnStep
    from ..weights import World
    from .story import Story


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


def predict_turn(
    world: World, models: Models, session: GameSession, instruction: str, story: Story | None = None
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
    """The key of a turn's shot. motion: in px per frame at 480 px height. seed: None is the turn's own.

    start: the latent that it starts from; None: from noise.
    """
    sampling = resolve_sampling(world.spec, world.profile, settings.steps, settings.guidance)
    return ShotKey(
        world=world.fingerprint,
        state=turn.address or "",
        seed=turn.seed if seed is None else seed,
        motion=motion,
        steps=sampling.steps,
        guidance=sampling.guidance,
        precision=f"{models.precision}{settings.precision_suffix}",
        latent="" if start is None else start.digest,
        denoise=1.0 if start is None else start.denoise,
    )


def draw_turn(models: Models, turn: Turn, key: ShotKey, on_step: OnStep | None = None) -> Tensor:
    """The shot of a turn by its key: (F, 3, H, W) frames as from `ShotDecoder.shoot`."""
    return models.decoder().shoot(_representation(turn), key.motion, **_settings(key), on_step=on_step)


def draw_turn_latent(
    decoder: ShotDecoder, turn: Turn, key: ShotKey, on_step: OnStep | None = None, start: StartLatent | None = None
) -> Tensor:
    """The latent of a turn's shot by its key: (1, C, T, H, W) as from `ShotDecoder.draw_latent`.

    start: the latent that the key was made with.
    """
    assert key.latent == ("" if start is None else start.digest)
    return decoder.draw_latent(_representation(turn), key.motion, **_settings(key), on_step=on_step, start=start)


def _representation(turn: Turn) -> Tensor:
    if turn.state.representation is None:
        raise ValueError(f"the representation of turn {turn.number} is not in memory; load the turn from its story")
    return turn.state.representation


def _settings(key: ShotKey) -> dict[str, typing.Any]:
    return {"seed": key.seed, "steps": key.steps, "guidance": key.guidance}
