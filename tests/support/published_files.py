"""Tiny published files: our own models of random weights, renamed, cut and split as the published ones are.

Written against docs/reference.md, not against the key tables, so that a wrong table cannot agree with itself.
"""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy
import torch
from tokenizers import Tokenizer, models, normalizers

from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS, StateSpec, VaeSpec

TINY = SPECS["tiny"]
VAE = VaeSpec(channels=(32, 64), layers_per_block=1, latent_channels=4)
SPEC = replace(
    TINY,
    name="tiny",
    state=StateSpec(width=32),  # the vocabulary of published files has 226 slots, at any width
    engine=replace(TINY.engine, vocab_size=32284, hidden=16, intermediate=24, heads=4, kv_heads=2),
    decoder=replace(TINY.decoder, height=8, width=12, spatial_scale=1.875, steps=50, guidance_scale=6.0, vae=VAE),
)
RANK = 3


def write_mistral(folder):
    """Config and a tokenizer of 32000 entries."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")  # as transformers reads it, its rope_theta is 10000
    words = ["<unk>", "<s>", "</s>", *(f"piece-{index}" for index in range(3, 32000))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Prepend("\u2581")  # a part of the published one's
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def make_originals(mistral):
    """The models that the files are made of (engine, decoder, encoder): what a conversion has to give back."""
    torch.manual_seed(7)
    engine = GameEngine(SPEC, GameTokenizer.from_mistral(mistral), PROFILES["reference"])
    decoder, encoder = ShotDecoder(SPEC, PROFILES["reference"]), ShotEncoder(SPEC)
    for model in (engine, decoder, encoder):  # norms start as ones and biases as zeros: make every tensor tell
        for parameter in model.parameters():
            parameter.data += 0.02 * torch.randn_like(parameter)
    decoder.unconditional_ND.copy_(encoder.unconditional().detach())
    return SimpleNamespace(engine=engine.eval(), decoder=decoder.eval(), encoder=encoder.eval())


def split_lora(weight, alpha):
    """(base, A, B) with base + alpha / RANK * B A == weight."""
    matrix_a, matrix_b = 0.2 * torch.randn(RANK, weight.shape[1]), 0.2 * torch.randn(len(weight), RANK)
    return weight - alpha / RANK * matrix_b @ matrix_a, matrix_a, matrix_b


def engine_tensors(engine, *, lora=True, base_layer=".base_layer", trainable_only=False, alpha=float(RANK)):
    """pytorch_model.bin: peft names around Mistral's."""
    out, base = {}, {}
    for name, value in engine.state_dict().items():
        value = value.detach().clone()
        if name.startswith("project_"):
            out[re.sub("^project_(in|out)", r"\1put_resampler.proj", name)] = value
            continue
        bare = name.removeprefix("llm.")
        stem = "llm.base_model.model." + bare.removesuffix(".weight")
        if "_proj" in bare and lora:
            weight, out[f"{stem}.lora_A.default.weight"], out[f"{stem}.lora_B.default.weight"] = split_lora(
                value, alpha
            )
            base[bare] = weight
            if not trainable_only:
                out[f"{stem}{base_layer}.weight"] = weight
        elif "norm" in bare and lora:
            out[f"{stem}.modules_to_save.default.weight"] = value
            if not trainable_only:
                out[f"{stem}.original_module.weight"] = torch.zeros_like(value)
        else:
            out[f"{stem}.weight"] = value
    return out, base


def decoder_tensors(decoder, encoder, *, lora=True):
    """`module`: SAT names."""
    dit, out = "model.diffusion_model.", {}
    state = {name: value.detach().clone() for name, value in decoder.transformer.state_dict().items()}

    def put(published, ours):
        for end in ("weight", "bias"):
            out[f"{dit}{published}.{end}"] = state.pop(f"{ours}.{end}")

    put("time_embed.0", "time_embedding.linear_1")
    put("time_embed.2", "time_embedding.linear_2")
    put("flow_embed.0", "ofs_embedding.linear_1")
    put("flow_embed.2", "ofs_embedding.linear_2")
    put("mixins.patch_embed.proj", "patch_embed.proj")
    put("transformer.final_layernorm", "norm_final")
    put("mixins.final_layer.norm_final", "norm_out.norm")
    put("mixins.final_layer.adaLN_modulation.1", "norm_out.linear")
    put("mixins.final_layer.linear", "proj_out")
    for i in range(SPEC.decoder.layers):
        block, layer = f"transformer_blocks.{i}.", f"transformer.layers.{i}."
        put(f"mixins.adaln_layer.query_layernorm_list.{i}", block + "attn1.norm_q")
        put(f"mixins.adaln_layer.key_layernorm_list.{i}", block + "attn1.norm_k")
        put(layer + "input_layernorm", block + "norm1.norm")
        put(layer + "post_attention_layernorm", block + "norm2.norm")
        put(layer + "mlp.dense_h_to_4h", block + "ff.net.0.proj")
        put(layer + "mlp.dense_4h_to_h", block + "ff.net.2")
        for end in ("weight", "bias"):
            attention = state.pop(f"{block}norm1.linear.{end}").chunk(6)
            feed = state.pop(f"{block}norm2.linear.{end}").chunk(6)
            chunks = [*attention[:3], *feed[:3], *attention[3:], *feed[3:]]
            out[f"{dit}mixins.adaln_layer.adaLN_modulations.{i}.1.{end}"] = torch.cat(chunks)
        original = "original." if lora else ""
        qkv, dense = f"{dit}{layer}attention.query_key_value.", f"{dit}{layer}attention.dense."
        thirds = [state.pop(f"{block}attn1.to_{name}.weight") for name in "qkv"]
        last = state.pop(f"{block}attn1.to_out.0.weight")
        if lora:
            for k in range(3):
                thirds[k], out[f"{qkv}matrix_A.{k}"], out[f"{qkv}matrix_B.{k}"] = split_lora(thirds[k], 1.0)
            last, out[f"{dense}matrix_A.0"], out[f"{dense}matrix_B.0"] = split_lora(last, 1.0)
        out[f"{qkv}{original}weight"] = torch.cat(thirds)
        out[f"{qkv}{original}bias"] = torch.cat([state.pop(f"{block}attn1.to_{name}.bias") for name in "qkv"])
        out[f"{dense}{original}weight"] = last
        out[f"{dense}{original}bias"] = state.pop(f"{block}attn1.to_out.0.bias")
    assert not state, f"the transformer has tensors that no published name stands for: {list(state)}"
    patch = dit + "mixins.patch_embed."
    names = {"text_proj": "text_proj", "image_proj": "ip_proj"}
    names |= {"text_norm": "txt_mix_layer_norm", "image_norm": "ip_mix_layer_norm"}
    for name, value in encoder.state_dict().items():
        if (ours := name.partition(".")[0]) in names:
            out[patch + name.replace(ours, names[ours])] = value.clone()
    out[patch + "output_mix_layer_norm.weight"] = torch.ones(SPEC.state.width)
    out[patch + "output_mix_layer_norm.bias"] = torch.zeros(SPEC.state.width)
    out[dit + "mixins.pos_embed.pos_embedding"] = decoder.transformer.patch_embed.pos_embedding.clone()
    return out


