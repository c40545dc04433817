from dataclasses import replace

import pytest
import torch

from animegamer_core.game.life import MOTION, STATS
from animegamer_core.game.state import GameSession
from animegamer_core.model import engine as engine_module
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import state_block
from animegamer_core.spec import PROFILES, SPECS

TINY = SPECS["tiny"]
LINES = (
    "Character: Miko; Motion: gently run; Background: day beach.",
    "Character: Miko, Taro; Motion: wildly dance; Background: night forest.",
    "Character: Miko; Motion: softly sleep; Background: night street.",
)

GRAMMAR = (MOTION, *STATS)


def with_profile(engine, name="paper", **switches):
    other = GameEngine(TINY, engine.tokenizer, replace(PROFILES[name], **switches)).eval()
    other.load_state_dict(engine.state_dict())
    return other


def play(engine, lines, window=2):
    session = GameSession(window=window)
    for line in lines:
        session = session.step(line, engine.predict(session.past(), line))
    return session


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_plays(name, tiny_engine):
    engine = with_profile(tiny_engine, name)
    for turn in play(engine, LINES).turns:
        assert turn.state.representation.shape == (TINY.state.tokens, TINY.state.width)
        if PROFILES[name].grammar:
            assert all(
                level in choice.choices for level, choice in zip(engine.levels(turn.state), GRAMMAR, strict=True)
            )
        else:
            assert engine.levels(turn.state) == (0, 0, 0, 0)  # random weights write no state block that can be read
    for state, line in zip(engine.predict_all([(), ()], LINES[:2]), LINES[:2], strict=True):
        assert engine.levels(state) == engine.levels(engine.predict((), line))


@pytest.fixture
def scripted(tiny_engine, monkeypatch):
    """The reply in profile as_run for logits {token: logit} per step; all others are -1."""
    engine = with_profile(tiny_engine, "as_run")

    def reply(*steps):
        left = iter(steps)

        def logits(hidden_LH):
            row = torch.full((TINY.engine.vocab_size,), -1.0)
            for token, value in next(left).items():
                row[token] = value
            return row

        monkeypatch.setattr(engine, "_logits", logits)
        text = engine.reply(engine.prompt([], LINES[0]), torch.zeros(0, 8, 32))
        assert next(left, None) is None, "the reply ended before its last step"
        return text

    return reply


def test_a_free_reply_is_forced_through_a_number_of_slots_of_a_frame(scripted, tiny_tokenizer, monkeypatch):
    monkeypatch.setattr(engine_module, "FORCED_SLOTS", 6)  # of 8
    token, strength = tiny_tokenizer.token, tiny_tokenizer.strength
    loud = {strength(5): 9.0}  # ignored while a frame is written
    frame = [{token("<frame>"): 5.0}, *[loud] * (6 + 1)]  # the slots and `</frame>`
    rest = [{strength(2): 1.0, tiny_tokenizer.slots(8)[4]: 9.0}, {token("</s>"): 1.0, token("</frame>"): 9.0}]
    assert scripted(*frame, *rest) == "<Strength_2> </s>"
    # A slot is not forbidden but 0, as released: where everything else is less likely, the frame is written from there.
    assert scripted({}, *[loud] * 6, *rest) == "<Strength_2> </s>"
    monkeypatch.setattr(engine_module, "MAX_REPLY", 3)
    assert scripted(*[loud] * 3) == " ".join(["<Strength_5>"] * 3)


def test_prediction_is_deterministic_and_uses_the_window_only(tiny_engine):
    session = play(tiny_engine, LINES, window=2)
    again = play(tiny_engine, LINES, window=2)
    other_start = play(tiny_engine, (LINES[2], LINES[1], LINES[2]), window=1)
    short = play(tiny_engine, LINES, window=1)
    last = lambda game: game.turns[-1].state.representation  # noqa: E731
    assert torch.equal(last(session), last(again)) and not torch.equal(last(short), last(session))
    assert not torch.equal(last(short), last(other_start))  # turn 2 saw turn 1, and turn 3 saw turn 2
    assert torch.equal(last(play(tiny_engine, LINES, 0)), last(play(tiny_engine, LINES[2:], 0)))
    assert tiny_engine.llm.config.rms_norm_eps == 1e-5, "as of every Mistral"


