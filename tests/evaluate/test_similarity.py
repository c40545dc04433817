"""The models that score pictures: published ones from the user's folders."""

import json
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers.pre_tokenizers import ByteLevel

from animegamer_core.evaluate.similarity import (
    DREAMSIM_FILES,
    Preprocessing,
    open_clip_model,
    open_dreamsim,
    open_scoring_models,
)
from animegamer_core.model.encoder import CLIP_MEAN, CLIP_STD
from animegamer_core.toybox.drawing.draw import draw_frame
from animegamer_core.toybox.scenes import probe_scene

SIZE = 32  # px, of the tiny CLIP


def noise(*shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def unit(rows):
    return torch.allclose(rows.norm(dim=-1), torch.ones(len(rows)), atol=1e-5)


def test_a_picture_is_scaled_cropped_and_normalised():
    """Against the same steps written for one Pillow picture: shorter side, middle square, channels."""
    picture = noise(40, 70, 3)
    scaled = np.asarray(Image.fromarray(picture).resize((56, 32), Image.Resampling.BICUBIC)) / 255
    wanted = (scaled[:, 12:44] - np.array(CLIP_MEAN)) / np.array(CLIP_STD)
    got = Preprocessing(SIZE)(picture[None])[0].permute(1, 2, 0)
    torch.testing.assert_close(got.double(), torch.from_numpy(wanted), atol=1e-6, rtol=0)


def tiny_config(tokens):
    from transformers import CLIPConfig

    shared = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {"bos_token_id": tokens - 2, "eos_token_id": tokens - 1, "pad_token_id": tokens - 1}
    return CLIPConfig(
        text_config={**shared, "vocab_size": tokens, "max_position_embeddings": 24, "hidden_act": "gelu", **ends},
        vision_config={**shared, "image_size": SIZE, "patch_size": 8, "hidden_act": "gelu"},
        projection_dim=16,
    )


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    """A CLIP folder of tiny size with random weights."""
    from transformers import CLIPModel

    folder = tmp_path_factory.mktemp("clip") / "tiny-clip"
    letters = sorted(ByteLevel.alphabet())
    names = [*letters, *(f"{letter}</w>" for letter in letters), "ru", "<|startoftext|>", "<|endoftext|>"]
    vocab = {name: number for number, name in enumerate(names)}
    torch.manual_seed(5)
    model = CLIPModel(tiny_config(len(vocab))).eval()
    for weights in model.parameters():
        torch.nn.init.normal_(weights, std=0.2)
    model.save_pretrained(folder)
    (folder / "vocab.json").write_text(json.dumps(vocab), encoding="utf-8")
    (folder / "merges.txt").write_text("#version: 0.2\nr u\n", encoding="utf-8")
    special = {"bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>"}
    about = {"tokenizer_class": "CLIPTokenizer", "pad_token": "<|endoftext|>", **special}
    (folder / "tokenizer_config.json").write_text(json.dumps(about), encoding="utf-8")
    facts = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.25], "size": {"shortest_edge": SIZE}}
    (folder / "preprocessor_config.json").write_text(json.dumps(facts), encoding="utf-8")
    return folder


def test_a_transformers_folder_scores_as_its_model_does(clip_folder):
    from transformers import AutoTokenizer, CLIPModel

    scorer = open_clip_model(clip_folder)
    frames, texts = noise(3, 40, 60, 3), ["run fast", "a b, day beach"]
    pixels = Preprocessing(SIZE, (0.4, 0.5, 0.6), (0.2, 0.3, 0.25))(frames)
    model = CLIPModel.from_pretrained(clip_folder).eval()
    tokens = AutoTokenizer.from_pretrained(clip_folder)(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = model(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], pixel_values=pixels)
    torch.testing.assert_close(scorer.embed_images(frames), wanted.image_embeds, atol=1e-5, rtol=0)
    torch.testing.assert_close(scorer.embed_texts(texts), wanted.text_embeds, atol=1e-5, rtol=0)
    assert scorer.name == "tiny-clip"
    assert len(scorer.facts["files"]["model.safetensors"]) == 64


def test_a_cut_off_file_is_refused_in_a_sentence(clip_folder, tmp_path):
    folder = shutil.copytree(clip_folder, tmp_path / "cut")
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:999])
    with pytest.raises(ValueError, match="cannot read this CLIP model .*download it again"):
        open_clip_model(folder)


