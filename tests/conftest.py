"""Tiny real models and a tiny world, made once a test run with fixed seeds."""

import os
import signal

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing here may reach for a model hub

import pytest
import torch
from hypothesis import settings

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.toybox.sentences import vocabulary

# The same examples in every run, so that a change is judged by what it changed; `--hypothesis-profile hunt` looks for
# new ones, and what it finds becomes an @example.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("hunt", max_examples=2000, deadline=None)
settings.load_profile("same")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background; tests interrupt themselves
    signal.signal(signal.SIGINT, signal.default_int_handler)

torch.set_num_threads(1)  # models this small only wait for one another on several threads


@pytest.fixture
def endpoint_key(monkeypatch):
    """A key for a stub of an endpoint, which is asked with no proxy between and asked again at once."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def tiny_tokenizer():
    return GameTokenizer.from_words(vocabulary(), SPECS["tiny"].state.tokens)


@pytest.fixture(scope="session")
def tiny_engine(tiny_tokenizer):
    torch.manual_seed(1)
    return GameEngine(SPECS["tiny"], tiny_tokenizer, PROFILES["paper"]).eval()


@pytest.fixture(scope="session")
def tiny_decoder():
    torch.manual_seed(2)
    return ShotDecoder(SPECS["tiny"], PROFILES["paper"]).eval()


@pytest.fixture(scope="session")
def tiny_encoder(tiny_tokenizer):
    torch.manual_seed(3)
    return ShotEncoder(SPECS["tiny"], tiny_tokenizer.backend).eval()
