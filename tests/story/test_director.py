"""The director proposes what happens next, and a world's rules say how the stats follow."""

import json
from collections import Counter
from dataclasses import replace
from itertools import chain

import pytest
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.game.director import Director, director_for, words_for
from animegamer_core.game.life import STATS, Act, Consequence, Life, Rules, Words
from animegamer_core.game.recall import PUBLISHED
from animegamer_core.game.state import GameSession, GameState
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.story.player import Player
from animegamer_core.story.story import Story
from animegamer_core.toybox.splits import SEEN, TRAINED_LIFE, Casting, novelties
from animegamer_core.toybox.world import LIFE, MOTIONS, PROPS, RULES, WORDS, vocabulary, words
from animegamer_core.weights import open_world, save_world

RAN = GameState(None, 2, {"entertainment": 1, "stamina": -1})


@pytest.fixture
def world(tmp_path_factory):
    """A tiny world of a test's own, which may change what it states."""
    return save_tiny_world(tmp_path_factory.mktemp("stated"))


def played(director, turns, rules=RULES, session=None):
    """A game that the director plays, whose engine says what the world states of each act."""
    session = session or GameSession(rules=rules)
    for _ in range(turns):
        text = director(session)[0].instruction
        act = WORDS.act_of(PUBLISHED.fullmatch(text)["motion"])
        session = session.step(text, GameState(None, 2, RULES.change(act.change)))
    return session


def act_of(proposal):
    return WORDS.act_of(PUBLISHED.fullmatch(proposal.instruction)["motion"])


@pytest.mark.parametrize("main", [*WORDS.characters, None])
def test_a_long_game_stays_lively_and_in_the_vocabulary(main):
    """With each main character, who has only the acts that training showed, and with nothing left out."""
    known = TRAINED_LIFE.words if main else WORDS
    session = GameSession(rules=RULES)
    if main:
        session = session.step(f"Character: {main}; Motion: run; Background: day forest.", RAN)
    turns = played(Director(known), 600, session=session).turns
    assert {word for turn in turns for word in words(turn.instruction)} <= set(vocabulary())
    parts = [PUBLISHED.fullmatch(turn.instruction) for turn in turns]
    acts = Counter(WORDS.act_of(part["motion"]).phrase for part in parts)
    for counts in (acts, Counter(part["place"].split()[-1] for part in parts)):
        assert max(counts.values()) <= 0.15 * len(turns)
        if main is None:
            assert len(counts) in (len(WORDS.acts), len(WORDS.places))
    inside = [all(5 <= value <= 95 for value in turn.character.values()) for turn in turns]
    assert sum(inside) >= 0.9 * len(turns)


@pytest.mark.parametrize("opening", ["Yuzu sits in the castle", "Character: Yuzu; Motion: run; Background: castle."])
def test_proposals_for_the_first_turn_go_on_with_who_and_where_the_opening_is(opening):
    session = GameSession(rules=RULES).open_with(opening, GameState.of_picture(None))
    for seed in range(20):
        parts = [PUBLISHED.fullmatch(proposal.instruction) for proposal in Director(WORDS, seed)(session, 3)]
        assert all("Yuzu" in part["who"] and part["place"].endswith(" castle") for part in parts)
        assert WORDS.adverbs[2].count(parts[0]["motion"].split()[0]), "and are still those of a first turn"


@pytest.mark.parametrize(("stat", "value"), [("stamina", 10), ("social", 10), ("entertainment", 5)])
def test_a_low_stat_is_what_most_proposals_raise(stat, value):
    session = GameSession(opening={"stamina": 50, "social": 50, "entertainment": 50, stat: value}, rules=RULES)
    proposals = [Director(WORDS, seed)(session)[0] for seed in range(40)]
    right = [proposal for proposal in proposals if act_of(proposal).change[stat] > 0]
    assert len(right) >= 30 and all(proposal.reason == stat for proposal in right)


