"""What the small networks that judge Toybox shots share: convolution blocks, and their files in a world's folder.

A file holds the weights in fp16; the card (JSON) next to it states the network's labels or words, and its training.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from ..files import replacing, write_text
from ..json_files import read_json


def conv_block(source: int, target: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution from `source` to `target` channels with batch norm and SiLU."""
    return nn.Sequential(
        nn.Conv2d(source, target, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(target), nn.SiLU()
    )


def conv_stages(widths: tuple[int, ...]) -> nn.ModuleList:
    """Convolution blocks from RGB to these numbers of channels, one after another; each halves height and width."""
    return nn.ModuleList(
        conv_block(source, target, 5 if source == 3 else 3, 2)
        for source, target in zip((3, *widths), widths, strict=False)
    )


def save_network(net: nn.Module, weights: Path, card: dict[str, Any]) -> None:
    """Write a network's tensors in fp16 to `weights`, and its card next to them under the same name."""
    from safetensors.torch import save_file

    tensors = {
        name: tensor.detach().cpu().half() if tensor.is_floating_point() else tensor.detach().cpu()
        for name, tensor in net.state_dict().items()
    }
    with replacing(weights) as part:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part)
    write_text(weights.with_suffix(".json"), json.dumps(card, indent=2) + "\n")


def load_network(net: nn.Module, weights: Path, kind: str) -> None:
    """Load a network's weights from its file, as fp32; ValueError if the file is damaged or holds another network.

    kind: the network's name in the message.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(weights)
        # strict by default: an extra or a missing tensor means another network
        net.load_state_dict({name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights}: not the {kind} of this version ({error}); build them again") from error


def read_network_card(weights: Path, missing: str) -> dict[str, Any]:
    """The card next to a network's weights; ValueError with the message `missing` if either file is missing."""
    card = weights.with_suffix(".json")
    if not weights.is_file() or not card.is_file():
        raise ValueError(missing)
    return read_json(card, dict[str, Any])
