"""Weights that pass through a card: the plan at the published sizes, and turns at the tiny one.

There is no GPU here, so the tiny card is the CPU itself: what lies on it is a copy of what waits, which tells them
apart. How blocks are copied ahead is seen on the library's own groups, with a stream that does nothing.
"""

import copy
import gc
import sys
import time
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from diffusers.hooks import group_offloading
from hypothesis import given
from hypothesis import strategies as st
from live_bytes import LiveBytes

from animegamer_core.bench.turn import INSTRUCTION, past_turns, random_models
from animegamer_core.engine import additive_mask
from animegamer_core.spec import PROFILES, SPECS, get_spec
from animegamer_core.streaming import GIB, Card, is_streamed, plan
from animegamer_core.streaming import card as room
from animegamer_core.streaming.shares import AHEAD, SPARE, plan_share, prefill_bytes
from animegamer_core.tuning import tune

TINY = SPECS["tiny"]
DEEP = replace(TINY, engine=replace(TINY.engine, layers=7), decoder=replace(TINY.decoder, layers=5))
PROMPT = 60
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
    """The CPU passes for a GPU."""
    monkeypatch.setattr(room, "_claim", lambda *_: None)


def turn(engine, decoder):
    """A state and its shot."""
    state = engine.predict(past_turns(DEEP)[:1], INSTRUCTION)
    return state, decoder.shoot(state.representation, 10.0, seed=4, steps=2)