def test_query_slots_attend_to_one_another_and_to_nothing_later(tiny_engine, tiny_tokenizer):
    prompt = tiny_engine.prompt([], LINES[0])
    none = torch.zeros(0, 8, 32)
    extended = prompt.followed_by(state_block(tiny_tokenizer, (1, 0, 0, 1), PROFILES["paper"])[1:])
    torch.testing.assert_close(tiny_engine.represent(extended, none), tiny_engine.represent(prompt, none))
    with torch.no_grad():
        queries = tiny_tokenizer.slots(8)
        before = tiny_engine.represent(prompt, none)
        table = tiny_engine.llm.model.embed_tokens.weight
        kept = table[queries[-1]].clone()
        table[queries[-1]] += 1  # the last query: under a causal mask the first one would not notice
        after = tiny_engine.represent(prompt, none)
        table[queries[-1]] = kept
    assert (before[0] - after[0]).abs().max() > 1e-6


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("answered", [False, True])
def test_training_in_a_padded_batch_equals_playing(answered, name, tiny_engine, tiny_tokenizer):
    engine = with_profile(tiny_engine, name)
    first = play(engine, LINES[:1]).turns[0]
    past = first.state.representation[None]
    asked = [engine.prompt([], LINES[0]), engine.prompt([first], LINES[1])]
    block = state_block(tiny_tokenizer, (3, 1, 0, -1), engine.profile)[1:] if answered else []
    with torch.no_grad():
        output = engine([prompt.followed_by(block) for prompt in asked], [past[:0], past], answers=len(block))
    for row, (prompt, states) in enumerate(zip(asked, [past[:0], past], strict=True)):
        for ours, played in (
            (output.states_BND[row], engine.represent(prompt, states)),
            (output.logits_BAV[row, 0], engine.first_logits(prompt, states)),
            (output.logits_BAV[row, -1], engine.first_logits(prompt.followed_by(block[:-1]), states)),
        ):
            torch.testing.assert_close(ours, played, atol=1e-5, rtol=1e-4)


def chosen_one_by_one(engine, past, instruction):
    """Levels and unconstrained choices, from one pass per number over a growing prompt."""
    prompt = engine.prompt(past, instruction)
    states, tokenizer = engine.past_states(past), engine.tokenizer
    levels, raw_choices = (), ()
    for choice, following in zip(GRAMMAR, (*GRAMMAR[1:], None), strict=True):
        logits = engine.first_logits(prompt, states)
        raw_choices += (tokenizer.strength_of(int(logits.argmax())),)
        levels += (max(choice.choices, key=lambda value: logits[tokenizer.strength(value)].item()),)
        if following is not None:
            tags = [tokenizer.token(choice.closing), tokenizer.token(following.opening)]
            prompt = prompt.followed_by([tokenizer.strength(levels[-1]), *tags])
    return levels, raw_choices


@pytest.mark.parametrize("name", ["paper", "reference"])
def test_the_reply_tree_chooses_as_one_pass_per_number(name, tiny_tokenizer):
    """With many engines, so that every number is chosen at least once."""
    seen = [set() for _ in GRAMMAR]
    for seed in range(12):
        torch.manual_seed(seed)
        engine = GameEngine(TINY, tiny_tokenizer, PROFILES[name]).eval()
        with torch.no_grad():  # else the first choice is hardly ever a number
            engine.llm.lm_head.weight[[tiny_tokenizer.strength(value) for value in range(-5, 6)]] *= 8
            for layer in engine.llm.model.layers:  # else hardly any choice depends on positions
                layer.self_attn.q_proj.weight *= 200
        session = GameSession(window=2)
        for line in LINES:
            state = engine.predict(session.past(), line)
            expected = chosen_one_by_one(engine, session.past(), line)
            for one in (state, *engine.predict_all([session.past()] * 2, [line] * 2)):
                assert (engine.levels(one), one.raw_choices) == expected
            for values, level in zip(seen, engine.levels(state), strict=True):
                values.add(level)
            session = session.step(line, state)
    assert seen == [set(choice.choices) for choice in GRAMMAR]


