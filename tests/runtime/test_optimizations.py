"""Optimizations: each draws the same shot, or as near as it says."""

import sys
import types
from dataclasses import replace
from functools import partial

import pytest
import torch

from animegamer_core.evaluate.estimates import psnr
from animegamer_core.media.video import to_uint8
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.runtime.optimizations import optimize, supported
from animegamer_core.runtime.optimizations.layers import JointAttention
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.weights.lora import attach
from animegamer_core.weights.parts import LoraUpdate


def by_rows(query, key, value):
    """Attention whose rows come before its heads, as FlashAttention-3 takes them; it also returns something else."""
    turned = (rows.transpose(1, 2) for rows in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*turned).transpose(1, 2).contiguous(), "sums"


def decoder():
    torch.manual_seed(2)
    return ShotDecoder(SPECS["tiny"], PROFILES["paper"]).eval()


def shot(model):
    state = torch.randn(SPECS["tiny"].state.tokens, 32, generator=torch.Generator().manual_seed(0))
    return model.shoot(state, 2.5, seed=1, steps=4)


@pytest.fixture(scope="module")
def plain():
    return shot(decoder())


def test_convolutions_with_channels_last_draw_the_same_shot(plain):
    model = decoder()
    optimize(model, ["layout"])
    torch.testing.assert_close(shot(model), plain, rtol=0, atol=1e-5)
    kernels = [value for value in model.vae.parameters() if value.dim() == 5 and min(value.shape[1:]) > 1]
    assert kernels and all(value.is_contiguous(memory_format=torch.channels_last_3d) for value in kernels)


def test_fused_projections_are_one_product_and_take_the_place_of_three():
    model = decoder().bfloat16()  # only 16-bit weights keep LoRA beside them
    before = sum(value.numel() for value in model.transformer.parameters())
    layer = model.transformer.transformer_blocks[0].attn1.to_k
    update = LoraUpdate(torch.randn(2, layer.in_features), torch.randn(layer.out_features, 2), 3.0)
    attach(model, {"transformer.transformer_blocks.0.attn1.to_k": update}, "own")
    plain = shot(model.float())
    products = []
    optimize(model, ["fused"])
    for block in model.transformer.transformer_blocks:
        block.attn1.to_qkv.register_forward_hook(lambda *_: products.append(1))
    torch.testing.assert_close(shot(model), plain, rtol=0, atol=1e-5)
    assert products and not hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")
    assert sum(value.numel() for name, value in model.transformer.named_parameters() if "lora" not in name) == before


def test_wrong_names_are_refused_before_any_change():
    model = decoder()
    with pytest.raises(ValueError, match="unknown optimization 'faster'; choose from fused"):
        optimize(model, ["fused", "faster"])
    assert hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")


def optimize_as_on_a_gpu(monkeypatch, model, names):
    with monkeypatch.context() as there:
        there.setattr(torch.cuda, "is_available", lambda: True)
        there.setattr("animegamer_core.runtime.optimizations.missing_requirement", lambda *_: "")
        optimize(model, names)


def test_gelu_is_in_the_same_kernel_as_its_product(monkeypatch, plain):
    model = decoder()
    names = set(model.state_dict())
    optimize_as_on_a_gpu(monkeypatch, model, ["gelu"])
    optimize_as_on_a_gpu(monkeypatch, model, ["gelu"])
    assert set(model.state_dict()) == names
    products = []
    for block in model.transformer.transformer_blocks:
        block.ff.net[0].proj.register_forward_hook(lambda *_: products.append(1))
    # a CPU ends it with the exact GELU, a GPU with the one that the model was trained with
    torch.testing.assert_close(shot(model), plain, rtol=0, atol=2e-3)
    assert not torch.equal(shot(model), plain) and not products, "the product has no call of its own"


class Packages:
    """Stands for what is installed, and for a GPU of some kind."""

    def __init__(self, monkeypatch, *installed, capability=(9, 0), hip=None):
        monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name in installed else None)
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "get_device_capability", partial(self._told, capability))
        monkeypatch.setattr(torch.version, "hip", hip)
        for name in installed:
            monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
            sys.modules[name].flash_attn_func = by_rows

    @staticmethod
    def _told(capability, device):
        assert str(device).startswith("cuda"), "torch knows no other device's"
        return capability


