"""Golden figures: the verb's rows, and what users do not see: masks, logits, hidden states, traces of the solver."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from animegamer_core.__main__ import main
from animegamer_core.evaluate.parity import Golden, gap, parity, recorded_engine, recorded_past
from animegamer_core.game.state import MOTION_TABLES, Turn
from animegamer_core.model.engine import additive_mask
from animegamer_core.model.prompt import parse_reply
from animegamer_core.model.sampler import Guidance, Schedule, guidance_scale, solve, train_table
from animegamer_core.spec import PROFILES

KEPT = Path(__file__).parents[1] / "golden"
WHOLE = Path(__file__).parents[3] / "shared" / "golden"
WAVE = Guidance("reference_wave")
NO_MOTION = 999.0  # the scripts' solver used the first timestep for a missing motion value
CHAINED = 5e-4  # more for each earlier turn that the engine drew itself: 4e-5 a turn grew to 2.3e-4

needs_whole = pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole set of figures is not beside this checkout")


@pytest.fixture(scope="module")
def golden(tmp_path_factory):
    return Golden(WHOLE if WHOLE.is_dir() else KEPT, tmp_path_factory.mktemp("worlds"))


def test_the_kept_figures_agree(capsys):
    assert main(["parity", str(KEPT)]) == 0
    out = capsys.readouterr().out
    assert "transformer" in out and "absent: e2e_io, mllm_state" in out


@needs_whole
def test_the_whole_set_agrees():
    rows, absent = parity(WHOLE)
    assert len(rows) == 10 and not absent
    assert all(difference <= tolerance for _, _, difference, tolerance in rows), rows
    assert {part: cases for part, cases, _, _ in rows}["representations"] == 9, "turns 1 to 4 of windows 1 to 3"


def test_a_folder_without_figures_is_no_parity(tmp_path, capsys):
    assert main(["parity", str(tmp_path)]) == 1
    assert main(["parity", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err
    assert gap(torch.zeros(2), torch.zeros(3)) == gap(torch.tensor([float("nan")]), torch.zeros(1)) == float("inf")


def test_the_samplers_tables_and_guidance(golden):
    recorded = golden.tensors("sampler")
    assert gap(train_table(), recorded["table1000.sqrt_alphas_cumprod_ascending"]) <= 1e-5
    for steps in map(int, golden.facts("sampler")["schedules"]):
        schedule = Schedule.of(steps, released=True)
        assert list(schedule.timesteps) == recorded[f"s{steps}.timesteps"].tolist()
        assert gap(schedule.sqrt_alphas, recorded[f"s{steps}.sqrt_alphas_cumprod"]) <= 1e-5
        assert gap(schedule.snapped_sqrt_alphas, recorded[f"s{steps}.quantized_sqrt_alphas_cumprod"]) <= 1e-5
        scales = [guidance_scale(WAVE.name, WAVE.strength, step, schedule) for step in range(steps)]
        assert gap(torch.tensor(scales, dtype=torch.float64), recorded[f"s{steps}.guidance"]) <= 1e-5


@pytest.mark.parametrize("name", ["run50_flow10", "run10_flow2.5", "run10_flownone"])
def test_the_solver_follows_its_recorded_traces(golden, name):
    recorded, run = golden.tensors("sampler"), golden.facts("sampler")["runs"][name]
    motion = NO_MOTION if run["flow"] is None else run["flow"]
    seen, clean = [], []

    def velocity(latents, timestep, alone):
        """The toy network of the recorded traces (docs/reference.md, recorded results)."""
        seen.append(latents)
        bias_C = recorded[f"{name}.aroutput"][0].mean(0) @ recorded["net.wc"]
        shift_2C = torch.cos(3 * timestep / 1000 + recorded["net.wt"]) + 0.01 * motion
        shift_2C = shift_2C + torch.stack([torch.zeros_like(bias_C), bias_C])
        hidden = torch.einsum("btchw,cd->btdhw", latents.expand(2, -1, -1, -1, -1), recorded["net.w1"])
        return torch.einsum("btchw,cd->btdhw", (hidden + shift_2C[:, None, :, None, None]).tanh(), recorded["net.w2"])

    draws = iter(recorded[f"{name}.draws"][::2])  # the scripts drew twice a step and used the second
    schedule = Schedule.of(run["steps"], released=True)
    on_step = lambda done, steps, now: clean.append(now)  # noqa: E731
    final = solve(velocity, recorded[f"{name}.x0"], schedule, WAVE, partial(next, draws), on_step)
    assert gap(final, recorded[f"{name}.final"]) <= 2e-5
    if f"{name}.x_in" in recorded:
        unconditional, conditional = recorded[f"{name}.denoised"].unbind(1)
        strength = torch.tensor(run["guidance"]).view(-1, 1, 1, 1, 1)
        assert gap(torch.cat(seen), recorded[f"{name}.x_in"]) <= 2e-5
        assert gap(torch.cat(clean), unconditional + strength * (conditional - unconditional)) <= 2e-5


def test_replies_are_read_as_recorded(golden):
    for text, levels in golden.facts("mllm_io")["parse_cases"]:
        assert list(parse_reply(text)) == levels


@needs_whole
@torch.inference_mode()
def test_the_vaes_chunks_are_not_one_pass(golden):
    recorded, decoder = golden.tensors("vae_io"), golden.world("vae").load_decoder(parts=("vae",))
    latents = recorded["decode.latent"].transpose(1, 2) * decoder.vae.config.scaling_factor
    single = decoder.decode_latents(latents[:, :1]).transpose(1, 2)
    assert gap(single, recorded["decode.single_frame"]) <= 2e-5
    assert gap(decoder.vae.encode(recorded["clip"]).latent_dist.logvar, recorded["encode.logvar"]) <= 2e-5
    chunked = decoder.decode_latents(latents)
    decoder.vae.num_latent_frames_batch_size = latents.shape[1]
    assert abs(gap(decoder.decode_latents(latents), chunked) - golden.facts("vae_io")["full_vs_chunked_max"]) <= 2e-5


@pytest.fixture(scope="module")
def engine(golden):
    return recorded_engine(golden)


@needs_whole
@torch.inference_mode()
def test_what_the_engine_computes_on_the_way(golden, engine, monkeypatch):
    facts, recorded = golden.facts("mllm_io"), golden.tensors("mllm_io")
    as_run = PROFILES["as_run"]
    with_states = replace(as_run, text_sees_states=True)
    seen = []
    hook = engine.llm.model.register_forward_hook(lambda _, __, output: seen.append(output.last_hidden_state[0]))
    for name, case in facts["cases"].items():
        past = recorded_past(facts, recorded, name)
        prompt = engine.prompt(past, case["instruction"])
        assert torch.equal(prompt.query_L, recorded[f"{name}.ids_gen_mask"].bool())
        assert torch.equal(prompt.past_L, recorded[f"{name}.ids_cmp_mask"].bool())
        assert torch.equal(1 - 2 * prompt.query_L.long(), recorded[f"{name}.attention_mask"].long())
        if f"{name}.mask4d_allowed" in recorded:
            mask = additive_mask(prompt.query_L[None], torch.float32)[0, 0]
            assert torch.equal(mask == 0, recorded[f"{name}.mask4d_allowed"].bool())
        if "same_as" in case:
            continue
        states = engine.past_states(past)
        seen.clear()
        engine.represent(prompt, states)
        assert gap(seen[0][int(prompt.query_L.nonzero()[0]) :], recorded[f"{name}.hidden_tail"]) <= 5e-5
        monkeypatch.setattr(engine, "profile", replace(as_run, aligned_queries=True))
        if f"{name}.vid_aligned" in recorded:
            assert gap(engine.represent(prompt, states), recorded[f"{name}.vid_aligned"][0]) <= 5e-5
        for profile, suffix in ((as_run, "as_run"), (with_states, "with_embeds")):
            monkeypatch.setattr(engine, "profile", profile)
            logits = engine.first_logits(prompt, states)[facts["logit_ids"]]
            assert gap(logits, recorded[f"{name}.first_logits_{suffix}"]) <= 5e-5
        monkeypatch.setattr(engine, "profile", with_states)
        assert engine.reply(prompt, states) == case["text_with_embeds"]
        monkeypatch.setattr(engine, "profile", as_run)
    hook.remove()


@needs_whole
def test_a_chain_of_turns_adds_only_rounding(golden, engine):
    """Each turn from the engine's own outputs; a window counts the turn itself."""
    facts, recorded = golden.facts("mllm_io"), golden.tensors("mllm_io")
    for window in (2, 3):
        history = []
        for number, line in enumerate(facts["P"]["lines"], 1):
            state = engine.predict(history[max(0, number - window) :], line)
            history.append(Turn(number, line, 0, state, {}))
            theirs = recorded.get(f"w{window}.turn{number}.vid_output")
            if theirs is not None:
                assert gap(state.representation, theirs[0]) <= 5e-5 + CHAINED * (number - 1)


@needs_whole
def test_the_recorded_levels_motion_value_is_the_tables(golden):
    facts = golden.facts("e2e_io")
    assert MOTION_TABLES["released"].value(facts["states"][0]) == float(facts["flow"])
