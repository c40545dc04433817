"""CFG parallel: the same shot as on one device, and both halves at the same time."""

import threading

import pytest
import torch

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.runtime.cfg_parallel import enable_cfg_parallel, replicas
from animegamer_core.spec import PROFILES, SPECS

TINY = SPECS["tiny"]
WAIT = 60  # seconds that one half waits for the other before the test fails


@pytest.fixture
def decoder():
    torch.manual_seed(2)
    decoder = ShotDecoder(TINY, PROFILES["paper"]).eval()
    decoder.unconditional_ND.normal_(generator=torch.Generator().manual_seed(3))
    return decoder


@pytest.fixture
def states():
    return torch.randn(2, TINY.state.tokens, TINY.state.width, generator=torch.Generator().manual_seed(0))


def sample(decoder, states, steps=4, guidance="constant"):
    motion, seeds = torch.tensor([2.5, 9.0])[: len(states)], [1, 2][: len(states)]
    return decoder.sample(states, motion, seeds, steps=steps, guidance=guidance)


def assert_same(latents, alone):
    """Up to rounding in float32, which guidance makes seven times as large at every step."""
    assert (latents - alone).pow(2).mean().sqrt() <= 1e-5 * alone.pow(2).mean().sqrt()


def conditions_of(transformer):
    """A list that grows by (thread, conditions) at each call of the transformer."""
    asked = []

    def note(_, __, given):
        asked.append((threading.current_thread(), given["encoder_hidden_states"].clone()))

    transformer.register_forward_pre_hook(note, with_kwargs=True)
    return asked


@pytest.mark.parametrize(("takes", "steps", "guidance"), [(2, 4, "constant"), (1, 20, "cosine")])
def test_two_devices_give_what_one_gives(decoder, states, takes, steps, guidance):
    """Cosine guidance ends with steps that leave the unconditional half out."""
    alone = sample(decoder, states[:takes], steps, guidance)
    enable_cfg_parallel(decoder, "cpu")
    assert_same(sample(decoder, states[:takes], steps, guidance), alone)


def test_the_unconditional_half_is_computed_elsewhere_and_at_the_same_time(decoder, states):
    replica = enable_cfg_parallel(decoder, "cpu").replica
    assert replica.transformer is not decoder.transformer
    ours, theirs = ({p.data_ptr() for p in one.transformer.parameters()} for one in (decoder, replica))
    assert theirs and not theirs & ours
    there, here = conditions_of(replica.transformer), conditions_of(decoder.transformer)
    sample(decoder, states[:1], steps=1)  # the first of a size is computed in turn
    meet = threading.Barrier(2, timeout=WAIT)

    def arrive(*_):
        meet.wait()

    for transformer in (replica.transformer, decoder.transformer):
        transformer.register_forward_pre_hook(arrive)
    sample(decoder, states[:1], steps=3)  # passes only if both halves compute at the same time
    assert len(there) == len(here) == 4
    for (thread, unconditional), (own_thread, conditional) in zip(there, here, strict=True):
        assert own_thread is threading.current_thread() and thread is not own_thread
        assert torch.equal(unconditional, decoder.unconditional_ND[None]) and torch.equal(conditional, states[:1])


@pytest.mark.parametrize("which", [0, 1])
def test_an_error_in_one_half_is_raised_and_the_next_shot_is_right(decoder, states, which):
    alone = sample(decoder, states[:1])
    enable_cfg_parallel(decoder, "cpu")

    def fail(*_):
        raise RuntimeError("out of memory")

    for _ in range(2):  # once while the size is new, once with both halves at work
        failing = replicas(decoder)[which].transformer.register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            sample(decoder, states[:1])
        failing.remove()
        assert_same(sample(decoder, states[:1]), alone)


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_two_gpus_give_what_one_gives(decoder, states):
    decoder.cuda()
    alone = sample(decoder, states)
    enable_cfg_parallel(decoder, "cuda:1")
    torch.testing.assert_close(sample(decoder, states), alone, rtol=0, atol=1e-4)
    with pytest.raises(ValueError, match="needs two GPUs"):
        enable_cfg_parallel(decoder, "cuda:0")
