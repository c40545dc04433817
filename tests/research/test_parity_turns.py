"""Parity of turns, each from its recorded past and all as a chain. The recordings are made here, by our engine."""

import json
import math
from dataclasses import replace

import pytest
import torch
from published_files import RANK, SPEC, engine_tensors, make_originals, write_mistral
from safetensors.torch import load_file, save_file

from animegamer_core.model import engine as engine_module
from animegamer_core.research.parity.golden import ParityRun, RecordedTokenizer
from animegamer_core.research.parity.rows import graded_row
from animegamer_core.research.parity.turns import CHAINED, ENGINE, chain_tolerance, engine_rows
from animegamer_core.spec import PROFILES
from animegamer_core.state import Turn

LINES = {1: "one", 2: "two", 3: "three", 4: "four"}
ROUNDING = 4e-5  # of a recording that one turn still agrees with


@pytest.fixture(scope="module")
def engine(tmp_path_factory):
    """An engine at a published vocabulary, whose turns depend much on the representations before them."""
    engine = make_originals(write_mistral(tmp_path_factory.mktemp("base") / "mistral")).engine
    engine.profile = PROFILES["as_run"]
    ids = {line: [engine.tokenizer.token("<TURN>"), 100 + number] for number, line in LINES.items()}
    engine.tokenizer = RecordedTokenizer(engine.tokenizer, ids)
    with torch.no_grad():
        for parameter in engine.project_out.parameters():
            parameter *= 4
        for layer in engine.llm.model.layers:
            layer.self_attn.v_proj.weight *= 5
            layer.self_attn.o_proj.weight *= 5
    return engine


@pytest.fixture(autouse=True)
def _short_replies(monkeypatch):
    monkeypatch.setattr(engine_module, "MAX_REPLY", 4)  # random weights write on and on


def record(folder, engine, rounding=0.0, windows=(1, 2, 3)):
    """The turns of some windows as the scripts play them, each off by so much before the next one reads it."""
    cases, tensors = {}, {}
    for window in windows:
        history = []
        for number, line in LINES.items():
            past = history[len(history) - window + 1 :] if window > 1 else []
            state = engine.predict(past, line)
            state = replace(state, representation=state.representation + rounding)
            name = f"w{window}.turn{number}"
            cases[name] = _case(engine, tensors, name, past, line, state)
            history.append(Turn(number, line, 0, state, {}))
    facts = {
        "P": {"heads": SPEC.engine.heads, "kv_heads": SPEC.engine.kv_heads, "lines": list(LINES.values())},
        "lora_alpha": RANK,
        "cases": cases,
        "parse_cases": [],
        "instruction_token_ids": {line: engine.tokenizer._recorded[line] for line in LINES.values()},
    }
    folder.mkdir()
    (folder / "mllm_io.json").write_text(json.dumps(facts))
    save_file(tensors, folder / "mllm_io.safetensors")
    save_file(engine_tensors(engine)[0], folder / "mllm_state.safetensors")
    return folder


def _case(engine, tensors, name, past, line, state):
    prompt = engine.prompt([(turn.instruction, engine.levels(turn.state)) for turn in past], line)
    tensors[f"{name}.input_ids"], tensors[f"{name}.ids_gen_mask"] = prompt.ids_L, prompt.query_L
    tensors[f"{name}.ids_cmp_mask"] = prompt.past_L
    tensors[f"{name}.attention_mask"] = 1 - 2 * prompt.query_L.long()
    tensors[f"{name}.vid_output"] = state.representation[None]
    states = engine.past_states(past)
    text = engine.reply(prompt, states)
    engine.profile = replace(PROFILES["as_run"], text_sees_states=True)
    with_states = engine.reply(prompt, states)
    engine.profile = PROFILES["as_run"]
    return {"instruction": line, "states": list(engine.levels(state)), "text": text, "text_with_embeds": with_states}


def compared(folder, tmp_path):
    """The rows of the engine by name."""
    return {row.part: row for row in engine_rows(ParityRun(folder, tmp_path / "scratch", None))}


def test_rounding_that_grows_along_a_chain_is_allowed_there_and_nowhere_else(engine, tmp_path):
    rows = compared(record(tmp_path / "golden", engine, ROUNDING), tmp_path)
    exact, chain = rows["representations as run"], rows["chain"]
    assert (exact.cases, exact.tolerance, chain.cases) == (12, ENGINE, 6)
    assert all(row.ok for row in rows.values()), rows
    assert exact.difference < 1.2 * ROUNDING
    assert chain.difference > 2 * ENGINE, "else this recording shows nothing"
    assert rows["prompts and masks"].cases == 12


@pytest.mark.parametrize("name", ["input_resampler.proj.0.bias", "output_resampler.proj.2.bias"])
def test_another_engine_than_the_recorded_one_fails_both(name, engine, tmp_path):
    folder = record(tmp_path / "golden", engine)
    path = folder / "mllm_state.safetensors"
    tensors = load_file(path)
    tensors[name] = tensors[name] + 0.02
    save_file(tensors, path)
    rows = compared(folder, tmp_path)
    assert not rows["representations as run"].ok and not rows["chain"].ok


def test_an_engine_that_reads_its_past_in_the_wrong_order_fails_both(engine, tmp_path, monkeypatch):
    folder = record(tmp_path / "golden", engine)
    real = engine_module.GameEngine.past_states
    monkeypatch.setattr(engine_module.GameEngine, "past_states", lambda self, past: real(self, past).flip(0))
    rows = compared(folder, tmp_path)
    assert not rows["representations as run"].ok and not rows["chain"].ok


def test_a_turn_is_read_from_another_window_only_where_both_read_the_same_past(engine, tmp_path):
    folder = record(tmp_path / "golden", engine, ROUNDING, windows=(2, 3))
    tensors = load_file(folder / "mllm_io.safetensors")
    for name in ("w3.turn1", "w3.turn2"):  # the same as of window 2, so the scripts' recording leaves them out
        del tensors[f"{name}.vid_output"]
    save_file(tensors, folder / "mllm_io.safetensors")
    facts = json.loads((folder / "mllm_io.json").read_text())
    facts["cases"]["w3.turn1"]["same_as"], facts["cases"]["w3.turn2"]["same_as"] = "w2.turn1", "w2.turn2"
    (folder / "mllm_io.json").write_text(json.dumps(facts))
    rows = compared(folder, tmp_path)
    assert rows["representations as run"].cases == 6 and rows["chain"].cases == 5
    assert rows["prompts and masks"].cases == 8
    del tensors["w3.turn3.vid_output"]  # window 2's third turn read one turn less
    save_file(tensors, folder / "mllm_io.safetensors")
    rows = compared(folder, tmp_path)
    assert rows["representations as run"].cases == 4, "turn 3 was not kept, and turn 4 has to read it"
    assert rows["chain"].cases == 4 and rows["chain"].ok


def test_a_graded_row_shows_the_case_that_is_nearest_to_what_it_may_be():
    assert chain_tolerance(3) == ENGINE + 3 * CHAINED
    near = graded_row("x", 1.0, [(0.1, 10.0), (0.05, 0.06), (0.4, 1.0)])
    assert (near.cases, near.difference, near.tolerance, near.ok) == (3, 0.05, 0.06, True)
    assert not graded_row("x", 1.0, [(0.1, 10.0), (0.07, 0.06)]).ok
    assert not graded_row("x", 1.0, [(math.nan, 10.0), (0.05, 0.06)]).ok
    assert graded_row("x", 1.0, []).absent and graded_row("x", 1.0, []).tolerance == 1.0