def test_a_stat_in_the_middle_of_its_range_is_not_low():
    session = GameSession(rules=Rules((*RULES.stats[:2], replace(RULES.stats[2], start=10, high=20))))
    proposals = [Director(WORDS, seed)(session)[0] for seed in range(40)]
    assert sum(act_of(proposal).change.get("stamina", -1) > 0 for proposal in proposals) < 25
    tender = Words(("Kai",), (Act("hug", {"social": 1, "entertainment": 1}),), ("bay",))
    session = GameSession(opening={"social": 30, "entertainment": 20})
    assert Director(tender)(session)[0].reason == "entertainment", "the lowest stat"


def test_what_came_often_or_just_now_or_long_ago_by_hand():
    def after(*motions):
        session = GameSession()
        for motion in motions:
            session = session.step(f"Character: Kai; Motion: {motion}; Background: bay.", GameState(None, 2))
        return session

    def offered(session, acts, **more):
        known = Words(("Kai",), tuple(map(Act, acts)), ("bay",), **more)
        texts = (Director(known, seed)(session)[0].instruction for seed in range(60))
        return Counter(PUBLISHED.fullmatch(text)["motion"] for text in texts)

    assert set(offered(after(*"abcdefbcdefbcdefefaa"), "abcdef")) == {"a"}, "twice in the last 19 turns, others thrice"
    assert offered(after("a", "b"), "abc")["c"] > 48, "a and b are both among the last two"
    for later, thing in ((5, "the"), (32, "a red")):
        session = after("wave hello with a red scarf", *["wave hello"] * later)
        carried = offered(session, ["wave hello"], things=("scarf",), looks=("red",))
        assert set(carried) == {"wave hello", f"wave hello with {thing} scarf"}


def test_at_no_stamina_only_rest_is_proposed_and_counts():
    session = GameSession(opening={"stamina": 0, "social": 50, "entertainment": 50}, rules=RULES)
    for seed in range(20):
        for proposal in Director(WORDS, seed)(session, 3):
            assert act_of(proposal).change.get("stamina", -1) > 0
            assert PUBLISHED.fullmatch(proposal.instruction)["motion"].split()[0] in {*chain(*WORDS.adverbs[:3])}
    turn = session.step("dance", GameState(None, 4, {"social": 1, "entertainment": 1, "stamina": -1})).turns[-1]
    assert turn.refused == ("social", "entertainment") and turn.state.change["social"] == 1  # both are kept
    assert turn.moved == {"social": RULES.stats[0].drift, "entertainment": RULES.stats[1].drift, "stamina": 0}


def test_nothing_is_proposed_together_that_training_never_showed_together():
    phrases = {row.phrase: name for name, row in MOTIONS.items()}
    for seed in range(12):
        for turn in played(Director(TRAINED_LIFE.words, seed), 60).turns:
            parts = PUBLISHED.fullmatch(turn.instruction)
            who, place = parts["who"].split(", "), parts["place"].split()[-1]
            act = TRAINED_LIFE.words.act_of(parts["motion"])
            motion = phrases[act.phrase]
            assert not act.places or place in act.places, "nobody swims in a bedroom"
            casting = Casting(who[0], who[1] if len(who) > 1 else None, motion, place)
            assert novelties(casting) == SEEN, turn.instruction


def test_a_world_of_one_short_film_is_proposed_as_the_film_shows_it():
    acts = [Act(phrase, WORDS.act_of(phrase).change) for phrase in ("jump", "swim")]
    untried = [(name, word) for name in ("Red", "Blue") for word in ("jump", "field")]
    untried += [("Sunny", "swim"), ("Sunny", "sky"), ("jump", "sky"), ("swim", "field")]
    cast = {"characters": ("Red", "Blue", "Sunny"), "acts": acts, "places": ("field", "sky"), "pronouns": ()}
    known = replace(WORDS, **cast, untried=tuple(untried))
    for seed in range(20):
        offered = Director(known, seed)(GameSession(rules=RULES), 2)
        assert len(offered) == 2 and not any(known.untried_in(one.instruction) for one in offered), "one of each"


