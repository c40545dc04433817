"""The shot encoder E_a: motion text + reference frame -> action-aware multimodal representation.

B batch, L text tokens, P image tokens (patches), N = L + P state tokens, D state width, C channels, H height, W width.
Training and opening pictures need it; playing does not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from einops import rearrange
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import CLIPVisionConfig, CLIPVisionModel, T5Config, T5EncoderModel

from ..game.state import motion_text
from ..spec import ImageEncoderSpec, ModelSpec, TextEncoderSpec

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)


class ShotEncoder(nn.Module):
    """A text and an image encoder, each with a projection and a norm, mixed as `spec.encoder.variant` says.

    mlp: concat(LN(MLP(text)), LN(MLP(image))), the paper's E_a. linear: a Linear instead of each MLP. addition: adds
    the mean of the other side to every token. cross_attention: each side attends to the other.
    """

    def __init__(self, spec: ModelSpec, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.tokenizer = tokenizer
        width, variant = spec.state.width, spec.encoder.variant
        self.text_tower = text_encoder(spec.encoder.text)
        self.image_tower = image_encoder(spec.encoder.image)
        self.text_proj = _projection(spec.encoder.text.width, width, variant)
        self.image_proj = _projection(spec.encoder.image.width, width, variant)
        self.text_norm = nn.LayerNorm(width, eps=1e-5)
        self.image_norm = nn.LayerNorm(width, eps=1e-5)
        if variant == "cross_attention":
            self.text_attention = nn.MultiheadAttention(width, spec.decoder.heads, batch_first=True)
            self.image_attention = nn.MultiheadAttention(width, spec.decoder.heads, batch_first=True)

    def text_ids(self, texts: Sequence[str]) -> Tensor:
        """(B, L) int64 ids of (cleaned) motion texts, truncated or zero-padded to the state's number of text tokens."""
        length = self.spec.state.text_tokens
        end = self.tokenizer.token_to_id("</s>")
        rows = []
        for text in texts:
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids[: length - 1] + [end]
            rows.append(ids + [0] * (length - len(ids)))
        return torch.tensor(rows)

    def text_features(self, ids_BL: Tensor) -> Tensor:
        """(B, L, text width) features; as released, padding is attended to as well (docs/reference.md, encoder)."""
        return self.text_tower(input_ids=ids_BL.to(self.text_norm.weight.device)).last_hidden_state

    def image_features(self, images_BCHW: Tensor) -> Tensor:
        """(B, P, image width): the patch tokens before the last block, for pictures in [-1, 1] of any size."""
        weight = self.image_norm.weight
        pixels = clip_pixels(images_BCHW.to(weight.device).float(), self.spec.encoder.image.image_size)
        return image_tokens(self.image_tower, pixels.to(weight.dtype))

    def mix(self, text_BLW: Tensor, image_BPW: Tensor) -> Tensor:
        """(B, N, D): the representations that text and image features make (docs/reference.md, encoder)."""
        text, image = self.text_proj(text_BLW), self.image_proj(image_BPW)
        variant = self.spec.encoder.variant
        if variant == "addition":
            text, image = text + image.mean(1, keepdim=True), image + text.mean(1, keepdim=True)
        elif variant == "cross_attention":
            from_image = self.text_attention(text, image, image, need_weights=False)[0]
            from_text = self.image_attention(image, text, text, need_weights=False)[0]
            text, image = text + from_image, image + from_text
        return torch.cat([self.text_norm(text), self.image_norm(image)], dim=1)

    def forward(self, texts: Sequence[str], images_BCHW: Tensor) -> Tensor:
        """(B, N, D) representations of shots from their motion texts and reference frames in [-1, 1]."""
        return self.mix(self.text_features(self.text_ids(texts)), self.image_features(images_BCHW))

    @torch.inference_mode()
    def represent(self, instruction: str, picture_CHW: Tensor) -> Tensor:
        """(N, D) fp32 on the CPU: the representation of an opening picture and the motion part of an instruction.

        picture_CHW: in [-1, 1], of any size; its middle is cropped to the shot's aspect ratio.
        """
        decoder = self.spec.decoder
        picture = cropped(picture_CHW, decoder.width / decoder.height)
        return self([motion_text(instruction)], picture[None])[0].float().cpu()

    def unconditional(self) -> Tensor:
        """(N, D): the representation of all-zero features, for classifier-free guidance."""
        weight, state, sizes = self.text_norm.weight, self.spec.state, self.spec.encoder
        return self.mix(
            weight.new_zeros(1, state.text_tokens, sizes.text.width),
            weight.new_zeros(1, state.image_tokens, sizes.image.width),
        )[0]


