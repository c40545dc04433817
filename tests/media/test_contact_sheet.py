import numpy as np

from animegamer_core.game.state import GameSession, GameState
from animegamer_core.media import contact_sheet as sheet
from animegamer_core.media.contact_sheet import contact_sheet

PUBLISHED = "Character: Miko; Motion: wildly fly on a broomstick; Background: night mountain."
KANJI = "\u5343\u5c0b\u304c\u8d70\u308b"


def test_text_without_spaces_is_broken_between_wide_letters():
    lines = sheet._instruction_lines(KANJI * 8, 300)
    assert len(lines) == 3 and not lines[0].endswith("...")
    assert "".join(lines).startswith(KANJI * 2)


def played(*changes, instruction=PUBLISHED):
    session = GameSession()
    for change in changes:
        session = session.step(instruction, GameState(None, 4, change))
    return session.turns


def test_a_sheet_has_a_card_with_frames_for_every_turn():
    clips = [np.full((17, 32, 48, 3), 40 * (index + 1), np.uint8) for index in range(2)]
    whole = np.asarray(contact_sheet(played({"stamina": 1}, {"stamina": 1}), clips, "a game"))
    cards = np.split(whole[sheet._HEADER : sheet._HEADER + 2 * (sheet.TILE_HEIGHT + 3 * sheet._PAD)], 2)
    for shade, card in zip((40, 80), cards, strict=True):
        assert (card[:, :800] == shade).all(-1).sum() > 40_000
    assert (cards[0][:, -600:] != cards[1][:, -600:]).any(), "the numbers and stats of equal instructions"
    one = contact_sheet(played({"stamina": 1}), clips[:1], "a game")
    assert one.width == whole.shape[1] and one.height < len(whole)


def test_a_sheet_takes_any_words():
    for words in ("run", "a very long instruction " * 20, "w" * 500, "\u732b\u304c\u8d70\u308b", PUBLISHED * 2):
        clip = np.full((17, 96, 144, 3), 90, np.uint8)
        sheet = contact_sheet(played({"stamina": 1}, instruction=words), [clip], words[:80])
        right = np.asarray(sheet)[150:420, -35:]
        assert (right == right[0, 0]).all()  # nothing runs out of the card
