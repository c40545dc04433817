from dataclasses import asdict, replace

import pytest
import torch

from animegamer_core.checkpoint import open_world
from animegamer_core.engine import GameEngine, Replies, additive_mask
from animegamer_core.prompt import GRAMMAR, state_block
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.state import GameSession
from animegamer_core.toybox.games import sample_game
from animegamer_core.toybox.world import instruction

TINY = SPECS["tiny"]
LINES = (
    "Character: Miko; Motion: gently run; Background: day beach.",
    "Character: Miko, Taro; Motion: wildly dance; Background: night forest.",
    "Character: Miko; Motion: softly sleep; Background: night street.",
)


def with_profile(engine, tokenizer, **switches):
    other = GameEngine(TINY, tokenizer, replace(PROFILES["paper"], **switches)).eval()
    other.load_state_dict(engine.state_dict())
    return other


def play(engine, lines, window=2):
    session = GameSession(window=window)
    for line in lines:
        session = session.step(line, engine.predict(session.past(), line))
    return session


@pytest.mark.parametrize("name", PROFILES)
def test_every_profile_plays(name, tiny_engine, tiny_tokenizer):
    engine = GameEngine(TINY, tiny_tokenizer, PROFILES[name]).eval()
    engine.load_state_dict(tiny_engine.state_dict())
    for turn in play(engine, LINES).turns:
        assert turn.state.representation.shape == (TINY.state.tokens, TINY.state.width)
        if PROFILES[name].grammar:
            assert all(level in choice.allowed for level, choice in zip(turn.state.levels, GRAMMAR, strict=True))


def test_a_free_reply_that_cannot_be_read_is_zeros_only_as_run(tiny_engine, tiny_tokenizer):
    as_run = GameEngine(TINY, tiny_tokenizer, PROFILES["as_run"]).eval()
    as_run.load_state_dict(tiny_engine.state_dict())
    assert as_run.predict((), LINES[0]).levels == (0, 0, 0, 0)  # random weights write no state block
    assert tiny_engine.predict((), LINES[0]).levels[0] in range(1, 6)


@pytest.fixture
def scripted(tiny_engine, tiny_tokenizer, monkeypatch):
    """What an engine as run replies if its logits are these, each step's all -1 but for {token: logit}."""
    engine = GameEngine(TINY, tiny_tokenizer, PROFILES["as_run"]).eval()
    engine.load_state_dict(tiny_engine.state_dict())

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


def test_a_free_reply_that_begins_a_frame_runs_through_all_slots(scripted, tiny_tokenizer):
    token, strength = tiny_tokenizer.token, tiny_tokenizer.strength
    loud = {strength(5): 9.0}  # never heard while a frame is written
    frame = [{token("<frame>"): 5.0}, *[loud] * (8 + 1)]  # the slots and `</frame>`
    rest = [{strength(2): 1.0, tiny_tokenizer.slots(8)[4]: 9.0}, {token("</s>"): 1.0, token("</frame>"): 9.0}]
    assert scripted(*frame, *rest) == "<Strength_2> </s>"


def test_a_slot_wins_a_free_reply_only_where_all_else_is_below_zero(scripted, tiny_tokenizer):
    last = {tiny_tokenizer.token("</s>"): 1.0}
    assert scripted({}, *[{}] * 8, last) == "</s>", "the first slot, then forced ones, which are not told"
    assert scripted({tiny_tokenizer.strength(3): 0.5}, last) == "<Strength_3> </s>"


def test_what_the_model_said_first_is_kept(tiny_engine):
    state = tiny_engine.predict((), LINES[0])
    first = int(tiny_engine.first_logits(tiny_engine.prompt([], LINES[0]), torch.zeros(0, 8, 32)).argmax())
    assert state.said[0] == tiny_engine.tokenizer.strength_of(first)


def test_prediction_is_deterministic_and_reads_the_window_only(tiny_engine):
    session = play(tiny_engine, LINES, window=2)
    again = play(tiny_engine, LINES, window=2)
    other_start = play(tiny_engine, (LINES[2], LINES[1], LINES[2]), window=1)
    short = play(tiny_engine, LINES, window=1)
    last = lambda game: game.turns[-1].state.representation  # noqa: E731
    assert torch.equal(last(session), last(again))
    assert not torch.equal(last(short), last(session))
    assert not torch.equal(last(short), last(other_start))  # turn 2 saw turn 1, and turn 3 saw turn 2
    assert torch.equal(last(play(tiny_engine, LINES, 0)), last(play(tiny_engine, LINES[2:], 0)))


def test_history_enters_through_its_representation(tiny_engine):
    prompt = tiny_engine.prompt([(LINES[0], (3, 1, 0, -1))], LINES[1])
    states = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    changed = states.clone()
    changed[0, 7] += 1
    assert not torch.equal(tiny_engine.represent(prompt, states), tiny_engine.represent(prompt, changed))