def vae_tensors(vae, prefix="", levels=2):
    """`state_dict`: the names of the published VAE."""
    out = {} if prefix else {"loss.logvar": torch.zeros(1)}
    for name, value in vae.state_dict().items():
        side, *rest = name.split(".")
        joined = ".".join(rest).replace("conv_shortcut", "nin_shortcut")
        for block in (0, 1):
            joined = joined.replace(f"mid_block.resnets.{block}.", f"mid.block_{block + 1}.")
        if rest[0] == "down_blocks":
            joined = joined.replace("down_blocks", "down").replace("resnets", "block")
            joined = joined.replace("downsamplers.0", "downsample")
        if rest[0] == "up_blocks":
            joined = joined.replace(f"up_blocks.{rest[1]}.", f"up.{levels - 1 - int(rest[1])}.", 1)
            joined = joined.replace("resnets", "block").replace("upsamplers.0", "upsample")
        out[f"{prefix}{side}.{joined}"] = value.detach().clone()
    return out


def image_tower_tensors(tower, prefix="visual."):
    """open_clip's names of a vision tower."""
    out = {}
    state = {name.removeprefix("vision_model."): value for name, value in tower.state_dict().items()}
    out[prefix + "class_embedding"] = state["embeddings.class_embedding"]
    out[prefix + "conv1.weight"] = state["embeddings.patch_embedding.weight"]
    out[prefix + "positional_embedding"] = state["embeddings.position_embedding.weight"]
    out[prefix + "proj"] = torch.zeros(4, 4)
    for end in ("weight", "bias"):
        out[f"{prefix}ln_pre.{end}"] = state[f"pre_layrnorm.{end}"]
        out[f"{prefix}ln_post.{end}"] = state[f"post_layernorm.{end}"]
        for i in range(tower.config.num_hidden_layers):
            ours, theirs = f"encoder.layers.{i}.", f"{prefix}transformer.resblocks.{i}."
            thirds = [state[f"{ours}self_attn.{name}_proj.{end}"] for name in "qkv"]
            out[f"{theirs}attn.in_proj_{end}"] = torch.cat(thirds)
            out[f"{theirs}attn.out_proj.{end}"] = state[f"{ours}self_attn.out_proj.{end}"]
            out[f"{theirs}ln_1.{end}"] = state[f"{ours}layer_norm1.{end}"]
            out[f"{theirs}ln_2.{end}"] = state[f"{ours}layer_norm2.{end}"]
            out[f"{theirs}mlp.c_fc.{end}"] = state[f"{ours}mlp.fc1.{end}"]
            out[f"{theirs}mlp.c_proj.{end}"] = state[f"{ours}mlp.fc2.{end}"]
    return out


def save(path, content, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path, **options)
    return path


def state_sizes(folder):
    """Note in a folder of a pair, or in the one above, that this world's sizes are not the released ones."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "spec.json").write_text(json.dumps(SPEC.to_dict()))


def write_decoder(src, tensors, latest="1", beside=True):
    extras = {
        "optimizer": None,
        "ds_config": {"train_batch_size": 1},
        "param_shapes": [{"weight": torch.Size([2])}],
        "np_rng_state": numpy.random.RandomState(0).get_state(),
        "torch_rng_state": torch.get_rng_state(),
        "random_rng_state": (3, (1, 2), None),
    }
    path = src / "VDM_Decoder-Qiqi" / latest / "mp_rank_00_model_states.pt"
    save(path, {"module": tensors, **(extras if beside else {})})
    (src / "VDM_Decoder-Qiqi" / "latest").write_text(latest)
    return path


def write_all(src, originals):
    """A whole download below `src`, next to its Mistral folder, which must be there."""
    save(src / "MLLM-Qiqi" / "pytorch_model.bin", engine_tensors(originals.engine)[0])
    for kind in ("MLLM", "VDM_Decoder"):
        state_sizes(src / f"{kind}-Qiqi")
    write_decoder(src, decoder_tensors(originals.decoder, originals.encoder))
    save(src / "3d-vae.pt", {"state_dict": vae_tensors(originals.decoder.vae)})
