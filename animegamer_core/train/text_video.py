"""The paper's baseline GC: a stock CogVideoX that draws a clip from the whole instruction, trained by stage `gc`.

In the Toybox, it starts with random weights at the decoder's size and uses the world's text encoder; the result is a
folder that diffusers' CogVideoXPipeline opens. For a folder of CogVideoX-2B, a LoRA is trained; the result is a folder
for `load_lora_weights`.

B batch, L text tokens, W text width, T latent frames, C channels, H height, W width of latents.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import diffusers
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDPMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel
from torch import Tensor, nn
from transformers import PreTrainedTokenizerFast

from ..data.dataset import DatasetFolder
from ..files import room_for
from ..model.decoder import stock_transformer
from ..model.sampler import STOCK_SCHEDULER
from ..spec import RELEASE, DecoderSpec, ModelSpec, VaeSpec, step_count
from ..weights import World
from ..weights.adapter_files import read_adapter
from ..weights.storage import write_json
from .parts import ADAPTER, WorldParts, is_trained_lora, name_of, with_guidance
from .sampling import random_seed
from .training_data import TrainingData, weights_digest

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SAMPLING = "sampling.json"  # next to it or to the LoRA: default sampling settings, and the number of frames
TEXT_STEP = 16  # a new model's text length is a multiple of this
TEXT_ROWS = 64  # instructions encoded at a time


class TextVideo(nn.Module):
    """The parts of a stock CogVideoXPipeline. It takes the decoder's place in WorldParts while stage `gc` trains."""

    def __init__(self, spec: ModelSpec, pipeline: CogVideoXPipeline) -> None:
        super().__init__()
        self.spec = spec
        self.transformer: CogVideoXTransformer3DModel = pipeline.transformer
        self.vae: AutoencoderKLCogVideoX = pipeline.vae
        self.text_encoder = pipeline.text_encoder
        self.tokenizer, self.scheduler = pipeline.tokenizer, pipeline.scheduler
        self.text_length = pipeline.transformer.config.max_text_seq_length  # L, the tokens of every text

    @property
    def pipeline(self) -> CogVideoXPipeline:
        """The models as a diffusers pipeline, to draw with or to save."""
        names = ("tokenizer", "text_encoder", "vae", "transformer", "scheduler")
        return CogVideoXPipeline(**{name: getattr(self, name) for name in names})

    def text_features(self, texts: Sequence[str]) -> Tensor:
        """(B, L, W): features of texts, truncated or padded as in the pipeline; padding is attended to."""
        rows = self.tokenizer(
            list(texts), padding="max_length", max_length=self.text_length, truncation=True, return_tensors="pt"
        )
        return self.text_encoder(rows.input_ids.to(self.text_encoder.device))[0]

    def velocity(self, latents_BTCHW: Tensor, timesteps_B: Tensor, texts_BLW: Tensor) -> Tensor:
        """(B, T, C, H, W): the predicted velocity v of noised latents."""
        dtype = self.transformer.dtype
        return self.transformer(latents_BTCHW.to(dtype), texts_BLW.to(dtype), timestep=timesteps_B).sample


@torch.no_grad()
def add_instructions(data: TrainingData, model: TextVideo) -> TrainingData:
    """Add the text encoder's features of whole instructions, `instruction`, and those of '' as blank_text."""
    texts = [turn.instruction for turn in data.folder.turns]
    weights = f"{weights_digest(model.text_encoder)}-{model.text_length}"
    home = "cpu" if data.cache else model.text_encoder.device
    model.text_encoder.eval()

    def features(part: range) -> Tensor:
        return model.text_features(texts[part.start : part.stop]).half().to(home)

    blank = model.text_features([""])[0].half().to(home)
    return replace(data.with_feature("instruction", features, TEXT_ROWS, lambda: weights), blank_text=blank)


