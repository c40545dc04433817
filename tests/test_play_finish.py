"""How a game ends: which turns its files show, and what an override of nothing means."""

from test_play import GAME, opened, played, world  # noqa: F401 a fixture

from animegamer_core import play, sheet
from animegamer_core.play import export
from animegamer_core.video import read_clip


def test_a_motion_value_of_zero_is_an_override(world, tmp_path):  # noqa: F811
    player = played(world, tmp_path, [], motion={1: 0.0})
    assert player.step(GAME[0], draw=False).motion == 0.0
    assert player.step(GAME[1], draw=False).motion > 0


def test_the_files_of_a_session_show_none_of_the_turns_after_it(world, tmp_path):  # noqa: F811
    player = played(world, tmp_path, GAME[:3])
    files = export(player.story, player.session.rewind(2))
    assert [path.stem for path in files] == ["turn-001", "turn-002", "story", "contact-sheet"]
    assert len(read_clip(files[2]).frames) == 2 * world.spec.decoder.frames


def test_a_game_that_is_played_in_part_ends_where_it_was_left(world, tmp_path):  # noqa: F811
    whole = played(world, tmp_path, GAME[:3]).story.entries
    again = played(world, tmp_path, GAME[:1])
    assert [path.stem for path in again.finish()] == ["turn-001", "story", "contact-sheet"]
    story = opened(world, tmp_path)
    assert story.entries == whole[:1]
    story.use("main")
    assert story.entries == whole


def test_a_contact_sheet_shows_the_last_turns(world, tmp_path, monkeypatch):  # noqa: F811
    shown, real = [], sheet.contact_sheet

    def watched(turns, frames, name):
        shown.extend(turn.number for turn in turns)
        return real(turns, frames, name)

    monkeypatch.setattr(sheet, "contact_sheet", watched)
    monkeypatch.setattr(play, "SHEET_TURNS", 2)
    played(world, tmp_path, GAME[:3]).finish()
    assert shown == [2, 3]
