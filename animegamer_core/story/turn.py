"""One turn: predict the state that follows a session, and draw it. The player and the nodes share this code."""

from __future__ import annotations

import typing
from dataclasses import dataclass

from ..game.state import GameSession, GameState, Turn
from ..runtime.models import Models, PlaySettings
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
    """The key of a turn's shot. settings: with steps and guidance. motion: in px per frame at 480 px height.

    seed: None is the turn's own. start: the latent that it starts from; None: from noise.
    """
    assert settings.steps is not None and settings.guidance is not None, "call with_preset first"
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
        on_step=on_step,
        start=start,
    )
    return decoder.to_vae(latents)
