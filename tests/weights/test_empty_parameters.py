"""Models without memory for their parameters are built in one thread; others build theirs as usual meanwhile."""

import threading

import pytest
from accelerate import init_empty_weights
from torch import nn

from animegamer_core.weights.parts import build_model, empty_parameters

WAIT_S = 20.0


@pytest.fixture(autouse=True)
def untouched():
    """Whatever happens, torch's own method is there afterwards, and models have memory."""
    before = nn.Module.register_parameter
    yield
    left, nn.Module.register_parameter = nn.Module.register_parameter, before
    assert left is before
    assert not nn.Linear(2, 2).weight.is_meta


def in_thread(build):
    """(event that lets it go on, function that waits for its model): a thread that builds a model, and waits within."""
    inside, go_on, made = threading.Event(), threading.Event(), []

    def wait_within():
        inside.set()
        assert go_on.wait(WAIT_S)
        return build()

    thread = threading.Thread(target=lambda: made.append(build_model(wait_within)))
    thread.start()
    assert inside.wait(WAIT_S)

    def model():
        go_on.set()
        thread.join(WAIT_S)
        return made[0]

    return model


def test_parameters_are_empty_and_buffers_are_not():
    model = build_model(lambda: nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    assert all(value.is_meta for value in model.parameters())
    assert not any(value.is_meta for value in model.buffers()) and model[1].running_var.tolist() == [1, 1, 1]
    frozen = build_model(lambda: nn.ParameterDict({"a": nn.Parameter(nn.Linear(2, 2).weight, requires_grad=False)}))
    assert frozen["a"].is_meta and not frozen["a"].requires_grad


def test_another_threads_models_have_memory_meanwhile():
    finish = in_thread(lambda: nn.Linear(3, 3))
    assert not nn.Linear(2, 2).weight.is_meta
    assert finish().weight.is_meta


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_two_threads_that_overlap_leave_nothing_behind(first_ends_first):
    one, two = in_thread(lambda: nn.Linear(3, 3)), in_thread(lambda: nn.Linear(4, 4))
    for finish in (one, two) if first_ends_first else (two, one):
        assert finish().weight.is_meta


def test_it_can_stand_within_itself_and_ends_after_an_error():
    with pytest.raises(RuntimeError, match="no"), empty_parameters():
        with empty_parameters():
            assert nn.Linear(2, 2).weight.is_meta
        assert nn.Linear(2, 2).weight.is_meta
        raise RuntimeError("no")


def test_what_another_library_replaced_meanwhile_does_no_harm():
    """accelerate's own context, as transformers and diffusers open it, begins in ours and ends after it."""
    before = nn.Module.register_parameter
    ours, theirs = empty_parameters(), init_empty_weights(include_buffers=False)
    with ours:
        theirs.__enter__()
    assert nn.Linear(2, 2).weight.is_meta, "still theirs"
    theirs.__exit__(None, None, None)
    assert not nn.Linear(2, 2).weight.is_meta
    with empty_parameters():
        assert nn.Linear(2, 2).weight.is_meta
    assert nn.Module.register_parameter is before
