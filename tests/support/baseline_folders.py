"""Stock diffusers pipelines of random weights at a tiny size, saved as the folders that baselines open."""

import diffusers
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection, PreTrainedTokenizerFast

from animegamer_core.model.encoder import text_encoder
from animegamer_core.model.sampler import STOCK_SCHEDULER
from animegamer_core.spec import TextEncoderSpec

WORDS = ["character", "motion", "background", ":", ";", ",", ".", "qiqi", "sosuke", "quickly", "slowly", "runs", "sits"]
WORDS += ["reads", "flies", "noon", "evening", "forest", "sea", "bedroom", "anime", "style"]
TEXT_LENGTH = 24
TEXT_WIDTH = 16


def word_tokenizer():
    """One entry a word, T5's ids of <pad>, </s> and <unk>, and </s> behind every text, as the pipelines ask."""
    vocabulary = {word: index for index, word in enumerate(("<pad>", "</s>", "<unk>", *WORDS))}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer, backend.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    marks = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=TEXT_LENGTH, **marks)


def t5_tower():
    """A T5 encoder of one layer."""
    sizes = TextEncoderSpec(len(WORDS) + 3, TEXT_WIDTH, head_width=8, heads=2, intermediate=32, layers=1)
    return text_encoder(sizes).eval()


def save_text_to_video(folder, frames, seed=0):
    """A CogVideoX of 32 x 48 pixels that draws `frames` frames from text; returns the folder."""
    torch.manual_seed(seed)
    diffusers.CogVideoXPipeline(**_video_parts(frames, channels=4)).save_pretrained(folder)
    return folder


def save_image_to_video(folder, frames):
    """The same from a picture and text, with rotary positions, as CogVideoX-5b-I2V has them; returns the folder."""
    torch.manual_seed(1)
    parts = _video_parts(frames, channels=8, use_rotary_positional_embeddings=True)
    diffusers.CogVideoXImageToVideoPipeline(**parts).save_pretrained(folder)
    return folder


def save_flux(folder):
    """A FLUX; returns the folder."""
    torch.manual_seed(2)
    transformer = diffusers.FluxTransformer2DModel(
        in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=TEXT_WIDTH, pooled_projection_dim=TEXT_WIDTH, guidance_embeds=True,
        axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    diffusers.FluxPipeline(
        scheduler=diffusers.FlowMatchEulerDiscreteScheduler(shift=3.0, use_dynamic_shifting=True), vae=_picture_vae(),
        text_encoder=_clip(CLIPTextModel), tokenizer=word_tokenizer(), text_encoder_2=t5_tower(),
        tokenizer_2=word_tokenizer(), transformer=transformer,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save_sdxl(folder):
    """An SDXL of one attending up block; returns the folder."""
    torch.manual_seed(3)
    unet = diffusers.UNet2DConditionModel(
        sample_size=16, block_out_channels=(8, 16), layers_per_block=1, norm_num_groups=4,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"), attention_head_dim=(1, 2),
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=8 * 6 + TEXT_WIDTH, cross_attention_dim=2 * TEXT_WIDTH,
    )  # fmt: skip
    scheduler = diffusers.EulerDiscreteScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", steps_offset=1, timestep_spacing="leading"
    )
    diffusers.StableDiffusionXLPipeline(
        vae=_picture_vae(), text_encoder=_clip(CLIPTextModel), text_encoder_2=_clip(CLIPTextModelWithProjection),
        tokenizer=word_tokenizer(), tokenizer_2=word_tokenizer(), unet=unet, scheduler=scheduler,
        add_watermarker=False,
    ).save_pretrained(folder)  # fmt: skip
    return folder


def save_lora(folder, pipeline_class, model_folder):
    """A LoRA of the pipeline's transformer in diffusers' format, with updates that show; returns the file."""
    from peft import LoraConfig
    from peft.utils import get_peft_model_state_dict

    torch.manual_seed(4)
    pipeline = pipeline_class.from_pretrained(model_folder)
    pipeline.transformer.add_adapter(LoraConfig(r=2, lora_alpha=2, target_modules=["to_q", "to_k", "to_v"]))
    for name, parameter in pipeline.transformer.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=1.0)
    pipeline_class.save_lora_weights(folder, transformer_lora_layers=get_peft_model_state_dict(pipeline.transformer))
    return folder / "pytorch_lora_weights.safetensors"


def _video_parts(frames, channels, **options):
    """The components of a CogVideoX; channels: of what its transformer reads."""
    vae = diffusers.AutoencoderKLCogVideoX(
        block_out_channels=(8, 16, 16), down_block_types=("CogVideoXDownBlock3D",) * 3,
        up_block_types=("CogVideoXUpBlock3D",) * 3, layers_per_block=1, latent_channels=4, norm_num_groups=4,
        sample_height=32, sample_width=48, scaling_factor=1.0,
    )  # fmt: skip
    transformer = diffusers.CogVideoXTransformer3DModel(
        num_attention_heads=2, attention_head_dim=16, in_channels=channels, out_channels=4, time_embed_dim=16,
        text_embed_dim=TEXT_WIDTH, num_layers=1, sample_width=12, sample_height=8, sample_frames=frames,
        max_text_seq_length=TEXT_LENGTH, **options,
    )  # fmt: skip
    scheduler = diffusers.CogVideoXDPMScheduler(**STOCK_SCHEDULER)
    texts = {"tokenizer": word_tokenizer(), "text_encoder": t5_tower()}
    return {**texts, "vae": vae, "transformer": transformer, "scheduler": scheduler}


def _clip(kind):
    config = CLIPTextConfig(
        vocab_size=len(WORDS) + 3, hidden_size=TEXT_WIDTH, intermediate_size=32, projection_dim=TEXT_WIDTH,
        num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=TEXT_LENGTH, pad_token_id=0,
        bos_token_id=2, eos_token_id=1,
    )  # fmt: skip
    return kind(config).eval()


def _picture_vae():
    return diffusers.AutoencoderKL(
        block_out_channels=(8, 8), down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2, norm_num_groups=4, shift_factor=0.0, scaling_factor=1.0,
        use_quant_conv=False, use_post_quant_conv=False,
    )  # fmt: skip