@pytest.mark.parametrize("name, passes", [("paper", 1), ("reference", 2)])
def test_a_turn_is_one_pass_and_the_reply_tree_does_not_change_the_state(name, passes, tiny_engine):
    engine = with_profile(tiny_engine, name)
    past = play(engine, LINES[:2]).past()
    kept = []
    layer = engine.llm.model.layers[0].register_forward_hook(lambda *_: kept.append(1))
    state = engine.predict(past, LINES[2])
    layer.remove()
    assert len(kept) == passes
    alone = engine.represent(engine.prompt(past, LINES[2]), engine.past_states(past))
    torch.testing.assert_close(state.representation, alone, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("name, grammar", [("paper", True), ("reference", True), ("as_run", False)])
@torch.inference_mode()
def test_a_prompt_that_is_read_in_parts_gives_the_same_turn_in_less_memory(name, grammar, tiny_engine, monkeypatch):
    engine = with_profile(tiny_engine, name, grammar=grammar)
    past = play(engine, LINES[:3]).past()
    prompt = engine.prompt(past, "run " * 300)
    states = engine.past_states(past)
    whole, turn = engine.first_logits(prompt, states), engine.predict(past, "run " * 300)
    sizes = []

    def note(model, given, options):
        if (mask := options.get("attention_mask")) is not None:
            sizes.append(mask.numel())

    for part in (7, 64):
        monkeypatch.setattr(engine_module, "PREFILL", part)
        torch.testing.assert_close(engine.first_logits(prompt, states), whole, atol=1e-5, rtol=1e-4)
        hook = engine.llm.model.register_forward_pre_hook(note, with_kwargs=True)
        again = engine.predict(past, "run " * 300)
        hook.remove()
        torch.testing.assert_close(again.representation, turn.representation, atol=1e-5, rtol=1e-4)
        assert (again.motion, again.change, again.raw_choices) == (turn.motion, turn.change, turn.raw_choices)
        tail = 8 + 16 + (105 if grammar else 0)  # slots, tags and the reply tree, which are read at once
        assert max(sizes) <= (part + tail) * (len(prompt.ids_L) + 105), "a part sees all before it, and no more"


def test_the_second_causal_pass_differs_from_the_shared_one(tiny_engine):
    prompt = tiny_engine.prompt(play(tiny_engine, LINES[:1]).turns, LINES[1])
    states = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    causal = with_profile(tiny_engine, shared_prefill=False)
    blind = with_profile(tiny_engine, shared_prefill=False, text_sees_states=False)
    readings = [engine.first_logits(prompt, states) for engine in (tiny_engine, causal, blind)]
    assert not torch.equal(readings[0], readings[1]) and not torch.equal(readings[1], readings[2])
    assert torch.equal(blind.first_logits(prompt, states), blind.first_logits(prompt, states + 1))


def test_the_released_slice_is_three_positions_late(tiny_engine):
    late = with_profile(tiny_engine, aligned_queries=False)
    prompt = tiny_engine.prompt([], LINES[0])
    none = torch.zeros(0, 8, 32)
    torch.testing.assert_close(late.represent(prompt, none)[:-3], tiny_engine.represent(prompt, none)[3:])


def test_states_of_another_size_or_without_representation_are_refused(tiny_engine):
    turn = play(tiny_engine, LINES[:1]).turns[0]
    for wrong, message in ((torch.zeros(9, 32), "another|size"), (None, "load the turn from its story")):
        bad = replace(turn, state=replace(turn.state, representation=wrong))
        with pytest.raises(ValueError, match=message):
            tiny_engine.predict((bad,), LINES[1])


@pytest.mark.parametrize("window", [0, 2])
def test_a_prompt_longer_than_the_positions_is_refused(window, tiny_tokenizer):
    few = replace(TINY, engine=replace(TINY.engine, max_positions=(most := 60 + 40 * window)))
    engine = GameEngine(few, tiny_tokenizer, PROFILES["paper"]).eval()
    past = play(engine, LINES[:2], window).past()
    longest = "run " * (most - len(engine.prompt(past, "").ids_L))
    engine.predict(past, longest)
    message = f"the {window} before it take .* tokens, but the engine has only {most} positions; choose"
    with pytest.raises(ValueError, match=message):
        engine.predict(past, longest + "run")
