"""Replies of vision models: a valid one reads as it was meant, any other is refused with what is wrong."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from animegamer_core.data.captions.replies import (
    TIMES,
    Caption,
    ReplyError,
    captioning_prompt,
    matching_prompt,
    parse_caption,
    parse_matching,
    why_unfit,
)
from animegamer_core.evaluate.judging.judge import CRITERIA, parse_scores
from animegamer_core.game.life import STATS
from animegamer_core.game.state import Instruction, motion_text

GOOD = "<S>Girl</S><MD>run</MD><EV>day forest</EV><MA>slowly</MA><SC>0</SC><ET>1</ET><ST>-1</ST>"
TAGS = ("S", "MD", "EV", "MA", *(stat.tag for stat in STATS))
PAPER = "'[Number]2[Index]1,3'"

letters = st.sampled_from("abcdefghijklmnopqrstuvwxyz\u00e9\u00f1")
word = st.text(letters, min_size=1, max_size=9)
spaces = st.sampled_from(("", " ", "\n", "\t ", "\r\n\n"))
marks = spaces | st.sampled_from((": ", "**", " <", ">, "))


def phrase(most: int) -> st.SearchStrategy[str]:
    return st.lists(word, min_size=1, max_size=min(most, 6)).map(" ".join)


captions = st.builds(
    Caption,
    character=phrase(3).map(lambda subject: (subject,)),
    motion=phrase(12),
    background=st.tuples(st.sampled_from(TIMES), phrase(3)).map(" ".join),
    adverb=phrase(2),
    stats=st.fixed_dictionaries({stat.name: st.sampled_from(stat.choices) for stat in STATS}),
)


def fields(caption: Caption) -> list[str]:
    values = (caption.character[0], caption.motion, caption.background, caption.adverb)
    return [*values, *(str(caption.stats[stat.name]) for stat in STATS)]


def written(values: list[str], gaps: list[str] | None = None) -> str:
    gaps = gaps or [""] * 8
    pairs = zip(gaps, TAGS, values, strict=False)
    return "".join(f"{gap}<{tag}>{value}</{tag}>" for gap, tag, value in pairs) + gaps[7]


@given(captions, st.lists(spaces, min_size=8, max_size=8), st.sampled_from(("", "'", '"', "`", "```")), st.booleans())
def test_a_valid_caption_reads_as_it_was_meant(caption, gaps, quote, shouted):
    values = fields(caption)
    values = [value.title() if shouted else value for value in values]
    assert parse_caption(f"{quote}{written(values, gaps)}{quote}", STATS) == caption
    instruction = Instruction(caption.character, caption.motion, caption.background, caption.adverb).checked()
    assert motion_text(instruction.text) == f"{caption.adverb} {caption.motion}"
    assert instruction.text.endswith(f"; Background: {caption.background}.")


@given(
    st.sampled_from(("[Num]", "[Number]")),
    st.sampled_from(("[ID]", "[Index]")),
    st.lists(st.integers(1, 12), unique=True, max_size=12),
    st.sampled_from((",", ", ", " , ")),
    st.tuples(marks, marks, marks, spaces),
    st.sampled_from(("", "'", "`", "**")),
)
def test_a_valid_matching_reply_reads_as_it_was_meant(number, index, indices, comma, gaps, quote):
    listed = comma.join(map(str, indices or [0]))
    reply = f"{quote}{number}{gaps[0]}{len(indices)}{gaps[1]}{index}{gaps[2]}{listed}{gaps[3]}{quote}"
    assert parse_matching(reply, 12) == tuple(indices)


@pytest.mark.parametrize(
    "around",
    [
        "<think>\n\n</think>\n\n{}",
        "<S>Boy</S>? No, a girl.</think>{}",  # some templates open the thought in the prompt
        "<Reasoning><S>Boy</S></Reasoning>{}",
        "<|START_THINKING|><S>Boy</S><|END_THINKING|><|START_RESPONSE|>{}<|END_RESPONSE|>",
        "<|begin_of_box|>{}<|end_of_box|>",
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>{}<|return|>",
        "<answer>{}</answer>",
        "Sure! Here it is:\n```xml\n{}\n```\nLet me know if you need more.",
        "Image-2 shows her <b>twice</b>: **{}**.",
    ],
)
def test_a_reply_is_read_whatever_is_around_it(around):
    assert parse_caption(around.format(GOOD), STATS).stats["stamina"] == -1
    assert parse_matching(around.format(PAPER), 3) == (1, 3)
    scores = "\r\n".join(f"<{tag}>\t10 1" for tag in CRITERIA)
    assert parse_scores(around.format(f"\n{scores}\n"), 2) == dict.fromkeys(CRITERIA, (10, 1))
    for text, parse, known in ((GOOD, parse_caption, STATS), (PAPER, parse_matching, 3)):
        with pytest.raises(ReplyError):
            parse(text * 2, known)


@given(st.text(max_size=300), st.sampled_from(("", GOOD, PAPER)), st.integers(0, 90), st.integers(0, 12))
def test_no_text_whatever_does_harm(noise, base, place, cut):
    text = base[:place] + noise + base[place + cut :]
    for parse in (lambda reply: parse_caption(reply, STATS), lambda reply: parse_matching(reply, 3)):
        try:
            found = parse(text)
        except ReplyError as error:
            assert "; expected " in str(error) and str(error).isprintable() and len(str(error)) < 400
            continue
        if isinstance(found, Caption):
            Instruction(found.character, found.motion, found.background, found.adverb).checked()
            assert not any(why_unfit(value) for value in fields(found)[:4])
        else:
            assert len(set(found)) == len(found) and all(index in (1, 2, 3) for index in found)


def test_prompts_ask_for_what_is_read():
    for count in (1, 2, 3, 9):
        example_reply = re.search(r"Response example: (\S+)\. ", matching_prompt(count))[1]
        assert parse_matching(example_reply, count)
    for level in range(1, 6):
        prompt = captioning_prompt(level, STATS)
        assert f"<ML>{level}</ML>" in prompt
        assert parse_caption(re.search(r"Example output: (\S.*</ST>)", prompt)[1], STATS).motion == "run"
        places = [prompt.index(f"<{tag}>") for tag in TAGS]
        assert places == sorted(places)