def budget_for(share, count):
    """The smallest budget that lets `count` blocks of a share stay."""
    size = share.blocks[0]
    peak = share.rest + share.working + size * min(len(share.blocks), count + AHEAD)
    return -(-peak * SPARE // (SPARE - 1)) + SPARE


# ---- the plan


@pytest.mark.parametrize(("gib", "least"), [(7.0, 9), (11.0, 18), (15.0, 27)])
def test_the_release_fits_cards_of_8_12_and_16_gb(release, gib, least):
    shares = {share.name: share for model in release for share in plan(model, int(gib * GIB))}
    assert list(shares) == ["engine", "transformer", "VAE"]
    assert all(share.peak <= gib * GIB * (1 - 1 / SPARE) for share in shares.values())
    assert len(shares["engine"].staying) >= least, "what the budget holds stays, which saves passages"
    assert shares["engine"].weights + shares["transformer"].weights > gib * GIB, "they do not fit side by side"
    assert not shares["transformer"].passing, "50 steps pass through it, and it fits"


def test_the_estimates_hold_what_a_pass_needs(release):
    """Counted on the meta device, tensor by tensor; workspaces of kernels are beyond it, and SPARE's matter."""
    engine, decoder = release
    length, spec = 6000, engine.spec
    embeds = torch.empty(1, length, spec.engine.hidden, dtype=torch.bfloat16, device=META)
    query = torch.zeros(1, length, dtype=torch.bool, device=META)
    with torch.inference_mode(), LiveBytes() as reading:
        mask = additive_mask(query, ~query, embeds.dtype)
        output = engine.llm.model(inputs_embeds=embeds, attention_mask=mask, use_cache=True)
    with torch.inference_mode(), LiveBytes() as choosing:
        engine.llm.model(input_ids=query[:, :3].long(), past_key_values=output.past_key_values, use_cache=True)
    estimate = prefill_bytes(spec, length, 2)
    assert reading.peak + embeds.nbytes < estimate < 1.3 * reading.peak
    kept = sum(layer.keys.nbytes + layer.values.nbytes for layer in output.past_key_values.layers)
    assert choosing.peak + kept / len(engine.llm.model.layers) < estimate

    shares = {share.name: share for share in plan(decoder, 7 * GIB)}
    latents = torch.empty(2, *spec.decoder.latent_shape, device=META)
    states = torch.empty(2, spec.state.tokens, spec.state.width, device=META)
    with torch.inference_mode(), LiveBytes() as sampling:
        decoder.velocity(latents, latents[:, 0, 0, 0, 0], states, states[:, 0, 0])
    assert sampling.peak < shares["transformer"].working < 2 * sampling.peak
    tiled = copy.copy(decoder)
    tiled.tiled = True
    with LiveBytes() as decoding:
        tiled.decode_latents(latents[:1])
    assert 1.3 * decoding.peak < shares["VAE"].working < 1.8 * decoding.peak, "gaps took a third more on an H200"


def test_a_whole_decode_is_planned_where_it_fits(release):
    _, decoder = release
    small, large = ({share.name: share for share in plan(decoder, gib * GIB)} for gib in (7, 24))
    assert small["VAE"].working == decoder.tiled_bytes < large["VAE"].working == decoder.working_bytes
    assert not decoder.tiled, "a plan changes nothing"


@given(st.integers(0, 500), st.lists(st.integers(1, 99), max_size=12), st.integers(0, 500), st.integers(1, 3000))
def test_no_share_passes_its_budget_and_none_wastes_it(rest, blocks, working, budget):
    try:
        share = plan_share("stack", rest, blocks, working, budget)
    except ValueError:
        largest = sorted(blocks)[-1:] * AHEAD
        assert rest + working + min(sum(blocks), sum(largest)) > budget - budget // SPARE
        return
    assert share.peak <= budget - budget // SPARE
    assert sum(share.passing) + sum(blocks[index] for index in share.staying) == sum(blocks)
    if len(set(blocks)) == 1 and share.passing:
        more = len(share.staying) + 1
        held = rest + working + blocks[0] * min(len(blocks), more + AHEAD)
        assert held > budget - budget // SPARE, "one more block would have fitted"


def test_a_budget_too_small_says_what_it_takes(release):
    engine, _ = release
    with pytest.raises(
        ValueError, match=r"the engine needs 3\.\d GiB .*, and 2\.0 GiB are given; give 3\.\d GiB"
    ) as caught:
        plan(engine, 2 * GIB)
    needed = float(str(caught.value).split("needs ")[1].split()[0])
    plan(engine, int(needed * GIB))
    assert len(str(caught.value)) < 250 and "\n" not in str(caught.value)


def test_staying_blocks_stand_evenly_apart(release):
    share = plan(release[0], 7 * GIB)[0]
    gaps = [later - sooner for sooner, later in zip(share.staying, share.staying[1:], strict=False)]
    assert max(gaps) - min(gaps) <= 1
    assert f"{len(share.staying)} of 32 blocks stay" in share.text and "GiB pass through" in share.text


# ---- turns


@pytest.mark.parametrize("count", [0, 1, 3, 7])
def test_a_streamed_turn_is_the_same_turn(models, claimed, count):
    engine, decoder = models
    decoder.tiled = True
    expected, frames = turn(engine, decoder)
    budget = max(budget_for(plan(engine, GIB, prompt_tokens=PROMPT)[0], count), least_for(decoder))
    card = Card(CPU, budget, prompt_tokens=PROMPT)
    shares = [*card.stream(engine), *card.stream(decoder)]
    assert is_streamed(engine) and is_streamed(decoder)
    for _ in range(2):  # the second finds the card as the first left it
        state, again = turn(engine, decoder)
        assert torch.equal(state.representation, expected.representation) and state.levels == expected.levels
        assert torch.equal(again, frames)
    assert not any(tensor.is_meta for model in models for tensor in model.state_dict().values())
    assert card.held_bytes <= budget and len(shares) == 3


@pytest.mark.parametrize("name", ["reference", "as_run"])
def test_a_reply_of_many_passes_is_the_same_reply(claimed, name):
    torch.manual_seed(8)
    engine, _ = random_models(DEEP, PROFILES[name], CPU, torch.float32)
    expected = engine.predict(past_turns(DEEP)[:1], INSTRUCTION)
    Card(CPU, budget_for(plan(engine, GIB, prompt_tokens=PROMPT)[0], 2), prompt_tokens=PROMPT).stream(engine)
    for _ in range(2):
        state = engine.predict(past_turns(DEEP)[:1], INSTRUCTION)
        assert torch.equal(state.representation, expected.representation) and state.said == expected.said


def test_a_tuned_decoder_streams(models, claimed):
    _, decoder = models
    tune(decoder, ["fused", "layout"])
    decoder.tiled = True
    state, motion = torch.randn(1, DEEP.state.tokens, DEEP.state.width), torch.tensor([3.0])
    expected = decoder.decode_latents(decoder.sample(state, motion, [7], steps=2))
    share = plan(decoder, GIB)[0]
    Card(CPU, max(budget_for(share, 1), least_for(decoder))).stream(decoder)
    assert torch.equal(decoder.decode_latents(decoder.sample(state, motion, [7], steps=2)), expected)


def least_for(decoder):
    """The smallest budget that both stacks of a decoder run in."""
    return max(budget_for(share, 0) if share.blocks else share_budget(share) for share in plan(decoder, GIB))


def share_budget(share):
    return -(-share.peak * SPARE // (SPARE - 1)) + SPARE


def on_card(stack_tensors, waiting):
    return sum(tensor.nbytes for tensor in stack_tensors if tensor.data_ptr() not in waiting)


def test_what_is_on_the_card_keeps_to_the_budget_at_every_layer(models, claimed):
    engine, decoder = models
    decoder.tiled = True
    share = plan(engine, GIB, prompt_tokens=PROMPT)[0]
    budget = max(budget_for(share, 3), least_for(decoder))
    card = Card(CPU, budget, prompt_tokens=PROMPT)
    shares = {share.name: share for model in models for share in card.stream(model)}
    tensors = [
        *room._tensors(engine.llm),
        *room._tensors(decoder.transformer),
        *room._tensors(decoder.vae),
    ]
    waiting = {tensor.data_ptr() for tensor in tensors}
    assert not card.held_bytes
    seen = []
    owners = {"engine": engine.llm.model.layers, "transformer": decoder.transformer.transformer_blocks}
    owners["VAE"] = decoder.vae.decoder.up_blocks
    for name, blocks in owners.items():
        for block in blocks:
            block.register_forward_pre_hook(lambda *_, name=name: seen.append((name, on_card(tensors, waiting))))
    for _ in range(2):
        turn(engine, decoder)
    assert {name for name, _ in seen} == set(shares)
    usable = budget - budget // SPARE
    for name, held in seen:
        share = shares[name]
        # On the CPU a passing block is used where it waits, so its room on the card is seen as free here.
        window = share.weights - share.rest - sum(share.blocks[index] for index in share.staying)
        assert held + window + share.working <= usable
        assert held >= share.weights - window


def moved(monkeypatch, engine, decoder, turns):
    """Bytes that come to the card in each of some turns, passing blocks left out."""
    arrived, enter = [], room._Unit.enter

    def counted(unit, device):
        arrived.append(0 if unit.here else unit.bytes)
        enter(unit, device)

    monkeypatch.setattr(room._Unit, "enter", counted)
    told = []
    for _ in range(turns):
        turn(engine, decoder)
        told.append(sum(arrived))
        arrived.clear()
    return told


def test_nothing_moves_where_all_fits_side_by_side(models, claimed, monkeypatch):
    engine, decoder = models
    card = Card(CPU, GIB, prompt_tokens=PROMPT)
    weights = sum(share.weights for model in models for share in card.stream(model))
    first, second = moved(monkeypatch, engine, decoder, 2)
    assert first == weights == card.held_bytes and second == 0
    assert not decoder.tiled


def test_only_what_has_to_leave_comes_back(models, claimed, monkeypatch):
    engine, decoder = models
    decoder.tiled = True
    shares = [share for model in models for share in plan(model, GIB, prompt_tokens=PROMPT)]
    weights = {share.name: share.weights for share in shares}
    most = max(share_budget(share) for share in shares)
    three = 3 * min(shares[0].blocks)  # three blocks of the engine may stay beside the hungriest stack
    card = Card(CPU, most + three * 2, prompt_tokens=PROMPT)
    for model in models:
        card.stream(model)
    told = moved(monkeypatch, engine, decoder, 3)
    assert told[0] == sum(weights.values())
    assert told[1] == told[2] < told[0], "every turn like the one before, and cheaper than the first"
    held = {stack.share.name: stack.held_bytes for stack in card._stacks}
    assert held["engine"] >= three and held["VAE"] == weights["VAE"], "what is needed next stays, as far as it may"


def test_the_engine_comes_when_it_reads_and_goes_when_the_shot_is_drawn(models, claimed):
    engine, decoder = models
    decoder.tiled = True
    budget = max(share_budget(share) for model in models for share in plan(model, GIB, prompt_tokens=PROMPT))
    card = Card(CPU, budget, prompt_tokens=PROMPT)
    for model in models:
        card.stream(model)
    held = {stack.share.name: stack for stack in card._stacks}
    state = engine.predict((), INSTRUCTION)
    assert held["engine"].held_bytes and not held["transformer"].held_bytes
    decoder.decode_latents(decoder.sample(state.representation[None], torch.tensor([1.0]), [0], steps=1))
    assert held["VAE"].held_bytes
    engine.predict((), INSTRUCTION)
    assert held["engine"].held_bytes == held["engine"].share.weights
    assert engine.project_in[0].weight.device == decoder.unconditional_ND.device == card.device


def test_what_tells_a_models_device_stays_on_the_card(models):
    engine, decoder = models
    for model, names in ((engine, {"project_in", "project_out"}), (decoder, {"unconditional_ND"})):
        outside = room._outside(model, room._parts(model, PROMPT, GIB))
        told = {id(tensor) for name in names for tensor in tensors_of(model, name)}
        assert {id(tensor) for tensor in outside} == told


def tensors_of(model, name):
    part = getattr(model, name)
    return room._tensors(part) if isinstance(part, torch.nn.Module) else [part]


def test_whole_decodes_turn_into_tiled_ones_where_they_must(models, claimed):
    engine, decoder = models
    whole = room._bytes(room._tensors(decoder.vae)) + decoder.working_bytes
    Card(CPU, whole * SPARE // (SPARE - 1) - SPARE, prompt_tokens=PROMPT).stream(decoder)
    assert decoder.tiled


@pytest.mark.parametrize("gib", [1, 64])
def test_a_host_without_the_memory_to_pin_weights_says_so(models, claimed, monkeypatch, gib):
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: {"cpu": gib * GIB})
    (share,) = Card(CPU, GIB).stream(models[0])
    assert share.pinned == (gib == 64) == ("the host lacks the memory to pin its weights" not in share.text)


def test_a_model_is_streamed_once(models, claimed):
    engine, _ = models
    Card(CPU, GIB).stream(engine)
    with pytest.raises(ValueError, match="streamed already"):
        Card(CPU, GIB).stream(engine)


def test_a_device_that_is_no_gpu_is_refused():
    with pytest.raises(ValueError, match="memory of an NVIDIA or AMD GPU, and the device is cpu"):
        Card(CPU, GIB)


def test_a_gpu_that_others_use_is_refused_and_a_free_one_capped(monkeypatch):
    capped = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda *_: (3 * GIB, 8 * GIB))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda *_: 2 * GIB)
    monkeypatch.setattr(torch.cuda, "set_per_process_memory_fraction", capped.append)
    with pytest.raises(ValueError, match=r"cuda has 5\.0 GiB to give, and 7\.0 GiB were asked for; close other"):
        Card(torch.device("cuda"), 7 * GIB)
    assert not capped
    Card(torch.device("cuda"), 4 * GIB)
    assert capped == [0.5]


