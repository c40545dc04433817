"""Other ways to compute a turn: the same shot, by what they say they do."""

import sys
import types
from dataclasses import replace
from functools import partial

import pytest
import torch

from animegamer_core.checkpoint import open_world
from animegamer_core.decoder import ShotDecoder
from animegamer_core.evaluate.figures import psnr
from animegamer_core.layers import JointAttention, opaque
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.tuning import (
    COMPILED,
    EXCLUSIVE,
    TAYLOR_INTERVAL,
    TUNINGS,
    approximations,
    cache_attention,
    cache_first_block,
    check_names,
    tune,
    usable,
)
from animegamer_core.video import to_uint8


def decoder():
    torch.manual_seed(2)
    return ShotDecoder(SPECS["tiny"], PROFILES["paper"]).eval()


def shot(model):
    state = torch.randn(SPECS["tiny"].state.tokens, 32, generator=torch.Generator().manual_seed(0))
    return model.shoot(state, 2.5, seed=1, steps=4)


@pytest.fixture(scope="module")
def plain():
    return shot(decoder())


@pytest.mark.parametrize("name", ["fused", "layout", "onednn"])
def test_a_tuned_decoder_draws_the_same_shot(name, plain):
    tuned = decoder()
    tune(tuned, [name])
    torch.testing.assert_close(shot(tuned), plain, rtol=0, atol=1e-5)


def test_fused_projections_are_one_product_and_take_the_place_of_three():
    model = decoder()
    before = sum(value.numel() for value in model.transformer.parameters())
    products = []
    tune(model, ["fused"])
    for block in model.transformer.transformer_blocks:
        block.attn1.to_qkv.register_forward_hook(lambda *_: products.append(1))
    shot(model)
    assert products and not hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")
    assert sum(value.numel() for value in model.transformer.parameters()) == before


def test_the_layout_is_the_convolutions_own():
    model = decoder()
    tune(model, ["layout"])
    kernels = [value for value in model.vae.parameters() if value.dim() == 5 and min(value.shape[1:]) > 1]
    assert kernels and all(value.is_contiguous(memory_format=torch.channels_last_3d) for value in kernels)


@pytest.mark.skipif(torch.cuda.is_available(), reason="the sentence is for machines without a GPU")
def test_what_needs_a_gpu_says_so():
    with pytest.raises(ValueError, match="there is no GPU here"):
        tune(decoder(), ["cudnn"])


def test_unknown_names_are_refused_before_anything_is_done():
    model = decoder()
    with pytest.raises(ValueError, match="unknown tuning 'faster'; choose from halves"):
        tune(model, ["fused", "faster"])
    assert hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")


def calls_of(model, part):
    """A list that grows by a batch's rows each time that the last block's part is asked."""
    calls = []
    block = model.transformer.transformer_blocks[-1]
    getattr(block, part).register_forward_hook(lambda module, given, output: calls.append(len(given[0])))
    return calls


CACHED = {
    "first_block": (lambda model: cache_first_block(model, 1e9), "ff"),
    "taylor": (lambda model: cache_attention(model, 2), "attn1"),
}


@pytest.mark.parametrize("name", CACHED)
def test_a_cached_shot_is_the_same_twice_in_a_row(name):
    cached, other = decoder(), torch.zeros(SPECS["tiny"].state.tokens, 32)
    CACHED[name][0](cached)
    first = cached.shoot(other, 2.5, seed=1, steps=9)
    between = shot(cached)  # of another length, so that it ends elsewhere in what is remembered
    assert torch.equal(cached.shoot(other, 2.5, seed=1, steps=9), first)
    assert torch.equal(shot(cached), between)


def test_a_threshold_of_nothing_and_an_interval_of_one_leave_the_shot_as_it_is(plain):
    for cache, value in ((cache_first_block, 0.0), (cache_attention, 1)):
        cached = decoder()
        cache(cached, value)
        assert torch.equal(shot(cached), plain)


@pytest.mark.parametrize(("name", "asked"), [("first_block", [2, 1]), ("taylor", [2, 2, 2, 2, 1, 1, 1, 1])])
def test_what_is_remembered_is_forgotten_where_guidance_ends(name, asked):
    """6 guided steps and 6 more. first_block: only the first of each kind asks; taylor: three, then every other."""
    cached = decoder()
    cached.profile = replace(cached.profile, skip_guidance_below=1.03)
    CACHED[name][0](cached)
    calls = calls_of(cached, "ff") if name == "first_block" else attended(cached)
    state = torch.randn(SPECS["tiny"].state.tokens, 32, generator=torch.Generator().manual_seed(0))
    cached.sample(state[None], torch.tensor([2.5]), [1], steps=12)
    assert calls == asked


