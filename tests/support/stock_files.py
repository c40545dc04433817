"""Tiny base models as diffusers and transformers themselves save them: what `new` makes a world of.

The folders are written by the libraries' own `save_pretrained`, so that their layout is that of real downloads.
"""

import json
import string

import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
from published_files import image_tower_tensors, save
from tokenizers import Tokenizer, models
from transformers import MistralConfig, MistralForCausalLM

from animegamer_core import spec
from animegamer_core.model.encoder import image_encoder, text_encoder
from animegamer_core.model.sampler import STOCK_SCHEDULER

WIDTH, TEXT = 32, 16  # of the transformer and of its text encoder
SPEC = spec.ModelSpec(
    "stock",
    spec.StateSpec(width=WIDTH),
    spec.EncoderSpec(
        spec.TextEncoderSpec(vocab_size=128, width=TEXT, head_width=8, heads=2, intermediate=32, layers=2),
        spec.ImageEncoderSpec(image_size=28, patch=2, width=16, layers=2, heads=2, intermediate=32),
    ),
    spec.EngineSpec(hidden=16, intermediate=24, layers=2, heads=4, kv_heads=2, max_positions=4096),
    spec.DecoderSpec(
        layers=2, heads=2, head_width=16, time_width=24, height=8, width=12, vae=spec.VaeSpec((32, 64), 1, 4)
    ),
)  # fmt: skip
CLIP = "CLIP-ViT-B-16-laion2B-s34B-b88K"
LETTERS = string.ascii_letters + string.digits + string.punctuation


def rough(model, seed):
    """The model with every value moved, since norms begin as ones and biases as zeros."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn(parameter.shape, generator=generator)
    return model.eval()


def write_letters(path, entries, space=" "):
    """A tokenizer that spells texts letter by letter, with so many entries."""
    words = ["<unk>", "<s>", "</s>", space, *LETTERS]
    words += [f"piece-{index}" for index in range(len(words), entries)]
    path.parent.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: index for index, word in enumerate(words)}
    Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>")).save(str(path))


def write_cogvideox(folder):
    """CogVideoX-2b with 2 layers, 32 wide, for shots of 8 x 12."""
    torch.manual_seed(3)
    settings = dict(
        num_attention_heads=2, attention_head_dim=16, in_channels=4, out_channels=4, time_embed_dim=24,
        text_embed_dim=TEXT, num_layers=2, sample_width=6, sample_height=4, sample_frames=49, patch_size=2,
    )  # fmt: skip
    transformer = rough(CogVideoXTransformer3DModel(**settings), 1)
    transformer.save_pretrained(folder / "transformer")
    vae = AutoencoderKLCogVideoX(
        block_out_channels=(32, 64), layers_per_block=1, latent_channels=4, sample_height=8, sample_width=12,
        down_block_types=("CogVideoXDownBlock3D",) * 2, up_block_types=("CogVideoXUpBlock3D",) * 2,
    )  # fmt: skip
    rough(vae, 2).save_pretrained(folder / "vae")
    schedule = dict(STOCK_SCHEDULER, timestep_spacing="linspace")  # as CogVideoX-2b's own file has it
    CogVideoXDDIMScheduler(**schedule).save_pretrained(folder / "scheduler")
    (folder / "model_index.json").write_text('{"_class_name": "CogVideoXPipeline"}')
    write_t5(folder / "text_encoder", folder / "tokenizer")
    (folder / "spec.json").write_text(json.dumps(SPEC.to_dict()))


def write_t5(folder, tokenizer):
    """T5 of version 1.1, 16 wide; its tokenizer in a folder of its own."""
    torch.manual_seed(4)
    rough(text_encoder(SPEC.encoder.text), 3).save_pretrained(folder)
    write_letters(tokenizer / "tokenizer.json", 128)
    return folder


def write_mistral(folder, rows=32000, **changes):
    """Mistral-7B-Instruct-v0.1 with 2 layers, 16 wide; returns the folder."""
    torch.manual_seed(5)
    settings = dict(
        vocab_size=rows, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, rms_norm_eps=1e-5, sliding_window=4096,
        tie_word_embeddings=False,
    )  # fmt: skip
    rough(MistralForCausalLM(MistralConfig(**settings)), 4).bfloat16().save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config.pop("rope_parameters", None)  # of transformers 5; published ones have the field below
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 10000.0, **changes}))
    write_letters(folder / "tokenizer.json", rows, "\u2581")
    return folder


def write_clip(folder):
    """open_clip's ViT-B-16, 16 wide, which sees a picture as 196 patches."""
    torch.manual_seed(6)
    tower = rough(image_encoder(SPEC.encoder.image), 5)
    save(folder / "open_clip_pytorch_model.bin", image_tower_tensors(tower))
    return folder


def write_base(folder):
    """All of them side by side, as `fetch --base` leaves them; returns the folder."""
    write_cogvideox(folder / "CogVideoX-2b")
    write_mistral(folder / "Mistral-7B-Instruct-v0.1")
    write_clip(folder / CLIP)
    return folder
