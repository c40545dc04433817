"""The words of a dataset: what its training clips show, from which turns are proposed."""

from pathlib import Path

import msgspec

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.records import ClipRecord, GameRecord
from animegamer_core.data.vocabulary import words_of
from animegamer_core.game.life import Act


def clip(number, who="Bunny", motion="run", where="day meadow", adverb="quickly", level=4, change=(0, 1, -1)):
    names = tuple(who.split(", "))
    said = {"character": names, "motion": motion, "background": where, "adverb": adverb}
    said["stats"] = dict(zip(("social", "entertainment", "stamina"), change, strict=True))
    place = {"film": "film", "start": 2.0 * number, "end": 2.0 * number + 2, "clip": f"clips/{number:03d}.mp4"}
    return ClipRecord(**place, **said, motion_value=3.0, motion_level=level)


def words(*clips, games=()):
    return words_of(DatasetFolder(Path("dataset"), clips, games))


def test_the_most_frequent_words_come_first_with_time_apart_and_adverbs_by_level():
    found = words(
        clip(0, "Frank", "sit", "morning tree", "gently", 2),
        clip(1),
        clip(2, where="Day meadow", adverb="wildly", level=5),
        clip(3, where="old mill", adverb="", level=1),
    )
    assert found.characters == ("Bunny", "Frank")
    assert [act.phrase for act in found.acts] == ["run", "sit"]
    assert found.places == ("meadow", "tree", "old mill") and found.times == ("morning", "day")
    assert found.adverbs == (("gently",), ("quickly",), ("wildly",))


def test_an_act_changes_the_stats_as_most_of_its_clips_do_and_takes_company_if_most_show_it():
    found = words(
        clip(0, "Bunny, Frank", "talk", change=(1, 0, -1)),
        clip(1, "Frank, Bunny", "talk", change=(1, 0, -1)),
        clip(2, "Bunny", "talk", change=(0, 0, 1)),
        clip(3, "Bunny", "sleep", change=(0, 0, 1)),
    )
    assert found.acts == (
        Act("talk", {"social": 1, "entertainment": 0, "stamina": -1}, company=True),
        Act("sleep", {"social": 0, "entertainment": 0, "stamina": 1}),
    )


def test_pairs_that_no_clip_shows_are_untried():
    found = words(clip(0), clip(1, "Frank", "sit", "day tree"))
    for pair in (("Bunny", "run"), ("Bunny", "meadow"), ("run", "meadow"), ("sit", "Frank")):
        assert found.tried(*pair), pair
    for pair in (("Bunny", "sit"), ("Frank", "meadow"), ("run", "tree"), ("Bunny", "Frank")):
        assert not found.tried(*pair), pair


def test_held_out_clips_and_those_without_a_caption_are_not_among_the_words():
    bare = msgspec.structs.replace(clip(2, "Nobody", "wait"), adverb=None)
    games = (GameRecord("a", (0, 2)), GameRecord("b", (1,), held_out=True))
    found = words(clip(0), clip(1, "Ghost", "float", "night attic"), bare, games=games)
    assert found.characters == ("Bunny",) and found.places == ("meadow",) and len(found.acts) == 1
    assert words(bare) is None
