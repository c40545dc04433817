"""Repositories for the tests' hub: what the published worlds are downloaded from, at a tiny size."""

import safetensors.torch
import torch

GAMER, MISTRAL, VIDEO = "TencentARC/AnimeGamer", "mistralai/Mistral-7B-Instruct-v0.1", "THUDM/CogVideoX-2b"


def below(folder):
    """Every file in a folder, by its path."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def released_repositories(download, originals):
    """The three repositories of the published worlds, with a whole tiny world inside, for a Hub."""
    gamer = {path: data for path, data in below(download).items() if path.startswith(("MLLM-", "VDM_Decoder-"))}
    others = {"README.md": b"about", "MLLM-Sosuke/pytorch_model.bin": b"x", "VDM_Decoder-Qiqi/1/optimizer.pt": b"y"}
    base = safetensors.torch.save({"model.norm.weight": torch.zeros(16)})
    vae = {name: value.contiguous() for name, value in originals.decoder.vae.state_dict().items()}
    return {
        GAMER: {**gamer, **others},
        MISTRAL: {**below(download / "Mistral-7B-Instruct-v0.1"), "model.safetensors": base},
        VIDEO: {"vae/diffusion_pytorch_model.safetensors": safetensors.torch.save(vae)},
    }