@pytest.mark.parametrize(
    "begun", ["Character: Miko; Motion: run; Background: day beach.", "Nori swims at the beach", ""]
)
def test_proposals_to_choose_from_continue_the_story(begun):
    for seed in range(20):
        session = GameSession(rules=RULES)
        session = session.step(begun, RAN) if begun else session
        offered = [PUBLISHED.fullmatch(one.instruction) for one in Director(TRAINED_LIFE.words, seed)(session, 3)]
        motions = [act["motion"] for act in offered]
        assert any(", " in one["who"] for one in offered), "a friend comes in one of them"
        assert len({*motions}) == 3 and not any(motion.split()[-1] in PROPS for motion in motions)
        if begun:
            assert all(begun.removeprefix("Character: ").startswith(one["who"].split(", ")[0]) for one in offered)
            assert all(one["place"].endswith("beach") for one in offered[:2])
        else:
            first = WORDS.act_of(offered[0]["motion"])
            assert first.change["entertainment"] and offered[0]["motion"].split()[0] in WORDS.adverbs[2]


def test_the_player_may_write_anything_between():
    session = GameSession(rules=RULES)
    for text in ("Something strange happens", "Character: Momo; Motion: ponder; Background: moon."):
        session = session.step(text, GameState(None, 3, {}))
        assert Director(WORDS)(session)
    assert Director(WORDS)(session)[0].instruction.startswith("Character: Momo")


def test_a_text_names_what_training_never_showed_together():
    pairs = (("Kai", "run"), ("Kai", "beach"), ("Kai", "beach"))
    known = Words(("Kai", "Mia"), (Act("run"), Act("run away")), ("beach",), untried=pairs)
    assert known.act_of("slowly run away").phrase == "run away"
    assert known.untried_in("At the beach, Kai wants to run away") == [("Kai", "beach")]
    assert known.untried_in("Character: Kai; Motion: run; Background: bay.") == [("Kai", "run")]
    known = replace(known, times=("day",))
    setting = {"daylit bay": ("", "daylit bay"), "in the same place by day": ("day", ""), "day bay": ("day", "bay")}
    for text, parts in setting.items():
        assert known.parts_of(f"Character: Kai; Motion: run; Background: {text}.")[2:] == parts
    assert known.nearest("beech") == ["beach"] and known.nearest("away") == ["run away"] and not known.nearest("dragon")
    assert set(known.nearest("Lily")) <= set(known.characters), "a name is a character's"


# Worlds


def test_the_shipped_world_states_what_the_toybox_draws():
    assert open_world("toybox").life == TRAINED_LIFE and TRAINED_LIFE.rules == LIFE.rules


def test_a_world_without_words_gets_everyday_ones_and_its_characters():
    session = GameSession()
    assert words_for(Life(), "sosuke", session).characters == ("Sosuke", "Ponyo")
    with pytest.raises(ValueError, match="lists no characters, .* first play a turn in the form"):
        director_for(Life(), "mine", session, 0)
    session = session.step("Character: Kai, Mia; Motion: run; Background: day beach.", GameState(None, 3))
    assert director_for(Life(), "mine", session, 0)(session)[0].instruction.startswith("Character: Kai")


def test_auto_without_words_says_how_to_begin_and_both_ways_work(world, tmp_path, capsys):
    file = tmp_path / "one.txt"
    file.write_text("Character: Kai; Motion: run; Background: day beach.\n")
    arguments = ["play", "--world", str(world.folder), "--steps", "1", "--out", str(tmp_path / "out")]
    assert world.life.words is None and main([*arguments, "--auto", "1"]) == 2
    assert "first play a turn in the form" in capsys.readouterr().err
    assert main([*arguments, str(file), "--auto", "1"]) == 0
    assert main([*arguments, "--resume", "--name", "one", "--auto", "1"]) == 0
    turns = Story.read(tmp_path / "out", "one").session(3, 3).turns
    assert len(turns) == 3 and all("Character: Kai;" in turn.instruction for turn in turns)


