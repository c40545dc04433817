"""A world of free base models: it starts as stock CogVideoX without a text, and `train` and `play` work with it."""

import shutil
from unittest import mock

import pytest
import stock_files as made
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXTransformer3DModel
from published_files import image_tower_tensors
from transformers import MistralConfig, MistralForCausalLM

from animegamer_core.__main__ import main
from animegamer_core.checkpoint import CheckpointError, base, open_world
from animegamer_core.checkpoint.base_folders import BaseFolders, find_base
from animegamer_core.checkpoint.new import new_world
from animegamer_core.checkpoint.parts import PARTS, build_model
from animegamer_core.model.encoder import image_encoder, text_encoder
from animegamer_core.spec import RELEASE

FEW = "--batch 2 --log-every 1 --lr-warmup 1 --lr 1e-3 --weight-decay 0 --accumulation 1".split()
ENCODERS = ("text_tower", "image_tower")


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


def command(folders, out, *options):
    given = ["--cogvideox", str(folders.cogvideox), "--mistral", str(folders.mistral)]
    given += ["--t5", str(folders.t5)] if folders.t5 else []
    given += ["--clip", str(folders.clip)] if folders.clip else []
    return main(["new", *given, "--out", str(out), *options])


def stored(world, part):
    source = world.storage.source(part)
    return {key: source.tensor(key) for key in source.keys()}  # noqa: SIM118  not a mapping


# ---- what it begins with


@pytest.mark.parametrize(("timestep", "motion"), [(19, 40.0), (499, 2.5), (999, 0.0)])
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


def test_the_engine_is_mistral_with_added_rows(world, downloads):
    stock = MistralForCausalLM.from_pretrained(downloads / "Mistral-7B-Instruct-v0.1").float()
    engine = world.load_engine()
    for name, value in stock.state_dict().items():
        ours = engine.llm.state_dict()[name]
        assert torch.equal(ours[: len(value)], value), name
    for weight, scale in ((engine.llm.model.embed_tokens.weight, 1.0), (engine.llm.lm_head.weight, 3.0)):
        assert weight.shape == (32284, 16)
        mean = scale * weight[:32000].mean(0)
        assert (weight[32000:] - mean).abs().max() <= 2**-8 * mean.abs().max(), "bfloat16, as the base rows"
    assert engine.tokenizer.strength(0) == 32267 and world.spec.engine.vocab_size == 32284
    assert world.profile.name == "paper"


def test_the_seed_decides_what_begins_random_and_nothing_else(downloads, tmp_path):
    folders, seeds = find_base(downloads), {"a": 5, "b": 5, "c": 6}
    worlds = [new_world(folders, tmp_path / name, seed=seed) for name, seed in seeds.items()]
    for part in ("engine", "decoder", "encoder", "vae"):
        first, same, other = (stored(world, part) for world in worlds)
        assert all(torch.equal(value, same[name]) for name, value in first.items())
        changed = {name for name, value in first.items() if not torch.equal(value, other[name])}
        random = {name for name in first if "_proj." in name or name.startswith(("project_", "transformer.ofs_"))}
        random -= {name for name in random if name.startswith("llm.") or ".linear_2." in name}
        assert changed == random
        if part in ("decoder", "encoder"):
            assert {value.dtype for value in first.values()} == {torch.float16}, "as released"
    nothing = worlds[0].load_encoder(parts=("encoder",)).unconditional()
    assert torch.equal(nothing, worlds[0].load_decoder().unconditional_ND), "both round the stock bias alike"


# ---- from the command line to a game


def test_the_stages_run_from_a_new_world_and_are_played(downloads, smaller_dataset, tmp_path, capsys):
    world = tmp_path / "worlds" / "mine"
    assert command(find_base(downloads), world) == 0
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


def test_without_its_text_and_image_encoders_a_world_cannot_be_trained_yet(
    downloads, smaller_dataset, tmp_path, capsys
):
    cogvideox = tmp_path / "CogVideoX-2b"
    shutil.copytree(downloads / "CogVideoX-2b", cogvideox, ignore=shutil.ignore_patterns("text_encoder", "tokenizer"))
    folders, out = BaseFolders(cogvideox, downloads / "Mistral-7B-Instruct-v0.1"), tmp_path / "w"
    assert command(folders, out) == 0
    said = capsys.readouterr().out
    assert "text encoder is missing" in said and "--t5 DIR" in said and "--clip DIR" in said
    places = ["--dataset", str(smaller_dataset), "--world", str(out), "--out", str(tmp_path / "run")]
    assert main(["train", "warmup", *places, *FEW, "--steps", "1"]) == 2
    assert "text_tower is not complete" in capsys.readouterr().err
    mixing = "encoder/model.safetensors"  # made for the published image encoder until another one is there
    ages = {path: (out / path).stat().st_mtime_ns for path in open_world(out).files if path != mixing}
    whole = BaseFolders(cogvideox, folders.mistral, downloads / "CogVideoX-2b" / "text_encoder", downloads / made.CLIP)
    assert command(whole, out) == 0
    assert "missing" not in capsys.readouterr().out and not open_world(out).missing()
    assert ages == {path: (out / path).stat().st_mtime_ns for path in ages}, "only what was missing is written"


