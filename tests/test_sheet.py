import numpy as np
import pytest

from animegamer_core import fonts, sheet
from animegamer_core.data.plots import put_words
from animegamer_core.sheet import contact_sheet
from animegamer_core.state import GameSession, GameState, StateChange

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
    """A computer without any font but PIL's own."""
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()
    monkeypatch.setattr(fonts, "_WIDE_FONTS", ())
    yield
    for cached in (fonts._font_for, fonts._wide_fonts):
        cached.cache_clear()


def test_a_turn_that_is_told_twice_has_two_cards_of_its_own():
    turns = turns_of("Miko runs", "Miko runs", "Miko runs")
    shades = [40, 120, 200]
    picture = np.asarray(contact_sheet(turns, [clip(shade) for shade in shades], "tale"))
    card = (picture.shape[0] - sheet._HEADER - sheet._MARGIN + sheet._PAD) // 3
    for number, shade in enumerate(shades):
        y = sheet._HEADER + number * card + sheet._PAD + sheet.TILE_HEIGHT // 2
        assert (picture[y, sheet._MARGIN + sheet._PAD + 60] == shade).all()
    panels = [picture[sheet._HEADER + n * card : sheet._HEADER + (n + 1) * card, -600:] for n in range(3)]
    assert (panels[0] != panels[1]).any() and (panels[1] != panels[2]).any()  # their numbers and gauges differ


def test_words_that_no_font_has_are_question_marks_and_a_notice(no_fonts):
    assert fonts.drawable(f"Miko {KANJI}!") == "Miko ?????!"
    plain = np.asarray(contact_sheet(turns_of("Miko runs"), [clip(90)], "tale"))
    foreign = np.asarray(contact_sheet(turns_of(f"Miko {KANJI}"), [clip(90)], "tale"))
    below_title = slice(95, 128)
    assert (plain[below_title] == plain[below_title, :1]).all()
    assert (foreign[below_title] != foreign[below_title, :1]).any()


def test_an_unknown_letter_is_known_to_be_unknown(no_fonts):
    assert fonts._draws(None, "M") and fonts._draws(None, " ")
    assert not fonts._draws(None, "\u5343") and not fonts._draws(None, "\U0001f600")


def test_a_font_of_the_system_draws_what_pils_cannot():
    fonts._font_for.cache_clear()
    if not fonts._wide_fonts():
        pytest.skip("no font of Chinese and Japanese letters on this computer")
    assert fonts.drawable(KANJI) == KANJI
    assert fonts._font_for("Mikos") is None, "where PIL's own font will do, sheets look alike everywhere"


def test_text_without_spaces_is_broken_between_wide_letters():
    lines = sheet._instruction_lines(KANJI * 8, 300)
    assert len(lines) == 3 and not lines[0].endswith("...")
    assert "".join(lines).startswith(KANJI * 2)


def test_words_stay_whole_where_they_fit():
    words = "Miko runs along the beach while the sun goes down behind the hills"
    lines = sheet._instruction_lines(words, 400)
    assert " ".join(lines) == words or lines[-1].endswith("...")
    assert all(line.split()[0] in words.split() for line in lines)


def test_a_long_instruction_is_cut_in_few_steps(monkeypatch):
    measured = []
    width = sheet._width
    monkeypatch.setattr(sheet, "_width", lambda words, size: measured.append(len(words)) or width(words, size))
    for words in ("Miko " * 400, "a" * 2000, KANJI * 400, f"Character: Miko; Motion: {'run ' * 500}."):
        measured.clear()
        lines = sheet._instruction_lines(words, 496)
        assert lines[-1].endswith("...") and all(width(line, 25) <= 496 for line in lines)
        assert sum(measured) < 20_000, "letters in all"


@pytest.mark.parametrize("words", ["Miko runs along the beach", "iiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiiii", "W" * 700])
def test_words_are_cut_only_as_far_as_they_must(words):
    cut = sheet._fitted(words, 30, 150)
    kept = cut.removesuffix("...")
    assert cut != words and words.startswith(kept) and sheet._width(cut, 30) <= 150
    assert sheet._width(words[: len(kept) + 1] + "...", 30) > 150 or words[len(kept)] == " "


def test_no_turns_or_no_clips_are_refused():
    with pytest.raises(ValueError, match="0 turns and 0 clips"):
        contact_sheet((), [], "tale")
    with pytest.raises(ValueError, match="2 turns and 1 clips"):
        contact_sheet(turns_of("a", "b"), [clip(1)], "tale")


def test_pictures_of_figures_show_letters_of_every_language_or_a_question_mark(no_fonts):
    from PIL import Image, ImageDraw

    def drawn(words):
        sheet = Image.new("L", (400, 60))
        put_words(ImageDraw.Draw(sheet), (10, 15), words, 255, "lm")
        return np.asarray(sheet)

    assert (drawn(KANJI) == drawn("?????")).all() and (drawn("Miko") != drawn("????")).any()


def test_a_name_in_kanji_is_drawn_with_a_font_of_the_system_in_pictures_of_figures():
    from PIL import Image, ImageDraw

    fonts._font_for.cache_clear()
    if not fonts._wide_fonts():
        pytest.skip("no font of Chinese and Japanese letters on this computer")
    pictures = [Image.new("L", (400, 60)) for _ in range(2)]
    for picture, words in zip(pictures, ("\u5343\u5c0b", "\u8d70\u308b"), strict=True):
        put_words(ImageDraw.Draw(picture), (10, 15), words, 255, "lm")
    assert pictures[0].tobytes() != pictures[1].tobytes(), "both are empty boxes"