def open_text_video(folder: Path, dtype: torch.dtype = torch.float32) -> WorldParts:
    """Load a folder of CogVideoX-2B, its VAE in fp32; ValueError for models that stage `gc` cannot train."""
    options = {"local_files_only": True, "use_safetensors": True, dtype_option(diffusers.__version__): dtype}
    try:
        pipeline = CogVideoXPipeline.from_pretrained(str(folder), **options)
    except OSError as error:
        raise ValueError(f"{folder} is not a complete CogVideoX folder ({error}); download it again") from error
    config, vae = pipeline.transformer.config, pipeline.vae.float()
    if config.use_rotary_positional_embeddings or config.patch_size_t or config.ofs_embed_dim:
        raise ValueError(f"{folder} is another CogVideoX model; stage gc trains THUDM/CogVideoX-2b")
    channels = tuple(vae.config.block_out_channels)
    factor = 2 ** (len(channels) - 1)
    sizes = (vae.config.layers_per_block, vae.config.latent_channels, vae.config.norm_num_groups)
    decoder = DecoderSpec(
        layers=config.num_layers,
        heads=config.num_attention_heads,
        head_width=config.attention_head_dim,
        time_width=config.time_embed_dim,
        patch=config.patch_size,
        height=config.sample_height * factor,
        width=config.sample_width * factor,
        spatial_scale=config.spatial_interpolation_scale,
        vae=VaeSpec(channels, *sizes, vae.config.scaling_factor),
    )  # its clips have the published number of frames
    state = replace(RELEASE.state, width=decoder.heads * decoder.head_width)
    spec = replace(RELEASE, name=folder.name, state=state, decoder=decoder)
    pipeline.vae.num_sample_frames_batch_size = spec.decoder.frames - 1  # encode whole clips, as in ShotDecoder
    return WorldParts(spec, decoder=TextVideo(spec, pipeline))


def new_text_video(world: World, dataset: DatasetFolder, seed: int) -> WorldParts:
    """A transformer with random weights at the size of the world's decoder, with the world's VAE and text encoder.

    Its text length fits the longest instruction of the dataset. ValueError if the world lacks VAE or text encoder.
    """
    vae = world.load_decoder(dtype=torch.float32, parts=("vae",)).vae
    encoder = world.load_encoder(dtype=torch.float32, parts=("text_tower",))
    vae.weights_name, encoder.text_tower.weights_name = name_of(world, "vae"), name_of(world, "text_tower")
    tokenizer = _stock_tokenizer(encoder.tokenizer)
    longest = max((len(tokenizer(turn.instruction).input_ids) for turn in dataset.turns), default=1)
    length = -(-longest // TEXT_STEP) * TEXT_STEP
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(random_seed(seed, "gc"))
        transformer = stock_transformer(world.spec, world.spec.encoder.text.width, length)
    pipeline = CogVideoXPipeline(
        tokenizer=tokenizer,
        text_encoder=encoder.text_tower,
        vae=vae,
        transformer=transformer,
        scheduler=CogVideoXDPMScheduler(**STOCK_SCHEDULER),
    )
    spec = with_guidance(world.spec)
    return WorldParts(spec, decoder=TextVideo(spec, pipeline))


def save_text_video(model: TextVideo, stage_file: Path, folder: Path) -> Path:
    """Write what stage `gc` trained for diffusers, as a whole pipeline or a LoRA; returns the folder.

    The LoRA's scale is multiplied into its weights, so that diffusers' default strength is right.
    """
    notes, tensors = read_adapter(stage_file)
    settings = notes.config
    if folder.exists():
        shutil.rmtree(folder)
    with room_for(folder):
        if settings["lora_rank"]:
            scale = settings["lora_alpha"] / settings["lora_rank"]
            prefix = "decoder.transformer."
            layers = {
                name[len(prefix) :].replace(f".{ADAPTER}.", "."): value * scale if ".lora_B." in name else value
                for name, value in tensors.items()
                if is_trained_lora(name)
            }
            CogVideoXPipeline.save_lora_weights(str(folder), transformer_lora_layers=layers)
        else:
            model.pipeline.save_pretrained(str(folder))
    decoder = model.spec.decoder
    sampling = {"steps": step_count(decoder.steps), "guidance_scale": decoder.guidance_scale, "frames": decoder.frames}
    write_json(folder / SAMPLING, sampling)
    return folder


def dtype_option(version: str) -> str:
    """The name of the dtype option in a version of diffusers; 0.42 warns about the old name."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return "dtype" if (major, minor) >= (0, 42) else "torch_dtype"


def _stock_tokenizer(backend: Tokenizer) -> PreTrainedTokenizerFast:
    """A world's text tokenizer for the pipeline: it appends </s>, and pads with id 0 as ShotEncoder does."""
    from tokenizers import Tokenizer, processors

    ending = Tokenizer.from_str(backend.to_str())
    end = ending.token_to_id("</s>")
    ending.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", end)])
    return PreTrainedTokenizerFast(
        tokenizer_object=ending, pad_token=ending.id_to_token(0), eos_token="</s>", unk_token="<unk>"
    )
