"""Other ways to compute a turn: the same shot, by what they say they do."""

import pytest
import torch

from animegamer_core.decoder import ShotDecoder
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.tuning import TUNINGS, tune


def decoder():
    torch.manual_seed(2)
    return ShotDecoder(SPECS["tiny"], PROFILES["paper"]).eval()


def shot(model):
    state = torch.randn(SPECS["tiny"].state.tokens, 32, generator=torch.Generator().manual_seed(0))
    return model.shoot(state, 2.5, seed=1, steps=4)


@pytest.fixture(scope="module")
def plain():
    return shot(decoder())


@pytest.mark.parametrize("name", ["fused", "layout"])
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
    with pytest.raises(ValueError, match="unknown tuning 'faster'; choose from fused"):
        tune(model, ["fused", "faster"])
    assert hasattr(model.transformer.transformer_blocks[0].attn1, "to_q")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [name for name in TUNINGS if name not in ("fused", "layout")])
def test_compiled_and_gpu_ways_draw_the_same_shot(name):
    model = decoder().cuda()
    before = shot(model)
    tune(model, [name])
    torch.testing.assert_close(shot(model), before, rtol=0, atol=2e-3)
