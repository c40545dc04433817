"""Offloading: the plan at the published sizes, and turns at the tiny one.

There is no GPU here, so the CPU stands for it: weights "on the GPU" are copies of those "on the host".
"""

import gc
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.evaluate.benchmark.turn import INSTRUCTION, past_turns, random_models
from animegamer_core.runtime.offloading import GIB, MemoryPlan
from animegamer_core.runtime.offloading import memory_plan as memory_plan_module
from animegamer_core.runtime.offloading import stacks as stacks_module
from animegamer_core.runtime.offloading.budget import PREFETCHED, SPARE, plan_stack
from animegamer_core.spec import PROFILES, SPECS, get_spec

TINY = SPECS["tiny"]
DEEP = replace(TINY, engine=replace(TINY.engine, layers=7), decoder=replace(TINY.decoder, layers=5))
META = torch.device("meta")
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def release():
    """Engine and decoder of the published sizes in bfloat16, without memory."""
    return random_models(get_spec("release"), PROFILES["paper"], META, torch.bfloat16)


@pytest.fixture
def models():
    """A tiny engine and decoder with a few more blocks."""
    torch.manual_seed(3)
    return random_models(DEEP, PROFILES["paper"], CPU, torch.float32)


@pytest.fixture
def claimed(monkeypatch):
    """The CPU passes for a GPU, and prompts are short."""
    monkeypatch.setattr(memory_plan_module, "_cap_gpu_memory", lambda *_: None)
    monkeypatch.setattr(memory_plan_module, "PROMPT_TOKENS", 60)


def plan_budgets(model, budget_bytes):
    """The budget of each of a model's stacks, of which only sizes matter."""
    parts = memory_plan_module.stacks_of(model, budget_bytes)
    return [plan_stack(*part.sizes, budget_bytes) for part in parts]


def turn(engine, decoder):
    """A state and its shot."""
    state = engine.predict(past_turns(DEEP)[:1], INSTRUCTION)
    return state, decoder.shoot(state.representation, 10.0, seed=4, steps=2)