def test_a_worlds_rules_are_kept_with_its_stories(world, tmp_path):
    energy = replace(STATS[2], label="energy", start=80, step=10, high=90)
    rules = Rules((*STATS[:2], energy), (Consequence("social", 55, ()),))
    path = tmp_path / "world"
    stated = save_world(path, world.spec, life=Life(rules, Words(("Kai",), (Act("run"),), ("beach",))))
    assert open_world(path).life == stated.life
    assert save_world(path, world.spec).life == stated.life, "written again without them, it keeps them"

    ruled = replace(world, life=stated.life)
    story = Story.open(tmp_path, "tale", world.spec.name, world.fingerprint)
    player = Player(ruled, story, PlaySettings(steps=1))
    turn = player.step("run").turn
    assert turn.before["stamina"] == 80 and turn.character["stamina"] in (70, 80)
    assert turn.character["social"] == 50, "nothing rises"
    assert list(rules.allowed(turn.before, dict(zip(rules.names, (1, 0, -1), strict=True))).values()) == [0, 0, -1]
    again = Player(world, Story.read(tmp_path, "tale"), PlaySettings()).story
    assert again.rules == rules and again.session(1, 4).turns == player.story.session(1, 4).turns
    assert json.loads((tmp_path / "tale" / "story.json").read_text())["rules"]["stats"][2]["label"] == "energy"


def test_damaged_statements_are_refused_by_name(world, tmp_path):
    save_world(tmp_path, world.spec)
    path, moods = tmp_path / "world.json", {"consequences": [{"stat": "mood", "at_most": 0, "only": []}]}
    joys = {"stats": [{"name": "joy", "tag": "JO", "choices": [0, 1], "start": 101}]}
    for life in ({"rules": joys}, {"rules": moods}, {"words": {"characters": ["Kai; Motion: fly"]}}):
        path.write_text(json.dumps({**json.loads(path.read_text()), "life": life}))
        with pytest.raises(ValueError, match=r"world\.json: field life"):
            open_world(tmp_path)


# Playing


def test_a_game_that_plays_itself_is_recorded_and_replays_exactly(world, tmp_path, capsys):
    arguments = ["play", "--world", str(world.folder), "--out", str(tmp_path), "--name", "life", "--steps", "1"]
    state_words(world)
    assert main([*arguments, "--auto", "3", "--director-seed", "5"]) == 0
    shown = capsys.readouterr().out
    assert [entry.proposed_by for entry in Story.read(tmp_path, "life").entries] == ["rules, seed 5"] * 3
    assert main([*arguments, "--auto", "4", "--director-seed", "5"]) == 0  # the same command goes on
    again = capsys.readouterr().out
    assert again.count("(known)") == 3 and "turn 4/4" in again
    assert [line for line in shown.splitlines() if line.startswith("turn 1")][0][8:] in again
    assert Story.read(tmp_path, "life").branches() == ["main"]


def test_a_typed_game_offers_proposals(world, tmp_path, capsys, monkeypatch):
    state_words(world)
    lines = iter(["2\n", "9\n", "@auto 1\n", "@auto much\n", "Miko naps\n", ""])
    monkeypatch.setattr("sys.stdin.readline", lambda: next(lines))
    arguments = ["play", "--world", str(world.folder), "--out", str(tmp_path), "--steps", "1", "--suggest"]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    offered = [line.strip() for line in printed.err.splitlines() if line.startswith("  2. ")]
    turns = [line for line in printed.out.splitlines() if line.startswith("turn ")]
    assert len(turns) == 3 and "Character: Miko;" in turns[2] and "typed: Miko naps" in printed.out
    assert turns[0].split("  ")[1] in offered[0]
    assert "there is no proposal 9" in printed.err and "how many turns?" in printed.err


def state_words(world, words=WORDS):
    """Let the saved tiny world state these words."""
    save_world(world.folder, world.spec, profile=world.profile.name, life=Life(words=words))