def text_encoder(spec: TextEncoderSpec) -> T5EncoderModel:
    """A T5 v1.1 encoder of these sizes with random weights."""
    config = T5Config(
        vocab_size=spec.vocab_size,
        d_model=spec.width,
        d_kv=spec.head_width,
        d_ff=spec.intermediate,
        num_layers=spec.layers,
        num_heads=spec.heads,
        feed_forward_proj="gated-gelu",
        tie_word_embeddings=False,
        use_cache=False,
    )
    return T5EncoderModel(config)


def image_encoder(spec: ImageEncoderSpec) -> CLIPVisionModel:
    """A CLIP image encoder of these sizes with random weights; exact GELU, as in the released one."""
    config = CLIPVisionConfig(
        image_size=spec.image_size,
        patch_size=spec.patch,
        hidden_size=spec.width,
        intermediate_size=spec.intermediate,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        hidden_act="gelu",
        layer_norm_eps=1e-5,
    )
    return CLIPVisionModel(config)


def image_tokens(encoder: CLIPVisionModel, pixels_BCHW: Tensor) -> Tensor:
    """(B, P, width): patch tokens after all blocks but the last, without norm (docs/reference.md, image encoder)."""
    return encoder(pixel_values=pixels_BCHW, output_hidden_states=True).hidden_states[-2][:, 1:]


def cropped(picture_CHW: Tensor, shape: float) -> Tensor:
    """The largest centred part of a picture whose width is `shape` times its height, to within a pixel."""
    height, width = picture_CHW.shape[-2:]
    kept_height, kept_width = min(height, max(1, round(width / shape))), min(width, max(1, round(height * shape)))
    top, left = (height - kept_height) // 2, (width - kept_width) // 2
    return picture_CHW[..., top : top + kept_height, left : left + kept_width]


def clip_pixels(images_BCHW: Tensor, size: int) -> Tensor:
    """(B, 3, size, size): pictures in [-1, 1], resized to a square without cropping and normalised for CLIP.

    Bicubic with aligned corners, after a Gaussian blur if the picture shrinks, as in the released preprocessing
    (docs/reference.md, image encoder).
    """
    height, width = images_BCHW.shape[-2:]
    factors = height / size, width / size
    if max(factors) > 1:
        images_BCHW = _blurred(images_BCHW, factors)
    square = F.interpolate(images_BCHW, (size, size), mode="bicubic", align_corners=True)
    mean, std = (square.new_tensor(values)[:, None, None] for values in (CLIP_MEAN, CLIP_STD))
    return ((square + 1) / 2 - mean) / std


def _blurred(images_BCHW: Tensor, factors: tuple[float, float]) -> Tensor:
    """Separable Gaussian blur with reflected borders. factors: how much height and width will shrink."""
    (tall, kernel_tall), (wide, kernel_wide) = (_gaussian(factor, images_BCHW) for factor in factors)
    channels = images_BCHW.shape[1]
    padded = F.pad(images_BCHW, (wide, wide, tall, tall), mode="reflect")
    rows = rearrange(kernel_tall, "k -> 1 1 k 1").expand(channels, 1, -1, 1)
    columns = rearrange(kernel_wide, "k -> 1 1 1 k").expand(channels, 1, 1, -1)
    return F.conv2d(F.conv2d(padded, rows, groups=channels), columns, groups=channels)


def _gaussian(factor: float, like: Tensor) -> tuple[int, Tensor]:
    """(radius, kernel) for shrinking by `factor`: sigma is (factor - 1) / 2; the kernel has an odd length from 3 on."""
    sigma = max((factor - 1) / 2, 0.001)
    taps = int(max(4 * sigma, 3))
    radius = taps // 2
    at = torch.arange(-radius, radius + 1, dtype=like.dtype, device=like.device)
    weights = torch.exp(-(at**2) / (2 * sigma**2))
    return radius, weights / weights.sum()


def _projection(source: int, target: int, variant: str) -> nn.Module:
    if variant == "linear":
        return nn.Linear(source, target)
    return nn.Sequential(nn.Linear(source, target), nn.GELU(), nn.Linear(target, target))