def budget_for(stack, count):
    """The smallest budget with `count` staying blocks of a stack."""
    size = stack.blocks[0]
    peak = stack.rest + stack.working + size * min(len(stack.blocks), count + PREFETCHED)
    return -(-peak * SPARE // (SPARE - 1)) + SPARE


# ---- budgets


@pytest.mark.parametrize(("gib", "least"), [(7.0, 9), (11.0, 18), (15.0, 27)])
def test_the_release_fits_gpus_of_8_12_and_16_gb(release, gib, least):
    stacks = {stack.name: stack for model in release for stack in plan_budgets(model, int(gib * GIB))}
    assert list(stacks) == ["engine", "transformer", "VAE"]
    assert all(stack.peak <= gib * GIB * (1 - 1 / SPARE) for stack in stacks.values())
    engine = stacks["engine"]
    assert len(engine.staying) >= least, "as many blocks stay as fit"
    gaps = {later - sooner for sooner, later in pairwise(engine.staying)}
    assert max(gaps) - min(gaps) <= 1, "evenly spaced"
    assert f"{len(engine.staying)} of 32 blocks stay" in engine.text and "GiB are copied" in engine.text
    assert engine.weights + stacks["transformer"].weights > gib * GIB, "they do not fit side by side"
    assert not stacks["transformer"].offloaded, "its 50 steps would copy it each time, and it fits"


@given(st.integers(0, 500), st.lists(st.integers(1, 99), max_size=12), st.integers(0, 500), st.integers(1, 3000))
def test_a_stack_keeps_to_its_budget_and_uses_it(rest, blocks, working, budget):
    try:
        stack = plan_stack("stack", rest, blocks, working, budget)
    except ValueError:
        largest = sorted(blocks)[-1:] * PREFETCHED
        assert rest + working + min(sum(blocks), sum(largest)) > budget - budget // SPARE
        return
    assert stack.peak <= budget - budget // SPARE
    assert sum(stack.offloaded) + sum(blocks[index] for index in stack.staying) == sum(blocks)
    if len(set(blocks)) == 1 and stack.offloaded:
        more = len(stack.staying) + 1
        held = rest + working + blocks[0] * min(len(blocks), more + PREFETCHED)
        assert held > budget - budget // SPARE, "one more block would have fitted"


def test_a_budget_too_small_says_what_it_takes(release):
    engine, _ = release
    said = r"the engine needs 3\.\d GiB .*, but the budget is 2\.0 GiB; give 3\.\d GiB"
    with pytest.raises(ValueError, match=said) as caught:
        plan_budgets(engine, 2 * GIB)
    needed = float(str(caught.value).split("needs ")[1].split()[0])
    plan_budgets(engine, int(needed * GIB))
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


# ---- turns


@pytest.mark.parametrize("count", [0, 3, 7])
def test_an_offloaded_turn_is_the_same_turn(models, claimed, count):
    engine, decoder = models
    decoder.tiled = True
    expected, frames = turn(engine, decoder)
    budget = max(budget_for(plan_budgets(engine, GIB)[0], count), least_for(decoder))
    memory_plan = MemoryPlan(CPU, budget)
    stacks = [*memory_plan.offload(engine), *memory_plan.offload(decoder)]
    for _ in range(2):  # the second begins with what the first left on the GPU
        state, again = turn(engine, decoder)
        assert torch.equal(state.representation, expected.representation) and state.change == expected.change
        assert torch.equal(again, frames)
    assert not any(tensor.is_meta for model in models for tensor in model.state_dict().values()) and len(stacks) == 3


def least_for(decoder):
    """The smallest budget for both stacks of a decoder."""
    return max(budget_for(stack, 0) if stack.blocks else least_budget(stack) for stack in plan_budgets(decoder, GIB))


def least_budget(stack):
    return -(-stack.peak * SPARE // (SPARE - 1)) + SPARE


def test_memory_keeps_to_the_budget_at_every_layer(models, claimed):
    engine, decoder = models
    decoder.tiled = True
    stack = plan_budgets(engine, GIB)[0]
    budget = max(budget_for(stack, 3), least_for(decoder))
    memory_plan = MemoryPlan(CPU, budget)
    stacks = {stack.name: stack for model in models for stack in memory_plan.offload(model)}
    parts = (engine.llm, decoder.transformer, decoder.vae)
    tensors = [tensor for part in parts for tensor in stacks_module.tensors_of(part)]
    waiting = {tensor.data_ptr() for tensor in tensors}

    def on_gpu():
        return sum(tensor.nbytes for tensor in tensors if tensor.data_ptr() not in waiting)

    seen = []
    owners = {"engine": engine.llm.model.layers, "transformer": decoder.transformer.transformer_blocks}
    owners["VAE"] = decoder.vae.decoder.up_blocks
    for name, blocks in owners.items():
        for block in blocks:
            block.register_forward_pre_hook(lambda *_, name=name: seen.append((name, on_gpu())))
    for _ in range(2):
        turn(engine, decoder)
    assert {name for name, _ in seen} == set(stacks)
    usable = budget - budget // SPARE
    for name, held in seen:
        stack = stacks[name]
        # On the CPU an offloaded block is used where it is, so its memory counts as free here.
        window = stack.weights - stack.rest - sum(stack.blocks[index] for index in stack.staying)
        assert held + window + stack.working <= usable and held >= stack.weights - window


def test_weights_for_which_there_is_room_stay_between_turns(models, claimed):
    engine, decoder = models
    decoder.tiled = True
    stacks = {stack.name: stack for model in models for stack in plan_budgets(model, GIB)}
    three = 3 * min(stacks["engine"].blocks)  # three blocks of the engine may stay beside the hungriest stack
    memory_plan = MemoryPlan(CPU, max(map(least_budget, stacks.values())) + three * 2)
    for model in models:
        memory_plan.offload(model)
    turn(engine, decoder)
    held = {stack.budget.name: stack.cached_bytes for stack in memory_plan._stacks}
    assert held["engine"] >= three and held["VAE"] == stacks["VAE"].weights, "what is needed next stays"


def test_a_decoder_decodes_in_tiles_if_it_has_to(models, claimed):
    engine, decoder = models
    whole = stacks_module.total_bytes(stacks_module.tensors_of(decoder.vae)) + decoder.working_bytes
    MemoryPlan(CPU, whole * SPARE // (SPARE - 1) - SPARE).offload(decoder)
    assert decoder.tiled


def test_a_gpu_that_others_use_is_refused_and_a_free_one_capped(monkeypatch):
    capped = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (3 * GIB, 8 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 2 * GIB)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", capped.append)
    with pytest.raises(ValueError, match=r"cuda has 5\.0 GiB free, but the budget is 7\.0 GiB; close other"):
        MemoryPlan(torch.device("cuda"), 7 * GIB)
    assert not capped
    MemoryPlan(torch.device("cuda"), 4 * GIB)
    assert capped == [0.5]


# ---- the real thing


@pytest.mark.gpu
@pytest.mark.parametrize(("gib", "pinned"), [(7.0, True), (7.0, False), (11.0, True), (15.0, True)])
def test_a_turn_of_the_release_keeps_to_a_small_gpu(gib, pinned, monkeypatch):
    """Random weights at the published sizes, the whole turn."""
    device = torch.device("cuda")
    gc.collect()  # offloaded models are in reference cycles: the last test's still hold GPU memory
    torch.cuda.empty_cache()
    engine, decoder = random_models(get_spec("release"), PROFILES["paper"], device, torch.bfloat16)
    try:
        monkeypatch.setattr(memory_plan_module, "_host_can_pin", lambda weights: pinned)
        memory_plan = MemoryPlan(device, int(gib * GIB))
        memory_plan.offload(engine)
        memory_plan.offload(decoder)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        for _ in range(3):  # the first learns the order of the blocks
            state = engine.predict(past_turns(engine.spec), INSTRUCTION)
            frames = decoder.shoot(state.representation, 10.0, seed=1)
        assert torch.cuda.max_memory_reserved(device) <= gib * GIB
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert frames.isfinite().all()
