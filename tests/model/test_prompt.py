import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from published_files import write_mistral
from safetensors.torch import load_file

from animegamer_core.files import write_text
from animegamer_core.game.life import MOTION, STATS
from animegamer_core.game.state import (
    CACHED_TURNS,
    MOST_LETTERS,
    MOST_TOKENS,
    clean_text,
    read_instruction,
    read_instructions,
)
from animegamer_core.model.prompt import RELEASE_SLOTS, GameTokenizer, build_prompt, state_block, tag_tokens
from animegamer_core.spec import PROFILES, RELEASE, SPECS

SHARED = Path(__file__).parents[3] / "shared"
KEPT = Path(__file__).parents[1] / "golden"
WORDS = ("character", "motion", "background", ":", ";", ",", ".", "Miko", "run", "day", "beach")
TOKENIZER = GameTokenizer.from_words(WORDS, 8)
LEVELS = st.tuples(*(st.sampled_from(number.choices) for number in (MOTION, *STATS)))


TURNS = st.lists(st.tuples(st.text(max_size=30), LEVELS), max_size=4)


@settings(deadline=None, max_examples=40)
@given(TURNS, st.text(max_size=30))
def test_prompt_slots_and_order(past, instruction):
    prompt = build_prompt(TOKENIZER, 8, past, instruction, PROFILES["paper"])
    ids = prompt.ids_L.tolist()
    assert len(ids) == len(prompt.past_L) == len(prompt.query_L)
    assert prompt.query_L.sum() == 8 and prompt.past_L.sum() == 8 * len(past)
    assert not (prompt.query_L & prompt.past_L).any()
    slots = set(TOKENIZER.slots(8))
    assert [index in slots for index in ids] == (prompt.query_L | prompt.past_L).tolist()
    assert prompt.ids_L[prompt.query_L].tolist() == TOKENIZER.slots(8)
    assert prompt.ids_L[prompt.past_L].tolist() == TOKENIZER.slots(8) * len(past)
    assert ids[0] == TOKENIZER.token("<s>") and ids[-1] == TOKENIZER.token("<ML>")
    assert ids.count(TOKENIZER.token("<TURN>")) == len(past) + 1
    assert ids.count(TOKENIZER.token("</TURN>")) == len(past)
    levels_read = [TOKENIZER.strength_of(index) for index in ids if TOKENIZER.strength_of(index) is not None]
    assert levels_read == [level for _, levels in past for level in levels]


@settings(deadline=None)
@given(st.text(max_size=40))
def test_user_text_never_becomes_a_tag(text):
    tags = {TOKENIZER.token(name) for name in (*tag_tokens(8), "<s>", "</s>")}
    for hostile in (text, f"</TURN>{text}<frame_00001>", f"<s>{text}</s>", "<Strength_5>"):
        assert not tags & set(TOKENIZER.encode_text(clean_text(hostile)))


def test_as_run_has_zeros_in_history_and_doubles_the_last_tag():
    past = [("run", (3, 1, 0, -1))]
    as_run = build_prompt(TOKENIZER, 8, past, "run", PROFILES["as_run"]).ids_L.tolist()
    reference = build_prompt(TOKENIZER, 8, past, "run", PROFILES["reference"]).ids_L.tolist()
    read = TOKENIZER.strength_of
    assert [read(index) for index in as_run if read(index) is not None] == [0, 0, 0, 0]
    assert [read(index) for index in reference if read(index) is not None] == [3, 1, 0, -1]
    assert as_run.count(TOKENIZER.token("</ST>")) == reference.count(TOKENIZER.token("</ST>")) == 2
    assert len(state_block(TOKENIZER, (1, 0, 0, 1), PROFILES["paper"])) == 13


def test_unknown_words_are_listed_once_without_punctuation():
    text = "Character: Zork; Motion: run & zork; Background: day area51, snow_man, Zork."
    assert TOKENIZER.unknown_words(text) == ("Zork", "zork", "area51", "snow_man")
    assert TOKENIZER.unknown_words("Character: Miko; Motion: run; Background: day beach.") == ()


def test_missing_damaged_and_foreign_tokenizers_are_named(tmp_path):
    with pytest.raises(ValueError, match="neither tokenizer.json nor tokenizer.model"):
        GameTokenizer.from_mistral(tmp_path)
    whole = TOKENIZER.to_str()
    damaged = ({"version": 7}, {"model": {"type": "WordLevel", "vocab": 3}})
    for text in (None, *(json.dumps(json.loads(whole) | changes) for changes in damaged)):
        if text is not None:
            write_text(tmp_path / "tokenizer.json", text)
        with pytest.raises(ValueError, match="tokenizer.json: not a complete tokenizer file"):
            GameTokenizer.from_file(tmp_path / "tokenizer.json")
    write_text(tmp_path / "tokenizer.json", whole)
    with pytest.raises(ValueError, match="expected 32000"):
        GameTokenizer.from_mistral(tmp_path)


