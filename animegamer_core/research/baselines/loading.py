"""Loads stock pipelines from folders, and merges LoRA files into them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...checkpoint.storage import note_of, read_json
from ...messages import brief
from ...runtime.device import choose_device
from .folders import SDXL, ModelFolder

if TYPE_CHECKING:
    import torch
    from diffusers import DiffusionPipeline

    from .settings import BaselineSettings

PEFT = "base_model.model."  # prefix of every name in peft's own format


def load_pipeline(folder: ModelFolder, settings: BaselineSettings, lora: Path | None) -> DiffusionPipeline:
    """Load a folder's pipeline on its device, without progress bars; merges the LoRA, if any. ValueError if damaged."""
    device = choose_device(settings.device)
    if settings.offload and device == "cpu":
        raise ValueError("offload needs a GPU, but none is used; drop it")
    with _quiet():
        pipeline = _read(folder, dtype_name(settings))
        if lora:
            _merge_lora(pipeline, lora)
    pipeline.set_progress_bar_config(disable=True)
    pipeline.vae.enable_slicing()  # decode the pictures of a batch one by one
    if not settings.offload:
        return pipeline.to(device)
    pipeline.vae.enable_tiling()
    pipeline.enable_model_cpu_offload(device=device)
    return pipeline


def _read(folder: ModelFolder, dtype: str) -> DiffusionPipeline:
    import diffusers
    import torch

    from ...train.text_video import dtype_option

    _check_packages(folder)
    options: dict[str, Any] = {"variant": folder.variant, "local_files_only": True, "use_safetensors": True}
    options[dtype_option(diffusers.__version__)] = getattr(torch, dtype)
    if folder.kind is SDXL:
        options["add_watermarker"] = False  # the watermark package, if installed, would change the pictures
    try:
        return getattr(diffusers, folder.kind.pipeline).from_pretrained(str(folder.path), **options)
    except (OSError, ImportError, ValueError, TypeError, RuntimeError) as error:
        raise ValueError(f"{folder.path} does not load ({_first_line(error)}); fetch it again") from error


def _check_packages(folder: ModelFolder) -> None:
    """ValueError if a tokenizer needs sentencepiece and it is missing; the library's message names another package."""
    for name in folder.components:
        tokenizers = {file.name for file in (folder.path / name).glob("*")} & {"spiece.model", "tokenizer.json"}
        if tokenizers == {"spiece.model"} and importlib.util.find_spec("sentencepiece") is None:
            raise ValueError(
                f"{folder.path / name} has only spiece.model, which needs sentencepiece; "
                "run `pip install sentencepiece protobuf`"
            )


def dtype_name(settings: BaselineSettings) -> str:
    """The name of the models' dtype: the setting, or if that is `auto`, float32 on a CPU and bfloat16 elsewhere."""
    on_cpu = choose_device(settings.device) == "cpu"
    return settings.dtype if settings.dtype != "auto" else "float32" if on_cpu else "bfloat16"


def checked_lora(path: Path) -> str:
    """The SHA-256 of a LoRA file; ValueError if it is missing or not a safetensors file."""
    if path.suffix != ".safetensors" or not path.is_file():
        raise ValueError(f"{path} is not a LoRA file; give a .safetensors file in diffusers' or peft's format")
    return note_of(path).sha256


def _merge_lora(pipeline: DiffusionPipeline, path: Path) -> None:
    """Merge a LoRA file into the weights, so that it takes no extra time; ValueError if it does not fit."""
    from ...checkpoint.weight_files import read_state

    tensors = read_state(path)
    lora = _from_peft(path, tensors) if all(name.startswith(PEFT) for name in tensors) else str(path.parent)
    try:
        pipeline.load_lora_weights(lora, weight_name=path.name, local_files_only=True, use_safetensors=True)
        parts = list(pipeline.get_list_adapters())
        if parts:
            pipeline.fuse_lora(components=parts)
            pipeline.unload_lora_weights()
    except (OSError, ValueError, RuntimeError, KeyError, IndexError) as error:
        raise ValueError(f"{path} does not fit {type(pipeline).__name__} ({_first_line(error)})") from error
    if not parts:
        raise ValueError(f"{path} has no weights for {type(pipeline).__name__}; give a LoRA of this model")


def _from_peft(path: Path, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Rename the tensors of peft's format to diffusers' names, scaled as adapter_config.json next to the file says."""
    scale = _peft_scale(path)
    return {
        f"transformer.{name.removeprefix(PEFT)}": tensor * scale if "lora_B" in name else tensor
        for name, tensor in tensors.items()
    }


def _peft_scale(path: Path) -> float:
    """alpha / rank, or alpha / sqrt(rank), from adapter_config.json next to the file; ValueError if it is missing."""
    beside = path.with_name("adapter_config.json")
    if not beside.is_file():
        raise ValueError(f"{beside} is missing, but it holds the scale; copy it from where {path.name} was saved")
    config = read_json(beside)
    alpha, rank = config.get("lora_alpha"), config.get("r")
    if type(alpha) not in (int, float) or type(rank) is not int or rank < 1:
        raise ValueError(f"{beside}: lora_alpha is {alpha!r} and r {rank!r}; expected a number and a rank above 0")
    return alpha / (rank**0.5 if config.get("use_rslora") else rank)


@contextmanager
def _quiet() -> Iterator[None]:
    """Hides the libraries' progress bars while models load."""
    from diffusers.utils import logging as ours
    from transformers.utils import logging as theirs

    active = [library for library in (ours, theirs) if library.is_progress_bar_enabled()]
    for library in active:
        library.disable_progress_bar()
    try:
        yield
    finally:
        for library in active:
            library.enable_progress_bar()


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {brief(error)}"