# ---- copying ahead


class NoStream:
    """Stands for a stream and for the backend that makes it."""

    def __init__(self, *_):
        pass

    def synchronize(self):
        pass

    Stream = current_stream = lambda self: NoStream()

    def stream(self, _):
        return nullcontext()


@pytest.fixture
def streams(monkeypatch):
    """The library's groups with such a stream on the CPU, and their events: `in` or `out`, and the block."""
    events = []

    def apply(module, onload_device, num_blocks_per_group, **_):
        config = group_offloading.GroupOffloadingConfig(
            onload_device=onload_device,
            offload_device=torch.device("cpu", 0),  # not the same as "cpu": the library asks where a block is
            offload_type=group_offloading.GroupOffloadingType.BLOCK_LEVEL,
            non_blocking=False,
            record_stream=False,
            low_cpu_mem_usage=True,
            num_blocks_per_group=num_blocks_per_group,
            stream=NoStream(),
        )
        group_offloading._apply_group_offloading(module, config)

    def noted(name, plain):
        def method(group):
            if group.stream is not None:
                events.append((name, id(group.modules[0])))
            plain(group)

        return method

    monkeypatch.setattr(group_offloading, "TorchDeviceBackend", NoStream)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda *_: True)
    monkeypatch.setattr(room, "apply_group_offloading", apply)
    for name, method in (("in", "onload_"), ("out", "offload_")):
        plain = getattr(group_offloading.ModuleGroup, method)
        monkeypatch.setattr(group_offloading.ModuleGroup, method, noted(name, plain))
    return events


