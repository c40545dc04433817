"""The files of what judges the Toybox: a small network's weights in 16 bits, and a card that says what it knows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from ..files import replacing, write_text


def save_judge(net: nn.Module, weights: Path, card: dict[str, Any]) -> None:
    """Write a network's tensors in fp16 to `weights`, and its card beside them under the same name."""
    from safetensors.torch import save_file

    tensors = {
        name: tensor.detach().cpu().half() if tensor.is_floating_point() else tensor.detach().cpu()
        for name, tensor in net.state_dict().items()
    }
    with replacing(weights) as part:
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, part)
    write_text(weights.with_suffix(".json"), json.dumps(card, indent=2) + "\n")


def load_judge(net: nn.Module, weights: Path, what: str) -> None:
    """Fill a network from its file, in fp32; ValueError, which calls it `what`, where that is damaged or another's."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(weights)
        # strict: a tensor too many or too few is another network
        net.load_state_dict({name: t.float() if t.is_floating_point() else t for name, t in tensors.items()})
    except (SafetensorError, RuntimeError) as error:
        raise ValueError(f"{weights}: not the {what} of this version ({error}); build them anew") from error