def attended(model):
    """As `calls_of`, of the attention itself, which a cache stands before."""
    calls = []
    processor = model.transformer.transformer_blocks[-1].attn1.norm_q
    processor.register_forward_hook(lambda module, given, output: calls.append(len(given[0])))
    return calls


@pytest.fixture(scope="module")
def toybox():
    """The shipped world's decoder, a state that its engine predicts, and the exact shot."""
    world = open_world("toybox")
    state = world.load_engine().predict((), "Character: girl; Motion: quickly run; Background: day forest.")
    model = world.load_decoder()
    return world, state.representation, model.shoot(state.representation, 10.0, seed=3)


@pytest.mark.parametrize(("name", "part", "least", "share"), [("first_block", "ff", 40, 0.9), ("taylor", "q", 30, 0.8)])
def test_caches_ask_less_and_stay_near_the_exact_shot(toybox, name, part, least, share):
    world, state, exact = toybox
    model = world.load_decoder()
    tune(model, [name])
    calls = calls_of(model, "ff") if part == "ff" else attended(model)
    near = psnr(to_uint8(model.shoot(state, 10.0, seed=3)), to_uint8(exact))
    assert near > least and len(calls) < share * world.spec.decoder.steps, (near, len(calls))


def test_ways_that_exclude_one_another_are_refused():
    model = decoder()
    for pair in ({"blocks", "whole"}, {"first_block", "taylor"}, {"first_block", "whole"}, {"halves", "graph"}):
        with pytest.raises(ValueError, match="exclude one another; leave one of them out"):
            tune(model, ["fused", *sorted(pair)])
    assert hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")
    assert set().union(*EXCLUSIVE) <= set(TUNINGS)
    check_names(["fused", "blocks", "first_block", "fp8"])


