"""A world of free base models: it starts as stock CogVideoX without a text, and `train` and `play` work with it."""

import shutil

import pytest
import stock_files as made
import torch
from diffusers import CogVideoXTransformer3DModel
from safetensors.torch import save_file

from animegamer_core.__main__ import main
from animegamer_core.weights import open_world
from animegamer_core.weights.convert import new_world
from animegamer_core.weights.downloads import find_base

FEW = "--batch 2 --log-every 1 --lr-warmup 1 --lr 1e-3 --weight-decay 0".split()


@pytest.fixture(scope="module")
def downloads(tmp_path_factory):
    """All base models, to be read only."""
    return made.write_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def world(downloads, tmp_path_factory):
    """The world of them in float32, to be read only."""
    return new_world(find_base(downloads), tmp_path_factory.mktemp("worlds") / "w", precision="keep")


@pytest.fixture
def src(downloads, tmp_path):
    """A copy of the base models that a test may break."""
    shutil.copytree(downloads, tmp_path / "src")
    return tmp_path / "src"


@pytest.mark.parametrize(("timestep", "motion"), [(19, 40.0), (999, 0.0)])
def test_the_first_velocity_is_that_of_stock_cogvideox_with_a_zero_text(world, downloads, timestep, motion):
    stock = CogVideoXTransformer3DModel.from_pretrained(downloads / "CogVideoX-2b" / "transformer").eval()
    decoder, encoder = world.load_decoder(), world.load_encoder()
    torch.manual_seed(timestep)
    latents, at = torch.randn(2, *world.spec.decoder.latent_shape), torch.full((2,), timestep)
    shown = encoder(["run quickly", "sleep"], torch.rand(2, 3, 40, 60) * 2 - 1)
    states_given = (decoder.unconditional_ND.expand(2, -1, -1), shown, encoder.unconditional().expand(2, -1, -1))
    with torch.no_grad():
        texts = torch.zeros(2, world.spec.state.tokens, made.TEXT)
        found = [decoder.velocity(latents, at, states, torch.full((2,), motion)) for states in states_given]
        expected = stock(latents, texts, timestep=at, return_dict=False)[0]
        # CogVideoX's own code ends with an eps of 1e-6, as our decoder does; diffusers with 1e-5, which drifts by 5e-6.
        stock.norm_out.norm.eps = 1e-6
        exact = stock(latents, texts, timestep=at, return_dict=False)[0]
    for velocity in found:
        torch.testing.assert_close(velocity, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(velocity, exact, rtol=1e-6, atol=1e-6)
    assert expected.std() > 0.1, "a velocity of nothing would prove nothing"


SIDES = ("text", "image")
PERIODS = {"rope_theta": 1e6}, {"rope_theta": None, "rope_parameters": {"rope_theta": 1e6}}  # as transformers 5 does


@pytest.mark.parametrize(("version", "rows", "stated"), [("v0.2", 32000, PERIODS[0]), ("v0.3", 32768, PERIODS[1])])
def test_another_mistral_is_a_row_of_the_table(version, rows, stated, src, tmp_path):
    """v0.3 has more entries, both have slower positions; the game's own tokens come after its own."""
    shutil.rmtree(src / "Mistral-7B-Instruct-v0.1")
    made.write_mistral(src / f"Mistral-7B-Instruct-{version}", rows=rows, **stated)
    engine = new_world(find_base(src), tmp_path / "w").load_engine()
    drawn = new_world(find_base(src), tmp_path / "other", seed=1).source("encoder").tensor("text_proj.0.weight")
    assert not drawn.equal(open_world(tmp_path / "w").source("encoder").tensor("text_proj.0.weight")), "by the seed"
    size = rows + 284
    assert (engine.spec.engine.vocab_size, engine.spec.engine.rope_theta) == (size, 1e6)
    periods = 1 / engine.llm.model.rotary_emb.inv_freq
    assert periods[1] == pytest.approx(1e6 ** (1 / len(periods)), rel=0.01)
    assert engine.tokenizer.strength(0) == size - 17 and engine.llm.model.embed_tokens.weight.shape == (size, 16)
    for table, scale in ((engine.llm.model.embed_tokens.weight, 1), (engine.llm.lm_head.weight, 3)):
        torch.testing.assert_close(table[-1], scale * table[:rows].mean(0), rtol=0.02, atol=1e-5)
    same_shape = [open_world(tmp_path / "w").source("encoder").tensor(f"{side}_proj.2.weight") for side in SIDES]
    assert not same_shape[0].equal(same_shape[1]), "each layer has its own"
    for layer in (engine.project_in[0], engine.project_out[0]):
        assert layer.weight.abs().max().item() == pytest.approx(layer.in_features**-0.5, rel=0.1)


def test_another_video_model_is_named(src, tmp_path):
    save_file({"blocks.0.weight": torch.zeros(2, 2)}, next((src / "CogVideoX-2b/transformer").glob("*.safetensors")))
    with pytest.raises(ValueError, match="has no text projection; expected CogVideoX-2b's transformer"):
        new_world(find_base(src), tmp_path / "w")


def test_the_stages_run_from_a_new_world_and_are_played(downloads, smaller_dataset, tmp_path, capsys):
    world = tmp_path / "worlds" / "mine"
    folders = vars(find_base(downloads))
    given = [word for name, folder in folders.items() if folder for word in (f"--{name}", str(folder))]
    assert main(["new", *given, "--out", str(world)]) == 0
    said = capsys.readouterr()
    assert "100%" in said.err and "Apache-2.0" in said.out and "European Union" not in said.out
    assert f"train warmup --dataset DATASET --world {world}" in said.out and "missing" not in said.out
    begun, game = open_world(world).fingerprint, tmp_path / "game.txt"
    game.write_text("Character: Red; Motion: quickly run; Background: day field.\n")
    played = ["play", str(game), "--world", str(world), "--out", str(tmp_path / "out"), "--steps", "1"]
    assert main([*played, "--name", "untrained"]) == 0
    files = {stage: tmp_path / "runs" / stage / f"{stage}.safetensors" for stage in STARTS}
    for stage, start in STARTS.items():
        options = ["--start", *(str(files[name]) for name in start)] if start else []
        options += ["--lora-rank", "2"] if stage != "warmup" else []
        places = ["--dataset", str(smaller_dataset), "--world", str(world), "--out", str(files[stage].parent)]
        assert main(["train", stage, *places, *options, *FEW, "--steps", "2"]) == 0
    assert open_world(world).fingerprint == begun, "the world stays as it is"
    staged = [word for stage in ("joint", "predict", "adapt") for word in ("--lora", str(files[stage]))]
    assert main([*played, *staged, "--name", "first"]) == 0
    assert list((tmp_path / "out" / "first").rglob("*.mp4"))


STARTS = {"warmup": (), "joint": ("warmup",), "predict": ("joint",), "adapt": ("joint", "predict")}