# ---- the layouts that people have


# ---- what is refused, each in one sentence


def refuse(src, out, match, **options):
    with pytest.raises(CheckpointError, match=match) as caught:
        new_world(find_base(src), out, **options)
    assert "\n" not in str(caught.value)
    assert not (out / "world.json").exists(), "nothing is written before all of it fits"


VIDEO = "CogVideoX-2b/transformer/config.json"
VAE, NOISE = "CogVideoX-2b/vae/config.json", "CogVideoX-2b/scheduler/scheduler_config.json"
LLM, TEXTS = "Mistral-7B-Instruct-v0.1/config.json", "CogVideoX-2b/text_encoder/config.json"


@pytest.mark.parametrize(
    ("file", "changes", "match"),
    [
        (VIDEO, {"use_rotary_positional_embeddings": True}, "as in CogVideoX-5b; expected CogVideoX-2b"),
        (VIDEO, {"num_layers": 30}, "num_layers is '30', but the weights next to it have 2"),
        (VIDEO, {"sample_height": "60"}, "sample_height is '60'; expected a whole number"),
        (VAE, {"scaling_factor": 0.7}, "scaling_factor is '0.7'; expected 1.15258426 of CogVideoX-2b"),
        (LLM, {"model_type": "mixtral"}, "model_type is 'mixtral'; expected 'mistral'"),
        (LLM, {"vocab_size": 32768}, "vocab_size is '32768', but the weights next to it have 32000"),
        (TEXTS, {"d_model": 4096}, "d_model is '4096', but the weights next to it have 16"),
    ],
)
def test_configurations_that_do_not_fit(src, tmp_path, file, changes, match):
    made.change_config(src / file, **changes)
    refuse(src, tmp_path / "w", f"{file}: .*{match}")


class Shapes:
    """Weights of a model without memory: what may be asked of them before anything is written."""

    files, half = (), "float16"

    def __init__(self, tensors, path):
        self.path, self._tensors = path, tensors
        self.keys = tensors.keys

    def shape(self, key):
        return tuple(self._tensors[key].shape)

    def dtype(self, key):
        return self._tensors[key].dtype


def test_models_of_the_published_sizes_are_known_as_such(tmp_path):
    """By names, shapes and configurations alone, as the libraries have them; no weights take part."""
    spec, video, llm = RELEASE, tmp_path / "CogVideoX-2b", tmp_path / "Mistral-7B-Instruct-v0.1"
    kinds = {"down_block_types": ("CogVideoXDownBlock3D",) * 4, "up_block_types": ("CogVideoXUpBlock3D",) * 4}
    transformer, vae = build_model(CogVideoXTransformer3DModel), build_model(lambda: AutoencoderKLCogVideoX(**kinds))
    transformer.save_config(video / "transformer")
    vae.save_config(video / "vae")
    t5 = build_model(lambda: text_encoder(spec.encoder.text))
    t5.config.save_pretrained(video / "text_encoder")
    made.write_letters(video / "tokenizer" / "tokenizer.json", 32100)
    config = MistralConfig(vocab_size=32000, max_position_embeddings=32768, rms_norm_eps=1e-5)
    config.save_pretrained(llm)
    made.write_letters(llm / "tokenizer.json", 32000, "\u2581")
    (tmp_path / made.CLIP).mkdir()
    weights = {
        "transformer": transformer.state_dict(),
        "vae": vae.state_dict(),
        "text_encoder": t5.state_dict(),
        llm.name: build_model(lambda: MistralForCausalLM(config)).state_dict(),
        made.CLIP: image_tower_tensors(build_model(lambda: image_encoder(spec.encoder.image))),
    }
    with mock.patch.object(base, "open_weights", lambda folder, *_: Shapes(weights[folder.name], folder)):
        found = base.open_base(find_base(tmp_path), spec="release")
    assert found.spec == RELEASE and set(found.sources) == set(PARTS)
    shapes = {name: source.shape(name) for source in found.sources.values() for name in source.keys()}  # noqa: SIM118
    assert shapes["llm.lm_head.weight"] == (32284, 4096) and shapes["unconditional_ND"] == (226, 1920)