def test_queries_see_one_another_and_nothing_later(tiny_engine, tiny_tokenizer):
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


def test_the_mask_rule():
    query = torch.tensor([[False, True, True, False, False]])
    valid = torch.tensor([[True, True, True, True, False]])
    seen = additive_mask(query, valid, torch.float32)[0, 0] == 0
    expected = torch.tensor(
        [[1, 0, 0, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], dtype=torch.bool
    )
    assert torch.equal(seen, expected)


@pytest.mark.parametrize("name", PROFILES)
@pytest.mark.parametrize("answered", [False, True])
def test_training_in_a_padded_batch_equals_playing(answered, name, tiny_engine, tiny_tokenizer):
    engine = with_profile(tiny_engine, tiny_tokenizer, **asdict(PROFILES[name]))
    first = play(engine, LINES[:1]).turns[0]
    past = first.state.representation[None]
    asked = [engine.prompt([], LINES[0]), engine.prompt([(LINES[0], first.state.levels)], LINES[1])]
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
    """Levels and first choices as a whole new pass over an ever longer prompt makes each of them."""
    prompt = engine.prompt([(turn.instruction, turn.state.levels) for turn in past], instruction)
    states, tokenizer = engine.past_states(past), engine.tokenizer
    levels, said = (), ()
    for choice, following in zip(GRAMMAR, (*GRAMMAR[1:], None), strict=True):
        logits = engine.first_logits(prompt, states)
        said += (tokenizer.strength_of(int(logits.argmax())),)
        levels += (max(choice.allowed, key=lambda value: logits[tokenizer.strength(value)].item()),)
        if following is not None:
            tags = [tokenizer.token(choice.closing), tokenizer.token(following.opening)]
            prompt = prompt.followed_by([tokenizer.strength(levels[-1]), *tags])
    return levels, said


@pytest.mark.parametrize("name", ["paper", "reference"])
def test_all_replies_read_at_once_choose_as_one_after_another(name, tiny_tokenizer):
    """Over many engines, so that every number is chosen somewhere."""
    seen = [set() for _ in GRAMMAR]
    for seed in range(12):
        torch.manual_seed(seed)
        engine = GameEngine(TINY, tiny_tokenizer, PROFILES[name]).eval()
        with torch.no_grad():  # else the first choice is hardly ever a number
            engine.llm.lm_head.weight[[tiny_tokenizer.strength(value) for value in range(-5, 6)]] *= 8
        session = GameSession(window=2)
        for line in LINES:
            state = engine.predict(session.past(), line)
            assert (state.levels, state.said) == chosen_one_by_one(engine, session.past(), line)
            for values, level in zip(seen, state.levels, strict=True):
                values.add(level)
            session = session.step(line, state)
    assert seen == [set(choice.allowed) for choice in GRAMMAR]


def test_all_replies_read_at_once_choose_as_one_after_another_in_the_toybox():
    engine = open_world("toybox").load_engine("cpu", torch.float32)
    session = GameSession(window=4)
    for scene, level in zip(sample_game(3).scenes, (1, 5, 2, 4, 3, 1), strict=False):
        line = instruction(scene, level)
        state = engine.predict(session.past(), line)
        assert (state.levels, state.said) == chosen_one_by_one(engine, session.past(), line)
        session = session.step(line, state)
    assert len({turn.state.levels for turn in session.turns}) > 2


def reader(engine):
    """The pass that this profile reads text with."""
    return engine._read if engine.profile.shared_prefill else engine._read_text


def logits_token_by_token(engine, prompt, states, tokens):
    """(1 + A, V): the logits behind a prompt, and behind each of these tokens, which are fed singly with the cache."""
    hidden_LH, cache = reader(engine)(prompt, states)
    rows = [hidden_LH[-1], *(engine._feed([token], cache)[-1] for token in tokens)]
    return engine.llm.lm_head(torch.stack(rows))


@pytest.mark.parametrize("turns", [0, 2])
@pytest.mark.parametrize("name", ["paper", "reference"])
@torch.inference_mode()
def test_all_replies_read_at_once_have_the_logits_of_each_fed_token_by_token(name, turns, tiny_engine, tiny_tokenizer):
    """A wrong position or mask moves the logits, but seldom changes which choice is the highest."""
    engine = GameEngine(TINY, tiny_tokenizer, PROFILES[name]).eval()
    engine.load_state_dict(tiny_engine.state_dict())
    past = play(engine, LINES[:turns]).past()
    prompt = engine.prompt([(turn.instruction, turn.state.levels) for turn in past], LINES[2])
    states, replies = engine.past_states(past), Replies.of(tiny_tokenizer)
    hidden_RH = reader(engine)(prompt, states, replies)[0][len(prompt.ids_L) - 1 :]
    whole = [numbers for numbers in replies.ends if len(numbers) == len(GRAMMAR) - 1]
    assert len(whole) == 5 * 2 * 2
    for numbers in whole:
        tokens = state_block(tiny_tokenizer, (*numbers, 1), engine.profile)[1:10]
        branch = replies.seen_RR[replies.ends[numbers] - 1].nonzero().flatten()
        at_once = engine.llm.lm_head(hidden_RH[[0, *(branch + 1).tolist()]])
        singly = logits_token_by_token(engine, prompt, states, tokens)
        torch.testing.assert_close(at_once, singly, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name, passes", [("paper", 1), ("reference", 2)])
def test_a_turn_is_one_pass_and_the_replies_change_nothing_that_is_read(name, passes, tiny_engine, tiny_tokenizer):
    engine = GameEngine(TINY, tiny_tokenizer, PROFILES[name]).eval()
    engine.load_state_dict(tiny_engine.state_dict())
    past = play(engine, LINES[:2]).past()
    kept = []
    layer = engine.llm.model.layers[0].register_forward_hook(lambda *_: kept.append(1))
    state = engine.predict(past, LINES[2])
    layer.remove()
    assert len(kept) == passes
    alone = engine.represent(
        engine.prompt([(t.instruction, t.state.levels) for t in past], LINES[2]), engine.past_states(past)
    )
    torch.testing.assert_close(state.representation, alone, atol=1e-6, rtol=1e-5)


def test_a_reply_sees_the_prompt_and_its_own_branch_only(tiny_tokenizer):
    replies = Replies.of(tiny_tokenizer)
    assert len(replies.ends) == 1 + 5 + 5 * 2 + 5 * 2 * 2 and len(replies.ids_R) == 3 * (len(replies.ends) - 1)
    told = state_block(tiny_tokenizer, (4, 1, 0, 1), PROFILES["paper"])[1:10]
    for count in (1, 2, 3):
        last = replies.ends[(4, 1, 0)[:count]] - 1
        branch = replies.seen_RR[last].nonzero().flatten()
        assert replies.ids_R[branch].tolist() == told[: 3 * count]
        assert replies.depth_R[branch].tolist() == list(range(1, 3 * count + 1))
    mask = replies.masked_behind(torch.zeros(1, 1, 2, 2))[0, 0]
    assert not mask[2:, :2].any() and (mask[:2, 2:] < 0).all() and torch.equal(mask[2:, 2:] == 0, replies.seen_RR)


def test_the_second_causal_pass_differs_from_the_shared_one(tiny_engine, tiny_tokenizer):
    prompt = tiny_engine.prompt([(LINES[0], (3, 1, 0, -1))], LINES[1])
    states = torch.randn(1, 8, 32, generator=torch.Generator().manual_seed(0))
    causal = with_profile(tiny_engine, tiny_tokenizer, shared_prefill=False)
    blind = with_profile(tiny_engine, tiny_tokenizer, shared_prefill=False, text_sees_states=False)
    readings = [engine.first_logits(prompt, states) for engine in (tiny_engine, causal, blind)]
    assert not torch.equal(readings[0], readings[1]) and not torch.equal(readings[1], readings[2])
    assert torch.equal(blind.first_logits(prompt, states), blind.first_logits(prompt, states + 1))


def test_the_released_slice_is_three_positions_late(tiny_engine, tiny_tokenizer):
    late = with_profile(tiny_engine, tiny_tokenizer, aligned_queries=False)
    prompt = tiny_engine.prompt([], LINES[0])
    none = torch.zeros(0, 8, 32)
    torch.testing.assert_close(late.represent(prompt, none)[:-3], tiny_engine.represent(prompt, none)[3:])


def test_states_of_another_world_or_let_go_are_refused(tiny_engine):
    session = play(tiny_engine, LINES[:1])
    turn = session.turns[0]
    for wrong, message in ((torch.zeros(9, 32), "another|size"), (None, "load it from the story")):
        bad = replace(turn, state=replace(turn.state, representation=wrong))
        with pytest.raises(ValueError, match=message):
            tiny_engine.predict((bad,), LINES[1])


@pytest.mark.parametrize("window", [0, 2])
def test_a_prompt_beyond_the_positions_is_refused_before_it_is_read(window, tiny_tokenizer):
    few = replace(TINY, engine=replace(TINY.engine, max_positions=60 + 40 * window))
    engine = GameEngine(few, tiny_tokenizer, PROFILES["paper"]).eval()
    past = play(engine, LINES[:2], window).past()
    engine.predict(past, LINES[2])
    told = f"the {window} before it take .* tokens, and the engine reads {few.engine.max_positions}; choose"
    with pytest.raises(ValueError, match=told):
        engine.predict(past, "run " * 60)


def test_a_vocabulary_too_large_for_the_spec_is_refused(tiny_tokenizer):
    small = replace(TINY, engine=replace(TINY.engine, vocab_size=10))
    with pytest.raises(ValueError, match="room for 10"):
        GameEngine(small, tiny_tokenizer, PROFILES["paper"])
