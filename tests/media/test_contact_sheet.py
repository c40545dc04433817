import numpy as np
import pytest
from PIL import Image, ImageDraw

from animegamer_core.media import contact_sheet as sheet
from animegamer_core.media import fonts, text
from animegamer_core.media.contact_sheet import contact_sheet
from animegamer_core.media.text import GAUGE_COLOURS
from animegamer_core.state import GameSession, GameState, StateChange

PUBLISHED = "Character: Miko; Motion: wildly fly on a broomstick; Background: night mountain."
KANJI = "\u5343\u5c0b\u304c\u8d70\u308b"


def turns_of(*instructions):
    session = GameSession()
    for number, instruction in enumerate(instructions):
        session = session.step(instruction, GameState(None, 1 + number % 5, StateChange(1, 0, -1)))
    return session.turns


def clip(shade):
    return np.full((17, 96, 144, 3), shade, np.uint8)


@pytest.fixture
def no_fonts(monkeypatch):
    """A computer with PIL's own font only."""
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()
    monkeypatch.setattr(fonts, "_WIDE_FONTS", ())
    yield
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()


def test_words_that_no_font_has_are_question_marks_and_a_notice(no_fonts):
    assert fonts.drawable(f"Miko {KANJI}!") == "Miko ?????!"
    plain = np.asarray(contact_sheet(turns_of("Miko runs"), [clip(90)], "tale"))
    foreign = np.asarray(contact_sheet(turns_of(f"Miko {KANJI}"), [clip(90)], "tale"))
    below_title = slice(95, 128)
    assert (plain[below_title] == plain[below_title, :1]).all()
    assert (foreign[below_title] != foreign[below_title, :1]).any()


def drawn(words):
    """Words as a picture in the font that is chosen for them."""
    picture = Image.new("L", (400, 60))
    ImageDraw.Draw(picture).text((20, 30), fonts.drawable(words), fill=255, font=fonts.font_of(words, 32), anchor="lm")
    return picture.tobytes()


def test_question_marks_stand_for_missing_letters(no_fonts):
    assert fonts._draws(None, "M") and fonts._draws(None, " ")
    assert not fonts._draws(None, "\u5343") and not fonts._draws(None, "\U0001f600")
    assert drawn(KANJI) == drawn("?????") and drawn("Miko") != drawn("????")


def test_a_font_of_the_system_draws_what_pils_cannot():
    fonts._font_for.cache_clear()
    if not fonts._wide_fonts():
        pytest.skip("no font of Chinese and Japanese letters on this computer")
    assert fonts.drawable(KANJI) == KANJI
    assert drawn("\u5343\u5c0b") != drawn("\u8d70\u308b"), "no empty boxes"
    assert fonts._font_for("Mikos") is None, "with PIL's own font sheets look the same everywhere"


def test_text_without_spaces_is_broken_between_wide_letters():
    lines = sheet._instruction_lines(KANJI * 8, 300)
    assert len(lines) == 3 and not lines[0].endswith("...")
    assert "".join(lines).startswith(KANJI * 2)


def test_words_are_not_broken():
    words = "Miko runs along the beach while the sun goes down behind the hills"
    lines = sheet._instruction_lines(words, 400)
    assert " ".join(lines) == words or lines[-1].endswith("...")
    assert all(line.split()[0] in words.split() for line in lines)


def test_a_long_instruction_is_cut_in_few_steps(monkeypatch):
    measured = []
    width = text.width_of
    monkeypatch.setattr(text, "width_of", lambda words, size: measured.append(len(words)) or width(words, size))
    for words in ("Miko " * 400, "a" * 2000, KANJI * 400, f"Character: Miko; Motion: {'run ' * 500}."):
        measured.clear()
        lines = sheet._instruction_lines(words, 496)
        assert lines[-1].endswith("...") and all(width(line, 25) <= 496 for line in lines)
        assert sum(measured) < 20_000, "letters in all"


@pytest.mark.parametrize("words", ["Miko runs along the beach", "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii", "W" * 700])
def test_words_are_cut_no_more_than_needed(words):
    cut = text.fitted(words, 30, 150)
    kept = cut.removesuffix("...")
    assert cut != words and words.startswith(kept) and text.width_of(cut, 30) <= 150
    assert text.width_of(words[: len(kept) + 1] + "...", 30) > 150 or words[len(kept)] == " "


def test_no_turns_or_no_clips_are_refused():
    with pytest.raises(ValueError, match="0 turns but 0 clips"):
        contact_sheet((), [], "tale")
    with pytest.raises(ValueError, match="2 turns but 1 clips"):
        contact_sheet(turns_of("a", "b"), [clip(1)], "tale")


def played(*changes, instruction=PUBLISHED):
    session = GameSession()
    for change in changes:
        session = session.step(instruction, GameState(None, 4, StateChange(**change)))
    return session.turns


def pixels(sheet, name):
    """The length of a gauge's bar in the sheet, in pixels."""
    colour = [int(GAUGE_COLOURS[name][index : index + 2], 16) for index in (1, 3, 5)]
    return (np.asarray(sheet) == colour).all(-1).any(0).sum()


def test_a_sheet_has_a_card_with_frames_for_every_turn():
    clips = [np.full((17, 32, 48, 3), 40 * (index + 1), np.uint8) for index in range(2)]
    whole = np.asarray(contact_sheet(played({"stamina": 1}, {"stamina": 1}), clips, "a game"))
    cards = np.split(whole[sheet._HEADER : sheet._HEADER + 2 * (sheet.TILE_HEIGHT + 3 * sheet._PAD)], 2)
    for shade, card in zip((40, 80), cards, strict=True):
        assert (card[:, :800] == shade).all(-1).sum() > 40_000
    assert (cards[0][:, -600:] != cards[1][:, -600:]).any(), "the numbers and stats of equal instructions"
    one = contact_sheet(played({"stamina": 1}), clips[:1], "a game")
    assert one.width == whole.shape[1] and one.height < len(whole)


def test_a_strip_runs_from_the_first_frame_to_the_last():
    clip = np.stack([np.full((32, 48, 3), 10 * frame, np.uint8) for frame in range(17)])
    sheet = np.asarray(contact_sheet(played({"stamina": 1}), [clip], "a game"))
    across = [int(value) for value in sheet[280, :1600, 0]]
    assert [shade for shade in dict.fromkeys(across) if shade in range(0, 170, 10)] == [0, 50, 110, 160]


def test_bars_grow_with_the_stats():
    frames = [clip(90)]
    low = contact_sheet(played({"stamina": -10, "social": -5, "entertainment": 0}), frames, "g")
    high = contact_sheet(played({"stamina": 10, "social": -5, "entertainment": 0}), frames, "g")
    assert pixels(low, "stamina") == 0 and pixels(high, "stamina") == pytest.approx(224, abs=1), (
        "nothing, and all of it"
    )
    assert pixels(high, "stamina") == pytest.approx(2 * pixels(high, "entertainment"), rel=0.05)
    assert pixels(low, "social") == pytest.approx(pixels(low, "entertainment") / 2, rel=0.1)


def test_a_sheet_takes_any_words():
    for words in ("run", "a very long instruction " * 20, "w" * 500, "\u732b\u304c\u8d70\u308b", PUBLISHED * 2):
        sheet = contact_sheet(played({"stamina": 1}, instruction=words), [clip(90)], words[:80])
        right = np.asarray(sheet)[150:420, -35:]
        assert (right == right[0, 0]).all()  # nothing runs out of the card