def test_the_next_block_is_copied_while_this_one_computes(models, claimed, streams, caplog):
    engine, decoder = models
    share = plan(engine, GIB, prompt_tokens=PROMPT)[0]
    Card(CPU, budget_for(share, 2), prompt_tokens=PROMPT).stream(engine)
    staying = plan(engine, budget_for(share, 2), prompt_tokens=PROMPT)[0].staying
    layers = engine.llm.model.layers
    passing = [index for index in range(7) if index not in staying]
    assert len(passing) == 5
    names = {id(layer): index for index, layer in enumerate(layers)}
    read = (engine.prompt([], INSTRUCTION), torch.zeros(0, DEEP.state.tokens, DEEP.state.width))
    engine.represent(*read)  # the first pass learns the order
    streams.clear()
    engine.represent(*read)
    events = [(name, names[module]) for name, module in streams]
    for sooner, later in zip(passing, passing[1:], strict=False):
        assert events.index(("in", later)) < events.index(("out", sooner)), "copied before the one before it is done"
    on_card = peak = 0
    for name, _ in events:
        on_card += 1 if name == "in" else -1
        peak = max(peak, on_card)
    assert peak == AHEAD and on_card == 0
    assert [index for name, index in events if name == "in"] == passing, "each comes once a pass"
    assert not caplog.records, "the library found all layers that it waited for"