def test_what_is_for_a_gpu_and_what_approximates_is_told(monkeypatch):
    why = "of no use on cpu"
    assert usable(["blocks", "fused", "fp8"], "cpu") == (("fused",), {"blocks": why, "fp8": why})
    assert usable(["fused", "onednn"], "cuda") == (("fused",), {"onednn": "of no use on cuda"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("CC", "cc")
    assert usable(["blocks", "fused"], "cuda:1") == (("blocks", "fused"), {})
    assert usable(["layout", "vae"], "cuda") == (("layout", "vae"), {})
    assert usable(["layout"], "cuda") == ((), {"layout": "which slows a GPU down unless the VAE is compiled"})
    assert usable(["layout"], "cpu") == (("layout",), {})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert usable(["blocks", "fused"], "cuda:1") == (("fused",), {"blocks": "since triton is not installed"})
    assert approximations(["taylor", "fused", "fp8"]) == ("fp8", "taylor") and TAYLOR_INTERVAL > 1


def test_convolutions_go_through_onednn_and_on_a_cpu_only(monkeypatch):
    model, seen = decoder(), []
    monkeypatch.setattr(
        torch,
        "mkldnn_convolution",
        lambda rows, *how, real=torch.mkldnn_convolution: seen.append(rows.dim()) or real(rows, *how),
    )
    tune(model, ["onednn"])
    shot(model)
    assert len(seen) > 10 and set(seen) == {5}
    with torch.device("meta"):
        elsewhere = ShotDecoder(SPECS["tiny"], PROFILES["paper"])
    with pytest.raises(ValueError, match="is for a CPU, and the decoder is on meta"):
        tune(elsewhere, ["onednn"])


def test_names_are_known_without_torch():
    import subprocess

    code = (
        "import sys, animegamer_core.tuning, animegamer_core.presets; print({'torch', 'diffusers'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="the sentences are for machines without a GPU")
@pytest.mark.parametrize("name", ["cudnn", "graph", "fp8"])
def test_each_way_that_needs_a_gpu_says_so(name):
    with pytest.raises(ValueError, match=f"tuning {name} is .*; there is no GPU here, so leave it out"):
        tune(decoder(), [name])


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="since torchao is not installed .pip install torchao.; leave it out"):
        tune(decoder(), ["int8"])


def test_a_library_without_the_cache_is_named(monkeypatch):
    from diffusers import hooks

    monkeypatch.delattr(hooks, "FirstBlockCacheConfig")
    with pytest.raises(ValueError, match="needs diffusers with FirstBlockCacheConfig"):
        tune(decoder(), ["first_block"])


def test_weights_kept_as_bytes_draw_nearly_the_same_shot(plain):
    pytest.importorskip("torchao")
    small = decoder()
    tune(small, ["int8"])
    assert 0 < float((shot(small) - plain).pow(2).mean().sqrt()) < 0.05


def test_the_vae_alone_computes_in_float16(plain):
    half = decoder().bfloat16()
    before = shot(half)
    tune(half, ["half_vae"])
    assert (half.vae.dtype, half.unconditional_ND.dtype) == (torch.float16, torch.bfloat16)
    latents = torch.randn(1, *SPECS["tiny"].decoder.latent_shape, generator=torch.Generator().manual_seed(4))
    exact = decoder().decode_latents(latents)
    nearer = (half.decode_latents(latents) - exact).abs().mean()
    assert (
        shot(half).shape == before.shape
        and nearer < (decoder().bfloat16().decode_latents(latents) - exact).abs().mean()
    )
    tune(half, ["half_vae"])
    says = "half_vae is for bfloat16, and this decoder computes in float32; leave it out, or add --dtype bfloat16"
    with pytest.raises(ValueError, match=says):
        tune(decoder(), ["half_vae"])


def test_compiled_blocks_are_compiled_once_for_all_and_stand_behind_the_cache(monkeypatch, plain):
    compiled = []
    monkeypatch.setattr(torch, "compile", lambda forward, **how: compiled.append(how) or forward)
    model = decoder()
    tune(model, ["blocks"])
    assert compiled == [{"dynamic": False, "options": COMPILED}] * 2 and torch.equal(shot(model), plain)
    cache_first_block(model, 1e9)
    calls = calls_of(model, "ff")
    shot(model)
    assert len(calls) < 4


def test_every_block_is_given_rows_of_one_kind(monkeypatch):
    """Strides are part of what a compiled block is compiled for; slices of longer rows would be another kind."""
    strides = set()

    def watched(forward, **how):
        def compiled(first, second, **others):
            strides.add((first.shape, first.stride(), second.stride()))
            return forward(first, second, **others)

        return compiled

    monkeypatch.setattr(torch, "compile", watched)
    model = decoder()
    tune(model, ["blocks"])
    shot(model)
    assert len(strides) == 2  # guided steps, and steps with one half


def tune_as_on_a_gpu(monkeypatch, model, names):
    with monkeypatch.context() as there:
        there.setattr(torch.cuda, "is_available", lambda: True)
        tune(model, names)


def test_the_widest_product_ends_with_its_gelu(monkeypatch, plain):
    model = decoder()
    names = set(model.state_dict())
    tune_as_on_a_gpu(monkeypatch, model, ["gelu"])
    tune_as_on_a_gpu(monkeypatch, model, ["gelu"])
    assert set(model.state_dict()) == names
    products = []
    for block in model.transformer.transformer_blocks:
        block.ff.net[0].proj.register_forward_hook(lambda *_: products.append(1))
    # a CPU ends it with the exact GELU, a GPU with the one that the model was trained with
    torch.testing.assert_close(shot(model), plain, rtol=0, atol=2e-3)
    assert not torch.equal(shot(model), plain) and not products, "the product is asked for as one with its GELU"


def by_rows(query, key, value):
    """Attention whose rows come before its heads, as FlashAttention-3 takes them; it also returns something else."""
    turned = (rows.transpose(1, 2) for rows in (query, key, value))
    return torch.nn.functional.scaled_dot_product_attention(*turned).transpose(1, 2).contiguous(), "sums"


@pytest.mark.parametrize("names", [[], ["fused"]])
def test_attention_that_takes_rows_as_they_lie_draws_the_same_shot(names, plain):
    model = decoder()
    tune(model, names)
    model.transformer.set_attn_processor(JointAttention(opaque("by_rows", by_rows)))
    torch.testing.assert_close(shot(model), plain, rtol=0, atol=1e-5)


def test_a_compiler_takes_such_an_attention_for_one_operation():
    attend, rows = opaque("by_rows", by_rows), torch.randn(3, 1, 5, 2, 4).unbind()
    torch.library.opcheck(attend, rows, test_utils=("test_schema", "test_faketensor"))
    assert torch.equal(torch.compile(attend, backend="eager", fullgraph=True)(*rows), by_rows(*rows)[0])
    torch._dynamo.reset()


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
        assert usable(["flash3"], "cuda:0", "bfloat16") == (("flash3",), {})
        assert usable(["flash3"], "cuda:0", "float16")[1] == {"flash3": "of no use with float16"}
        with pytest.raises(ValueError, match="flash3 is for bfloat16, and this decoder computes in float32; leave it"):
            tune(decoder(), ["flash3"])
    for kind in ({"capability": (8, 0)}, {"hip": "6.4"}):
        with monkeypatch.context() as there:
            Packages(there, "fa3_fwd_interface", **kind)
            assert usable(["flash3"], "cuda:0")[1] == {"flash3": "since cuda:0 is no Hopper GPU"}
    with monkeypatch.context() as there:
        Packages(there)
        why = usable(["flash3"], "cuda:0")[1]["flash3"]
        assert why.startswith("since neither flash_attn_interface nor fa3_fwd_interface is installed (torch 2.10")
        with pytest.raises(ValueError, match="flash3 cannot be had, since neither .* leave it out"):
            tune(decoder().bfloat16(), ["flash3"])


def test_a_build_for_another_torch_is_left_out_and_told(monkeypatch, tmp_path):
    (tmp_path / "fa3_fwd_interface.py").write_text("raise ImportError('undefined symbol: aoti\\nand more')")
    Packages(monkeypatch)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object() if name == "fa3_fwd_interface" else None)
    why = usable(["flash3"], "cuda:0")[1]["flash3"]
    assert why == "since fa3_fwd_interface does not fit this torch (undefined symbol: aoti)"


def test_flash3_asks_the_package_that_is_installed_also_where_weights_wait_on_the_cpu(monkeypatch):
    with monkeypatch.context() as there:
        Packages(there, "fa3_fwd_interface")
        model = decoder().bfloat16()
        before = shot(model)
        tune(model, ["fused", "flash3"])
    for block in model.transformer.transformer_blocks:
        assert isinstance(block.attn1.processor, JointAttention)
    torch.testing.assert_close(shot(model), before, rtol=0, atol=2e-2)


def test_compiling_wants_a_gpu_that_triton_knows_and_a_c_compiler(monkeypatch):
    monkeypatch.setenv("CC", "cc")
    for capability, left in (((7, 5), {}), ((6, 1), {"blocks": "since cuda:0 is too old for triton"})):
        with monkeypatch.context() as there:
            Packages(there, "triton", capability=capability)
            assert usable(["blocks"], "cuda:0")[1] == left
    monkeypatch.delenv("CC")
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(sys, "platform", "linux")
    Packages(monkeypatch, "triton")
    assert usable(["blocks"], "cuda:0")[1] == {"blocks": "since triton finds no C compiler (gcc, clang, or CC)"}


def test_one_compiled_block_serves_for_all(monkeypatch):
    """A compiler that told the blocks apart would give up after a few, and leave the rest as slow as before."""
    graphs, compiled = [], torch.compile

    def seen(graph, inputs):
        graphs.append(graph)
        return graph

    monkeypatch.setattr(torch, "compile", lambda block, **how: compiled(block, backend=seen, dynamic=False))
    spec = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, layers=12))
    model = ShotDecoder(spec, PROFILES["paper"]).eval()
    tune_as_on_a_gpu(monkeypatch, model, ["fused", "gelu", "blocks"])
    shot(model)
    torch._dynamo.reset()  # what it keeps would lie in other tests' memory
    assert len(graphs) == 2, "one for guided steps, one for steps with one half"


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["cudnn", "gelu", "blocks", "graph", "whole", "vae"])
def test_compiled_and_gpu_ways_draw_the_same_shot(name):
    model = decoder().cuda()
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # which rounds to 10 bits, each kernel its way
        before = shot(model)
        tune(model, [name])
        torch.testing.assert_close(shot(model), before, rtol=0, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("names", [["flash3"], ["fused", "flash3", "gelu", "blocks"]])
def test_flash3_draws_the_same_shot(names):
    """In bfloat16, at the released width of a head."""
    able, why = usable(names, "cuda", "bfloat16")
    if able != tuple(names):
        pytest.skip(f"{why}")
    model, state = wide_heads()
    model = model.cuda()
    before = model.shoot(state, 2.5, seed=1, steps=4)
    tune(model, names)
    assert psnr(to_uint8(model.shoot(state, 2.5, seed=1, steps=4)), to_uint8(before)) > 40


@pytest.mark.gpu
def test_what_is_tuned_on_the_cpu_draws_the_same_shot_on_the_gpu_afterwards():
    """As in ComfyUI, which moves a decoder to the card for each use, and away for other models."""
    names, _ = usable(("fused", "layout", "flash3", "gelu", "blocks", "vae"), "cuda", "bfloat16")
    model, state = wide_heads()
    before = model.cuda().shoot(state, 2.5, seed=1, steps=4)
    tune(model.cpu(), names)
    for _ in range(2):
        after = model.cuda().shoot(state, 2.5, seed=1, steps=4)
        assert psnr(to_uint8(after), to_uint8(before)) > 40
        model.cpu()


def wide_heads():
    """(decoder in bfloat16 with the released width of a head, a state for it)."""
    tiny = SPECS["tiny"]
    wide = replace(tiny.decoder, heads=2, head_width=64)
    torch.manual_seed(2)
    model = ShotDecoder(replace(tiny, state=replace(tiny.state, width=128), decoder=wide), PROFILES["paper"])
    return model.eval().bfloat16(), torch.randn(tiny.state.tokens, 128)
