"""Adapters on top of a world: its models change, its folder does not, and a story knows one from the other."""

from dataclasses import replace

import pytest
import torch

from animegamer_core.__main__ import main
from animegamer_core.runtime.presets import PRESETS, sampling_in
from animegamer_core.spec import PROFILES, UNSTATED, Reading, Sampling
from animegamer_core.train.stages import StageConfig
from animegamer_core.weights.adapter_files import AdapterFacts, save_adapter
from animegamer_core.weights.adapters import open_with_adapters, reading_of, with_adapters, with_facts

CONFIG = StageConfig(trainable=(r"engine\.project_in\..+", r"decoder\.transformer\.proj_out\..+"))


@pytest.fixture
def file(world, tmp_path):
    """A stage file that adds one to a bias of the engine and to one of the decoder."""
    raised = {
        "engine.project_in.0.bias": world.load_engine().project_in[0].bias + 1,
        "decoder.transformer.proj_out.bias": world.load_decoder().transformer.proj_out.bias + 1,
    }
    save_adapter(tmp_path / "raised.safetensors", "joint", CONFIG, raised, {})
    return tmp_path / "raised.safetensors"


def test_turns_are_read_as_the_last_training_read_them(world):
    trained = {2: "engine", 3: "engine", 4: "decoder"}
    files = [AdapterFacts("", "", frozenset({own}), Reading(world.profile, window)) for window, own in trained.items()]
    assert reading_of(world, files).window == 3 and with_facts(world, files[2]) == world
    other = replace(files[2], reading=Reading(PROFILES["reference"], 4))
    assert with_facts(world, other) == world, "with_adapters refuses it, unless a profile is chosen"
    measured = replace(files[2], motion_table=world.motion_table, provenance={"motion backend": "raft"})
    known = replace(world, provenance={"motion backend": "dis", "made_by": "new"})
    assert with_facts(known, measured).provenance == {"motion backend": "raft", "made_by": "new"}


def biases(world):
    return world.load_engine().project_in[0].bias, world.load_decoder().transformer.proj_out.bias


@pytest.mark.parametrize(("given", "strength"), [("{}", 1.0), ("{}=0.5", 0.5), ("{}=-2", -2.0)])
def test_models_change_by_the_strength_and_the_folder_stays(world, file, given, strength):
    before = {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()}
    adapted = open_with_adapters(world.folder, [given.format(file)])
    assert adapted.base == world.base == world
    for changed, plain in zip(biases(adapted), biases(world), strict=True):
        torch.testing.assert_close(changed, plain + strength)
    assert {path: path.read_bytes() for path in world.folder.rglob("*") if path.is_file()} == before


def test_several_files_add_up_in_order_and_a_profile_keeps_them(world, file):
    odd = file.rename(file.with_name("lr=2.safetensors"))  # a name may have an equals sign
    first = open_with_adapters(world.folder, [f"{odd}=0.5"])
    adapted = with_adapters(first, ((str(odd), 1.0),)).with_profile("reference")
    assert adapted.profile.name == "reference" and adapted.adapters == ((str(odd), 0.5), (str(odd), 1.0))
    torch.testing.assert_close(biases(adapted)[0], biases(world)[0] + 1.0)  # the second leads to the trained weights
    adapted.refit("engine", engine := world.load_engine())
    assert engine.profile is adapted.profile, "a loaded model reads turns as the world that it is refitted for"
    assert open_with_adapters(world.folder, [str(odd)]).adapters == ((str(odd), 1.0),)


def test_the_fingerprint_tells_files_strengths_and_contents_apart(world, file):
    def prints():
        return [with_adapters(world, ((str(file), strength),)).fingerprint for strength in (1.0, 0.5, 0.52)]

    before = prints()
    assert len({world.fingerprint, *before}) == 4 and prints() == before
    save_adapter(file, "joint", CONFIG, {"engine.project_in.0.bias": torch.zeros(32)}, {})
    assert not set(prints()) & set(before) and with_adapters(world, ((str(file), 0.0),)) is world


def test_sampling_is_as_the_last_training_of_the_decoder_states_unless_it_is_asked_for(world, file, tmp_path):
    raised, quick = {"decoder.transformer.proj_out.bias": torch.ones(16)}, tmp_path / "quick.safetensors"
    taught = Sampling(steps=(999, 856, 665, 399), guidance="distilled", solver="ddim")
    save_adapter(quick, "distill", CONFIG, raised, {}, {"sampling": taught.stated()})
    adapted, live = with_adapters(world, ((str(quick), 1.0),)), PRESETS["live"]
    assert sampling_in(adapted, UNSTATED) == sampling_in(adapted, UNSTATED, live) == taught
    assert sampling_in(adapted, Sampling(steps=3), live) == replace(taught, steps=3)
    trained_on = with_adapters(adapted, ((str(file), 1.0),))  # a stage with guidance takes it out of the weights again
    assert sampling_in(trained_on, UNSTATED) == sampling_in(world, UNSTATED)
    save_adapter(quick, "distill", CONFIG, raised, {}, {"sampling": {"steps": [399, 665]}})
    with pytest.raises(ValueError, match="timesteps 399, 665: expected falling ones"):
        with_adapters(world, ((str(quick), 1.0),))


def test_what_is_not_there_is_said_before_anything_is_loaded(world):
    absent = "absent.safetensors", "no adapter file absent.safetensors; give"
    for given, says in (absent, ("x=much", "expected FILE or FILE=STRENGTH")):
        with pytest.raises(ValueError, match=says):
            open_with_adapters(world.folder, [given])


def test_playing_refuses_what_trains_the_encoder_alone(world, tmp_path, capsys):
    name = "encoder.action.0.weight"
    file = tmp_path / "encoder.safetensors"
    save_adapter(file, "warmup", StageConfig(trainable=(name,)), {name: torch.zeros(1)}, {})
    assert open_with_adapters(world.folder, [str(file)]).fingerprint == world.fingerprint
    for command in (["play", "--name", "x"], ["evaluate"]):
        assert main([*command, "--world", str(world.folder), "--lora", str(file), "--out", str(tmp_path)]) == 2
        assert f"adapter {file} changes only the encoder" in capsys.readouterr().err