def test_texts_of_any_length_and_kind_are_read(clip_folder):
    model = open_clip_model(clip_folder)
    long, marked = "run " * 60, "run<|endoftext|> and swim"
    seen = model.embed_texts(["run", "", long, marked, "\u98a8\u306e\u8c37"])
    assert seen.isfinite().all() and unit(seen)
    assert float(seen[3] @ model.embed_texts(["run"])[0]) < 0.999  # the mark did not end the text


def test_a_dreamsim_folder_that_lacks_a_file_or_the_package_is_told_and_downloads_nothing(monkeypatch, tmp_path):
    tuned = [f"clip_vitb32_single_lora/{name}" for name in ("adapter_config.json", "adapter_model.safetensors")]
    for name in (*DREAMSIM_FILES["clip_vitb32"], tuned[0]):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(ValueError, match="'clip_vitb32' is missing .*_lora/adapter_model.safetensors. Download it"):
        open_dreamsim(tmp_path)
    (tmp_path / tuned[1]).write_bytes(b"")
    monkeypatch.setitem(sys.modules, "dreamsim", None)
    with pytest.raises(ValueError, match="package dreamsim cannot be imported .*pip install dreamsim"):
        open_dreamsim(tmp_path)


@pytest.fixture(scope="module")
def dreamsim_folder(tmp_path_factory):
    """The package's CLIP ViT-B/32 with random weights and a fine-tuning, under the names that it looks for."""
    package = pytest.importorskip("dreamsim", reason="extra [towers] is not installed", exc_type=ImportError)
    from dreamsim.feature_extraction.vision_transformer import vit_base
    from dreamsim.model import PerceptualModel
    from peft import LoraConfig, get_peft_model

    folder, kind = tmp_path_factory.mktemp("dreamsim"), "clip_vitb32"
    torch.manual_seed(3)
    vit = vit_base(patch_size=32)
    vit.pos_drop = torch.nn.LayerNorm(768)
    weights = {name: weight.half() for name, weight in vit.state_dict().items()}  # half the disk
    weights["proj"] = torch.randn(768, 512) / 28
    torch.save({"state_dict": weights}, folder / f"{kind}_pretrain.pth.tar")
    config = package.model.dreamsim_args["model_config"][kind]
    model = PerceptualModel(**config, device="cpu", load_dir=str(folder))
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.3, bias="none", target_modules=["qkv"], init_lora_weights=False)
    get_peft_model(model, lora).save_pretrained(folder / f"{kind}_single_lora")
    return folder


def test_dreamsim_scores_as_its_package_does(dreamsim_folder):
    import dreamsim

    model, show = dreamsim.dreamsim(device="cpu", cache_dir=str(dreamsim_folder), dreamsim_type="clip_vitb32")
    hub = torch.hub.get_dir()
    scorer = open_dreamsim(dreamsim_folder)
    assert torch.hub.get_dir() == hub and scorer.name == "DreamSim clip_vitb32"
    assert set(scorer.facts["files"]) == {"clip_vitb32_pretrain.pth.tar", "adapter_model.safetensors"}
    frames = np.stack([draw_frame(probe_scene(seed), 0) for seed in range(3)])
    seen = scorer.embed_images(frames)
    assert unit(seen)
    for one, other in ((0, 1), (0, 2), (1, 2)):
        distance = model(*(show(Image.fromarray(frames[index])) for index in (one, other))).item()
        assert 1 - float(seen[one] @ seen[other]) == pytest.approx(distance, abs=1e-5)
    assert float(seen[0] @ scorer.embed_images(frames[:1])[0]) == pytest.approx(1, abs=1e-5)  # alone or among others


def test_scoring_models_say_what_they_are_and_which_rows_are_left_out_without_them(clip_folder):
    none, clip = open_scoring_models(), open_scoring_models(clip=clip_folder)
    assert none.facts == {} and clip.facts["clip"]["name"] == "tiny-clip" and list(clip.by_row) == ["clip_i"]
    json.dumps(clip.facts)
    (remark,) = none.remarks
    assert all(word in remark for word in ("CLIP-I", "CLIP-T", "DreamSim", "--clip FOLDER", "--dreamsim FOLDER"))
    (remark,) = clip.remarks
    assert "CLIP" not in remark and "--dreamsim FOLDER" in remark
    assert replace(clip, dreamsim=clip.clip).remarks == ()
