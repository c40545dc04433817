"""What each way of computing a shot otherwise does to a loaded decoder, in place and for good."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import typing
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from .hindrances import flash3_module, no_flash3, no_onednn, no_torchao

if typing.TYPE_CHECKING:
    from torch import Tensor, nn

    from ..decoder import ShotDecoder

COMPILED = {"emulate_precision_casts": True}  # numbers are rounded where uncompiled operations round them
FLASH3 = "flash3"  # the name of its operation
FP8_CAPABILITY = (8, 9)  # of GPUs with fp8 matrix products: Ada, Hopper and later


def halves(decoder: ShotDecoder) -> None:
    from ..halves import second_device, split

    split(decoder, second_device(decoder))


def fused(decoder: ShotDecoder) -> None:
    """Low-rank updates of the three are stacked, so that they too take one product each way."""
    from ..checkpoint.lora import attach, stacked_updates

    transformer, updates = decoder.transformer, {}
    for number, block in enumerate(transformer.transformer_blocks):
        three = [block.attn1.to_q, block.attn1.to_k, block.attn1.to_v]
        for adapter, update in stacked_updates(three).items():
            updates.setdefault(adapter, {})[f"transformer_blocks.{number}.attn1.to_qkv"] = update
    transformer.fuse_qkv_projections()
    for block in transformer.transformer_blocks:
        for name in ("to_q", "to_k", "to_v"):  # else their weights would stay beside the fused ones
            delattr(block.attn1, name)
    for adapter, stacked in updates.items():
        attach(transformer, stacked, adapter)


def cudnn(decoder: ShotDecoder) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    _require_gpu("cudnn", "a GPU's attention")
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    plain = decoder.transformer.forward

    def forward(*args: object, **kwargs: object) -> object:
        with sdpa_kernel(order, set_priority=True):
            return plain(*args, **kwargs)

    decoder.transformer.forward = forward


def layout(decoder: ShotDecoder) -> None:
    import torch
    from torch import nn

    formats = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}
    for module in decoder.vae.modules():
        for kind, memory_format in formats.items():
            if isinstance(module, kind):
                module.to(memory_format=memory_format)


def onednn(decoder: ShotDecoder) -> None:
    """torch sends small 3-D convolutions to a slower way of its own, whatever their number of channels."""
    import torch
    from torch import nn

    device = decoder.unconditional_ND.device
    if device.type != "cpu":
        raise ValueError(f"tuning onednn is for a CPU, and the decoder is on {device}; leave it out")
    _require("onednn", no_onednn(str(device)))
    for module in decoder.vae.modules():
        if isinstance(module, nn.Conv3d) and max(module.kernel_size) > 1:
            module.forward = partial(_convolved, module, torch.mkldnn_convolution)


def _convolved(module: nn.Conv3d, convolution: Callable[..., Tensor], rows_BCFHW: Tensor) -> Tensor:
    shape = module.padding, module.stride, module.dilation, module.groups
    return convolution(rows_BCFHW, module.weight, module.bias, *shape)


def half_vae(decoder: ShotDecoder) -> None:
    """As quick as bfloat16, eight times finer in rounding, and the format that CogVideoX-2b's VAE was published in."""
    import torch
    from torch import nn

    nn.Module.to(decoder.vae, torch.float16)  # diffusers' own `to` warns of modules to keep in float32: there are none


def fp8(decoder: ShotDecoder) -> None:
    import torch

    _require_gpu("fp8", "arithmetic of a GPU")
    if torch.cuda.get_device_capability() < FP8_CAPABILITY:
        raise ValueError(
            f"tuning fp8 needs a GPU of compute capability {'.'.join(map(str, FP8_CAPABILITY))} or later; "
            f"{torch.cuda.get_device_name()} is of an earlier kind, so take int8 or leave it out"
        )
    _quantize(decoder, "fp8", "Float8DynamicActivationFloat8WeightConfig", _feeds_forward)


def int8(decoder: ShotDecoder) -> None:
    _quantize(decoder, "int8", "Int8WeightOnlyConfig", _in_a_block)


