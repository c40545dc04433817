from dataclasses import replace

import pytest
import torch

from animegamer_core.model.encoder import ShotEncoder, clip_pixels, cropped
from animegamer_core.spec import SPECS

TINY = SPECS["tiny"]


def variant_of(name, tokenizer):
    torch.manual_seed(0)
    return ShotEncoder(replace(TINY, encoder=replace(TINY.encoder, variant=name)), tokenizer.backend).eval()


def alike(left, right):
    """Up to rounding, which differs between the rows of a batch, and with their number, on some processors."""
    return torch.allclose(left, right, rtol=0, atol=1e-4)


@pytest.mark.parametrize("name", ["mlp", "linear", "addition", "cross_attention"])
@torch.inference_mode()
def test_every_variant_reads_text_and_picture(name, tiny_tokenizer):
    encoder = variant_of(name, tiny_tokenizer)
    pictures = torch.rand(2, 3, 32, 48, generator=torch.Generator().manual_seed(0)) * 2 - 1
    same = encoder(["softly run", "softly run"], pictures[:1].repeat(2, 1, 1, 1))
    assert same.shape == (2, TINY.state.tokens, TINY.state.width) and alike(same[0], same[1])
    text = encoder.text_proj(encoder.text_features(encoder.text_ids(["softly run"])))
    image = encoder.image_proj(encoder.image_features(pictures[:1]))
    from_image, from_text = 0, 0
    if name == "addition":
        from_image, from_text = image.mean(1, keepdim=True), text.mean(1, keepdim=True)
    elif name == "cross_attention":
        from_image, from_text = (
            encoder.text_attention(text, image, image)[0],
            encoder.image_attention(image, text, text)[0],
        )
    mixed = encoder.text_norm(text + from_image), encoder.image_norm(image + from_text)
    assert alike(torch.cat(mixed, 1)[0], same[0])
    assert not any(map(alike, encoder(["wildly dance"], pictures[1:])[0], same[0])), "every token is of its own"
    for parameter, value in encoder.image_tower.named_parameters():
        if f".layers.{TINY.encoder.image.layers - 1}." in parameter:
            value.zero_()
    assert alike(encoder(["softly run"], pictures[:1])[0], same[0]), "the last block is not read"


def test_motion_texts_are_cut_and_padded(tiny_encoder, tiny_tokenizer):
    ids = tiny_encoder.text_ids(["run", "", "wildly dance with a red scarf </s>"])
    end = tiny_tokenizer.token("</s>")
    assert ids.shape == (3, TINY.state.text_tokens)
    assert ids[0].tolist() == [*tiny_tokenizer.encode_text("run"), end, 0, 0]
    assert ids[1].tolist() == [end, 0, 0, 0] and ids[2, -1] == end and (ids[2] == end).sum() == 1


@pytest.mark.parametrize("size", [(16, 16), (96, 144), (8, 144)])
def test_pictures_become_normalised_squares(size):
    ramp = clip_pixels(torch.linspace(-1, 1, size[1]).expand(1, 3, *size), 16)
    assert ramp.shape == (1, 3, 16, 16)
    black, white = (
        torch.tensor(values)[:, None, None] for values in ([-1.7923, -1.7521, -1.4802], [1.9303, 2.0749, 2.1459])
    )
    expected = black + (white - black) * torch.linspace(0, 1, 16).expand(3, 16, 16)
    kept = slice(None) if size == (16, 16) else slice(4, 12)  # others are blurred first, which reflects at the borders
    torch.testing.assert_close(ramp[0, ..., kept], expected[..., kept], atol=3e-3, rtol=0)
    if size[1] == 144:  # a step 1.2 standard deviations of the blur away: 4 px for a ninth of the size
        step = clip_pixels((torch.arange(144) > 71).float().expand(1, 3, *size) * 2 - 1, 16)
        assert ((step[0] - black) / (white - black))[..., 7] == pytest.approx(0.100, abs=0.01)


def test_an_opening_picture_is_cropped_to_its_middle(tiny_encoder):
    """In the shot's shape (48 x 32 here), whatever the picture's size; and with the motion part of the words."""
    state = tiny_encoder.spec.state
    for size, kept in (((40, 30), (1, 10, 20)), ((20, 60), (2, 15, 30))):  # quarters at two sides are cut off
        picture = torch.rand(3, *size, generator=torch.Generator().manual_seed(5)) * 2 - 1
        representation = tiny_encoder.represent("Character: Miko; Motion: run; Background: day beach.", picture)
        assert representation.shape == (state.tokens, state.width) and representation.dtype == torch.float32
        other = torch.zeros_like(picture)
        other.narrow(*kept).copy_(picture.narrow(*kept))
        assert torch.equal(tiny_encoder.represent("run", other), representation)
        assert not torch.equal(tiny_encoder.represent("run", picture.flip(-1)), representation)
    assert cropped(torch.zeros(3, 9, 1), 2.4).shape == cropped(torch.zeros(3, 1, 9), 0.4).shape == (3, 1, 1)


@torch.inference_mode()
def test_the_unconditional_representation_has_identical_rows(tiny_encoder):
    nothing = tiny_encoder.unconditional()
    text = TINY.state.text_tokens
    assert torch.equal(nothing[:text], nothing[:1].expand(text, -1))
    assert torch.equal(nothing[text:], nothing[text : text + 1].expand(TINY.state.image_tokens, -1))
