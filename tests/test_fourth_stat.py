"""A world of one's own may have a stat more: a row in its world.json, and nothing else."""

import json

import msgspec
import numpy as np
import pytest
from tiny_world import save_tiny_world

from animegamer_core.data.captions.replies import parse_caption
from animegamer_core.data.captions.run import caption_clips, open_captioner
from animegamer_core.data.check import check
from animegamer_core.data.dataset import with_levels, write_tables
from animegamer_core.data.records import ClipRecord
from animegamer_core.data.review import write_review
from animegamer_core.data.stats import stats as stats_table
from animegamer_core.data.vocabulary import life_of
from animegamer_core.game.life import STATS, Life, Rules, Stat
from animegamer_core.game.state import GameSession
from animegamer_core.media.video import write_clip
from animegamer_core.model.engine import GameEngine
from animegamer_core.runtime.models import PlaySettings
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.story.player import Player
from animegamer_core.story.story import Story
from animegamer_core.train.engine_learner import PromptTable
from animegamer_core.train.world_setup import words_tokenizer
from animegamer_core.weights import open_world

HUNGER = Stat("hunger", "HU", (1, -2, 0), "1 as time passes; -2 if the character eats; otherwise 0", step=10)
LINE = "Character: Miko; Motion: gently wave hello; Background: day forest."


def test_it_is_predicted_counted_and_kept(tmp_path):
    save_tiny_world(tmp_path / "world", life=Life(Rules((*STATS, HUNGER))))
    row = json.loads((tmp_path / "world" / "world.json").read_text())["life"]["rules"]["stats"][3]
    assert (row["name"], row["tag"], row["choices"]) == ("hunger", "HU", [1, -2, 0])
    world = open_world(tmp_path / "world")
    story = Story.open(tmp_path, "tale", world.spec.name, world.fingerprint)
    players = [Player(world, story, PlaySettings(steps=1), opening=opening) for opening in (None, GameSession())]
    turns = [player.step(LINE).turn for player in players for _ in range(3)]
    for turn in turns:
        assert list(turn.state.change) == ["social", "entertainment", "stamina", "hunger"]
        assert turn.state.change["hunger"] in HUNGER.choices and len(turn.state.raw_choices) == 5
        assert turn.character["hunger"] == HUNGER.after(turn.before["hunger"], turn.state.change["hunger"])
    back = Story.read(tmp_path, "tale").session(3, 4)
    assert [turn.character for turn in back.turns] * 2 == [turn.character for turn in turns]


def test_a_dataset_states_it_from_captions_to_training(tmp_path):
    stats, folder = (*STATS, HUNGER), tmp_path / "dataset"
    span = {"start": 0, "end": 99, "character": "Miko", "motion": "eat", "background": "day forest", "adverb": "calmly"}
    span["stats"] = {"social": 0, "entertainment": 0, "stamina": 1, "hunger": -2}
    (tmp_path / "tale.captions.jsonl").write_text(json.dumps(span))
    script = open_captioner("script", stats, sidecars={"tale": tmp_path / "tale.captions.jsonl"})
    clips = [f"clips/{number}.mp4" for number in range(5)]
    for clip in clips:
        write_clip(folder / clip, np.zeros((3, 4, 6, 3), np.uint8), 8)
    turns, levels = with_levels(
        [ClipRecord(film="tale", start=2 * n, end=2 * n + 2, clip=clip, motion_value=n) for n, clip in enumerate(clips)]
    )
    report = caption_clips(folder, turns, script)
    settings = {"fps": 8, "motion": levels, "stats": msgspec.to_builtins(stats)}
    dataset = write_tables(folder, report.records, [("game", clips, False)], {}, settings)
    assert dataset.stats == stats and [turn.stats["hunger"] for turn in dataset.turns] == [-2] * 5
    reply = "<S>cat</S><MD>eat</MD><EV>day hill</EV><MA>fast</MA><SC>0</SC><ET>0</ET><ST>1</ST><HU>-2</HU>"
    assert parse_caption(reply, stats).stats["hunger"] == -2
    assert "hunger" in stats_table(folder) and not [problem for problem in check(folder) if problem.serious]
    assert '"name":"hunger"' in write_review(folder).read_text()
    life = life_of(dataset)
    assert life.rules.stats == stats and life.words.acts[0].change["hunger"] == -2
    spec, profile = SPECS["tiny"], PROFILES["paper"]
    engine = GameEngine(spec, words_tokenizer(dataset.turns, spec, dataset.stats), profile)
    text = engine.tokenizer.decode_with_tags(PromptTable(engine, dataset.turns).prompt([0, 1]).ids_L.tolist())
    assert text.count("<HU> <Strength_-2> </HU> </TURN>") == 2
    with pytest.raises(ValueError, match="the world's stats are social, entertainment, stamina"):
        PromptTable(GameEngine(spec, words_tokenizer(dataset.turns, spec), profile), dataset.turns)