def test_flash3_is_for_hopper_gpus_and_its_own_number_format(monkeypatch):
    with monkeypatch.context() as there:
        Packages(there, "fa3_fwd_interface")
        assert supported(["flash3"], "cuda:0", "bfloat16") == (("flash3",), {})
        assert supported(["flash3"], "cuda:0", "float16")[1] == {"flash3": "no benefit with float16"}
        with pytest.raises(ValueError, match="flash3 is not available: no benefit with float32; drop it"):
            optimize(decoder(), ["flash3"])
    for kind in ({"capability": (8, 0)}, {"hip": "6.4"}):
        with monkeypatch.context() as there:
            Packages(there, "fa3_fwd_interface", **kind)
            assert supported(["flash3"], "cuda:0")[1] == {"flash3": "cuda:0 is not a Hopper GPU"}
    with monkeypatch.context() as there:
        Packages(there)
        assert "fa3-fwd" in supported(["flash3"], "cuda:0")[1]["flash3"]
        with pytest.raises(ValueError, match="flash3 is not available: .*not installed.* drop it"):
            optimize(decoder().bfloat16(), ["flash3"])


def test_flash3_uses_the_installed_package_also_for_weights_on_the_cpu(monkeypatch):
    with monkeypatch.context() as there:
        Packages(there, "fa3_fwd_interface")
        model = decoder().bfloat16()
        before = shot(model)
        optimize(model, ["fused", "flash3"])
    for block in model.transformer.transformer_blocks:
        assert isinstance(block.attn1.processor, JointAttention)
    torch.testing.assert_close(shot(model), before, rtol=0, atol=2e-2)


def test_compiling_needs_a_recent_gpu_and_a_c_compiler(monkeypatch):
    monkeypatch.setattr("shutil.which", lambda name: name)
    for capability, left in (((7, 5), {}), ((6, 1), {"blocks": "cuda:0 is too old for triton"})):
        with monkeypatch.context() as there:
            Packages(there, "triton", capability=capability)
            assert supported(["blocks"], "cuda:0")[1] == left
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "platform", "linux")
    Packages(monkeypatch, "triton")
    assert supported(["blocks"], "cuda:0")[1] == {"blocks": "triton cannot find a C compiler (gcc or clang)"}


def test_all_blocks_share_one_compilation(monkeypatch):
    """After a few recompilations torch's compiler gives up and leaves the rest uncompiled."""
    graphs, compiled = [], torch.compile

    def seen(graph, inputs):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda block, **how: compiled(block, backend=seen, dynamic=False))
    spec = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, layers=10))
    model = ShotDecoder(spec, PROFILES["paper"]).eval()
    optimize_as_on_a_gpu(monkeypatch, model, ["fused", "gelu", "blocks"])
    shot(model)
    torch._dynamo.reset()  # free its memory for other tests
    assert len(graphs) == 2, "one for guided steps, one for steps with one half"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["gelu", "blocks", "vae"])
def test_optimizations_of_a_gpu_draw_the_same_shot(name):
    model = decoder().cuda()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # which rounds to 10 bits, each kernel its way
        before = shot(model)
        optimize(model, [name])
        torch.testing.assert_close(shot(model), before, rtol=0, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("names", [["flash3"], ["fused", "flash3", "gelu", "blocks"]])
def test_flash3_draws_the_same_shot(names):
    """In bfloat16, at the released width of a head."""
    able, why = supported(names, "cuda", "bfloat16")
    if able != tuple(names):
        pytest.skip(f"{why}")
    model, state = wide_heads()
    model = model.cuda()
    before = model.shoot(state, 2.5, seed=1, steps=4)
    optimize(model, names)
    assert psnr(to_uint8(model.shoot(state, 2.5, seed=1, steps=4)), to_uint8(before)) > 40


@pytest.mark.gpu
def test_a_decoder_optimized_on_the_cpu_draws_the_same_shot_on_the_gpu_afterwards():
    """As in ComfyUI, which moves a decoder to the GPU for each use, and away for other models."""
    names, _ = supported(("fused", "layout", "flash3", "gelu", "blocks", "vae"), "cuda", "bfloat16")
    model, state = wide_heads()
    before = model.cuda().shoot(state, 2.5, seed=1, steps=4)
    optimize(model.cpu(), names)
    for _ in range(2):
        assert psnr(to_uint8(model.cuda().shoot(state, 2.5, seed=1, steps=4)), to_uint8(before)) > 40
        model.cpu()


def wide_heads():
    """(decoder in bfloat16 with the released width of a head, a state for it)."""
    tiny = SPECS["tiny"]
    wide = replace(tiny.decoder, heads=2, head_width=64)
    torch.manual_seed(2)
    model = ShotDecoder(replace(tiny, state=replace(tiny.state, width=128), decoder=wide), PROFILES["paper"])
    return model.eval().bfloat16(), torch.randn(tiny.state.tokens, 128)