def _quantize(decoder: ShotDecoder, name: str, config: str, which: Callable[[nn.Module, str], bool]) -> None:
    """Put torchao's numbers in place of the weights of the linear layers that `which` names."""
    _require(name, no_torchao())
    quantization = importlib.import_module("torchao.quantization")
    if not hasattr(quantization, config):
        raise ValueError(f"tuning {name} needs a torchao with {config}; pip install -U torchao, or leave it out")
    kind = getattr(quantization, config)
    # Else it changes how this process compiles everything from now on, and what is measured after it.
    own = {"set_inductor_config": False} if "set_inductor_config" in inspect.signature(kind).parameters else {}
    quantization.quantize_(decoder.transformer, kind(**own), filter_fn=which)


def _feeds_forward(module: nn.Module, name: str) -> bool:
    from ..checkpoint.lora import is_lora

    return _is_linear(module) and ".ff." in name and not is_lora(f"{name}.")


def _in_a_block(module: nn.Module, name: str) -> bool:
    from ..checkpoint.lora import is_lora

    return _is_linear(module) and name.startswith("transformer_blocks.") and not is_lora(f"{name}.")


def _is_linear(module: nn.Module) -> bool:
    from torch import nn

    return isinstance(module, nn.Linear)


def flash3(decoder: ShotDecoder) -> None:
    from ..layers import JointAttention, opaque

    own = decoder.unconditional_ND.device
    _require("flash3", no_flash3("cuda" if own.type == "cpu" else str(own)))  # weights may wait on the CPU
    decoder.transformer.set_attn_processor(JointAttention(opaque(FLASH3, flash3_module().flash_attn_func)))


def gelu(decoder: ShotDecoder) -> None:
    """The products' own last step on a GPU, which spares reading and writing the widest rows once more."""
    from ..layers import LinearGelu

    _require_gpu("gelu", "a GPU's way to end a matrix product")
    for block in decoder.transformer.transformer_blocks:
        if not isinstance(block.ff.net[0], LinearGelu) and not hasattr(block.ff.net[0].proj, "lora_A"):
            assert block.ff.net[0].approximate == "tanh", "what such a product ends with"
            block.ff.net[0] = LinearGelu(block.ff.net[0].proj)


def blocks(decoder: ShotDecoder) -> None:
    """One block is compiled and serves for all of them, so that the start is short."""
    _compile_blocks(decoder)


def graph(decoder: ShotDecoder) -> None:
    """A block's kernels are launched as one CUDA graph, for models so small that launching is what takes time."""
    import torch

    _require_gpu("graph", "CUDA's graphs")
    _compile_blocks(decoder, {"triton.cudagraphs": True})
    # Within one step each block's output is the next one's input; only a new step may write over them.
    decoder.transformer.register_forward_pre_hook(lambda *_: torch.compiler.cudagraph_mark_step_begin())


def _compile_blocks(decoder: ShotDecoder, more: Mapping[str, bool] = MappingProxyType({})) -> None:
    import torch

    for block in decoder.transformer.transformer_blocks:
        # Not block.compile(): what a cache remembers is looked up outside of the compiled part.
        block.forward = _on_whole_rows(torch.compile(block.forward, dynamic=False, options={**COMPILED, **more}))


def _on_whole_rows(compiled: Callable[..., object]) -> Callable[..., object]:
    """The first block is given slices of longer rows, and would be compiled once more for them alone."""

    def whole(rows_BLD: Tensor) -> Tensor:
        return rows_BLD.contiguous().view(-1).view(rows_BLD.shape)  # one row's slice calls itself contiguous

    def forward(hidden_states: Tensor, encoder_hidden_states: Tensor, **others: object) -> object:
        return compiled(whole(hidden_states), whole(encoder_hidden_states), **others)

    return forward


def whole(decoder: ShotDecoder) -> None:
    decoder.transformer.compile(dynamic=False, options=COMPILED)


def vae(decoder: ShotDecoder) -> None:
    """Compiled for its two chunks, the first of 3 latent frames and the later ones of 2 with what they remember."""
    decoder.vae.decoder.compile(dynamic=False, options=COMPILED)


def _require(name: str, lacking: str) -> None:
    if lacking:
        raise ValueError(f"tuning {name} cannot be had, {lacking}; leave it out")


def _require_gpu(name: str, what: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError(f"tuning {name} is {what}; there is no GPU here, so leave it out")