# ---- the real thing


@pytest.mark.gpu
@pytest.mark.parametrize(("gib", "pinned"), [(7.0, True), (7.0, False), (11.0, True), (15.0, True)])
def test_a_turn_of_the_release_keeps_to_a_small_card(gib, pinned, capsys):
    """Random weights at the published sizes, the whole turn; prints what torch set aside at most."""
    device = torch.device("cuda")
    gc.collect()  # streamed models hold themselves: those of the row before still lie on the card
    torch.cuda.empty_cache()
    engine, decoder = random_models(get_spec("release"), PROFILES["paper"], device, torch.bfloat16)
    try:
        card = Card(device, int(gib * GIB), pinned=pinned)
        shares = [*card.stream(engine), *card.stream(decoder)]
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        seconds = []
        for _ in range(3):  # the first learns the order of the blocks
            begun = time.perf_counter()
            state = engine.predict(past_turns(engine.spec), INSTRUCTION)
            torch.cuda.synchronize()
            predicted = time.perf_counter()
            frames = decoder.shoot(state.representation, 10.0, seed=1)
            torch.cuda.synchronize()
            seconds.append((predicted - begun, time.perf_counter() - predicted))
        reserved = torch.cuda.max_memory_reserved(device) / GIB
        allocated = torch.cuda.max_memory_allocated(device) / GIB
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    with capsys.disabled():
        sys.stdout.write(
            f"\n{gib} GiB: reserved {reserved:.2f}, allocated {allocated:.2f} GiB; engine, shot seconds {seconds}\n"
        )
        sys.stdout.write("\n".join(share.text for share in shares) + "\n")
    assert reserved <= gib
    assert frames.isfinite().all()