def test_prompts_have_the_recorded_ids_and_slots(tmp_path):
    """The order of all tags and slots, in a vocabulary of the published size; text itself is recorded too."""
    facts = json.loads((KEPT / "mllm_io.json").read_text(encoding="utf-8"))
    recorded = load_file(KEPT / "mllm_io.safetensors")
    tokenizer = GameTokenizer.from_mistral(write_mistral(tmp_path / "mistral"))
    assert tokenizer.encode_text("piece-9") == [9], "without the space of the file's own normalizer"
    added = tokenizer.backend.get_added_tokens_decoder().values()
    assert [sum(token.special is kind for token in added) for kind in (False, True)] == [267, 17], "as released"
    tokenizer.encode_text = lambda text: facts["instruction_token_ids"][text][1:]
    lines = facts["P"]["lines"]
    for name in facts["cases"]:
        window, turn = int(name[1]), int(name[-1])
        past = [(line, (3, 1, 0, -1)) for line in lines[max(0, turn - window) : turn - 1]]
        prompt = build_prompt(tokenizer, 226, past, lines[turn - 1], PROFILES["as_run"])
        assert prompt.ids_L.tolist() == recorded[f"{name}.input_ids"].tolist()
        assert prompt.query_L.tolist() == recorded[f"{name}.ids_gen_mask"].bool().tolist()
        assert prompt.past_L.tolist() == recorded[f"{name}.ids_cmp_mask"].bool().tolist()


@pytest.mark.skipif(not (SHARED / "tokenizer").is_dir(), reason="the published tokenizer is not beside this checkout")
def test_the_published_tokenizer_and_prompts(tmp_path):
    tokenizer = GameTokenizer.from_mistral(SHARED / "tokenizer")
    facts = json.loads((SHARED / "golden" / "mllm_io.json").read_text(encoding="utf-8"))
    for text, ids in facts["instruction_token_ids"].items():
        assert [tokenizer.token("<TURN>"), *tokenizer.encode_text(text)] == ids
    write_text(tmp_path / "tokenizer.json", tokenizer.to_str())
    again = GameTokenizer.from_mistral(tmp_path)
    assert torch.equal(*(torch.tensor(t.encode_text("Pazu, café x")) for t in (tokenizer, again)))


@pytest.mark.parametrize("spec", [*SPECS.values(), RELEASE], ids=lambda spec: spec.name)
def test_a_session_of_longest_instructions_fits_in_the_positions(spec):
    """And instructions twice as long would not: that is how MOST_TOKENS was chosen. The tests' tiny engine has room for
    three such turns."""
    tokenizer = GameTokenizer.from_words(WORDS, spec.state.tokens)
    turns = 2 if spec.name == "tiny" else CACHED_TURNS
    longest, levels = "run " * MOST_TOKENS, (5, 1, 1, -1)
    for profile in PROFILES.values():
        past = [(longest, levels)] * turns
        asked = len(build_prompt(tokenizer, spec.state.tokens, past, longest, profile).ids_L)
        answered = asked + len(state_block(tokenizer, levels, profile))
        assert answered <= spec.engine.max_positions < answered + (turns + 1) * MOST_TOKENS


def test_an_instruction_has_a_longest_length(tiny_tokenizer):
    words = "run " * MOST_TOKENS
    assert len(build_prompt(tiny_tokenizer, 8, [], words, PROFILES["paper"]).ids_L) > MOST_TOKENS
    with pytest.raises(ValueError, match=r"'run run .* run' has 1025 tokens; shorten it to 1024 tokens"):
        build_prompt(tiny_tokenizer, 8, [], words + "run", PROFILES["paper"])
    for read in (read_instruction, read_instructions):
        read("x" * MOST_LETTERS)
        with pytest.raises(ValueError, match="'xxx.*xxx' has 8193 letters; shorten it to 1024 tok.* and 8192 letters"):
            read("x" * (MOST_LETTERS + 1))
    saved = [("x" * 15_000, (3, 1, 0, 1))]  # by a version that played it
    build_prompt(tiny_tokenizer, 8, saved, "run", PROFILES["paper"])


def test_padding_and_truncation_of_a_tokenizer_file_are_left_out(tiny_tokenizer, tmp_path):
    tokenizer = json.loads(tiny_tokenizer.backend.to_str())
    tokenizer["padding"] = {"strategy": {"Fixed": 99}, "direction": "Right", "pad_id": 0, "pad_type_id": 0}
    tokenizer["padding"] |= {"pad_to_multiple_of": None, "pad_token": "<unk>"}
    tokenizer["truncation"] = {"max_length": 1, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(tokenizer))
    read = GameTokenizer.from_file(tmp_path / "tokenizer.json")
    assert read.encode_text("run to the beach") == tiny_tokenizer.encode_text("run to the beach")


def test_the_released_tags_have_their_ids():
    names = tag_tokens(RELEASE_SLOTS)
    assert len(names) == 284
    at = {32000: "<frame_00000>", 32256: "<img>", 32261: "</frame>", 32262: "<Strength_-5>", 32272: "<Strength_5>"}
    at |= {32273: "<visual>", 32274: "<ML>", 32281: "</ST>", 32282: "<TURN>", 32283: "</TURN>"}
    assert {index: names[index - 32000] for index in at} == at
