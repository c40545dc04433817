"""`new --from`: a small world that begins with another's weights and knows a dataset's words too."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest
import torch

from animegamer_core.__main__ import main
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.spec import SPECS
from animegamer_core.story.story import Story
from animegamer_core.train.parts import WorldParts, with_guidance
from animegamer_core.train.world_setup import extended_world, finished_world
from animegamer_core.weights import open_world

OLD = "Character: Red; Motion: walk; Background: day field."
NEW = "Character: Violet; Motion: juggle; Background: night harbour."


@pytest.fixture(scope="module")
def other(places, tmp_path_factory):
    """(a start whose words' rows have a mean of 1, a dataset of the same clips with other words)."""
    dataset, start = DatasetFolder.open(places[0]), open_world(places[1])
    parts = WorldParts.load(start).in_memory()
    words = [index for word, index in start.tokenizer().backend.get_vocab().items() if not word.startswith("<")]
    parts.engine.llm.get_input_embeddings().weight.data[words] += 1
    start = parts.save(dataclasses.replace(start, folder=tmp_path_factory.mktemp("start"), trained_window=2))
    turns = tuple(
        msgspec.structs.replace(turn, character=("Violet",), motion="juggle", background="night harbour")
        for turn in dataset.turns
    )
    return start, dataclasses.replace(dataset, turns=turns)


def test_models_in_memory_leave_the_files_of_their_world(other):
    parts = WorldParts.load(other[0])
    mapped = [value for model in parts.models.values() for value in model.state_dict().values()]
    own = [value for model in parts.in_memory().models.values() for value in model.state_dict().values()]
    assert not {value.data_ptr() for value in mapped} & {value.data_ptr() for value in own}


def test_what_the_start_knew_it_predicts_as_before_and_new_words_are_known(other, tmp_path):
    start, dataset = other
    world = extended_world(start, dataset, tmp_path / "world")
    assert world.motion_table == dataset.motion_table != start.motion_table
    assert world.licence.startswith("It began with the weights of tiny") and "whose licences apply too" in world.licence
    before, after = (each.load_engine("cpu", torch.float32) for each in (start, world))
    assert start.tokenizer().unknown_words(NEW) == ("Violet", "juggle", "night", "harbour")
    assert not world.tokenizer().unknown_words(NEW) and not world.tokenizer().unknown_words(OLD)
    one, two = before.predict([], OLD), after.predict([], OLD)
    assert (one.motion, one.change) == (two.motion, two.change) and world.window == start.window == 2
    torch.testing.assert_close(one.representation, two.representation)
    embed = after.llm.get_input_embeddings().weight
    ids = [world.tokenizer().backend.token_to_id(word) for word in ("violet", "juggle", "harbour")]
    assert with_guidance(SPECS["toybox"]) == SPECS["toybox"], "which is drawn without, as its sizes' own spec says"
    assert len({tuple(embed[index].tolist()) for index in ids}) == 3  # each new word has a row of its own
    assert embed[ids].mean().item() == pytest.approx(1, abs=0.3), "like those of the words that it knew"


def test_it_is_trained_by_the_next_command_that_new_prints(places, tmp_path, capsys):
    out = tmp_path / "world"
    command = ["new", "--from", str(places[1]), "--dataset", str(places[0]), "--out", str(out)]
    assert main(command) == 0 and f"train all --dataset {places[0]} --world {out}" in capsys.readouterr().out
    steps = "--steps 1 --batch 2 --lr-warmup 0 --set adapt.batch=2".split()
    run = ["train", "all", "--dataset", str(places[0]), "--world", str(out), "--out", str(tmp_path / "runs")]
    assert main([*run, "--stages", "predict,adapt", *steps]) == 0
    files = [(tmp_path / "runs/predict/predict.safetensors", 1.0)]
    for effort, warnings in ((1, 0), (0.01, 1)):
        finished_world(open_world(places[1]), files, tmp_path / f"at {effort}", effort)
        made = open_world(tmp_path / f"at {effort}")
        assert len(made.warnings) == warnings and all("had 1% of its training" in one for one in made.warnings)
    assert made.trained_window == open_world(out).trained_window is not None, "it plays as it was trained"
    play = ["play", "--auto", "2", "--world", str(out), "--steps", "1", "--out", str(tmp_path / "stories")]
    assert main(play) == 0 and len(Story.read(tmp_path / "stories", "auto").entries) == 2
    assert main(command) == 2 and "already holds a world" in capsys.readouterr().err
