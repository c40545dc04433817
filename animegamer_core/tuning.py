"""Other ways to compute the same turn, each by name. Most only round otherwise; those that approximate say so.

Each is tried alone, and beside the others, with `bench --each NAME...` and `bench --with NAME...`; `presets` names the
sets of them that paid. They change a loaded model in place and for good: a tuned model is neither trained nor saved.
Their names are known without importing torch.
"""

from __future__ import annotations

import importlib
import importlib.util
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

if typing.TYPE_CHECKING:
    from torch import Tensor, nn

    from .decoder import ShotDecoder

FIRST_BLOCK_THRESHOLD = 0.2  # the first block's residual may differ by this share before the others are asked again
TAYLOR_INTERVAL = 3  # every third step asks the attention
TAYLOR_WARM_UP = 3  # steps that a shot begins with, and that follow the last guided one
COMPILED = {"emulate_precision_casts": True}  # numbers are rounded where uncompiled operations round them
FP8_CAPABILITY = (8, 9)  # of GPUs with fp8 matrix products: Ada, Hopper and later


@dataclass(frozen=True)
class Tuning:
    """One way. approximates: the result differs beyond rounding. only: the kind of device that it is of use on, any
    if empty. hindered: says what is missing here, if something is.
    """

    about: str
    apply: Callable[[ShotDecoder], None]
    approximates: bool = False
    only: str = ""
    hindered: Callable[[], str] = lambda: ""


def tune(decoder: ShotDecoder, names: Sequence[str]) -> None:
    """Apply the named ways, in the table's order; ValueError lists the names, or says what a way needs."""
    from .halves import copies

    check_names(names)
    for name, tuning in TUNINGS.items():
        if name in names:
            for copy in copies(decoder):
                tuning.apply(copy)


def compiled_parts(decoder: ShotDecoder, names: Sequence[str]) -> list[nn.Module]:
    """The modules that these ways compile, each as one."""
    parts = [decoder.transformer] if "whole" in names else []
    if {"blocks", "graph"} & set(names):
        parts += decoder.transformer.transformer_blocks
    return [*parts, decoder.vae.decoder] if "vae" in names else parts


def check_names(names: Sequence[str]) -> None:
    """ValueError lists the names if one of these is none, or names two that exclude one another."""
    unknown = [name for name in names if name not in TUNINGS]
    if unknown:
        raise ValueError(f"unknown tuning {unknown[0]!r}; choose from {', '.join(TUNINGS)}")
    for group in EXCLUSIVE:
        both = [name for name in TUNINGS if name in names and name in group]
        if len(both) > 1:
            raise ValueError(f"tunings {both[0]} and {both[1]} exclude one another; leave one of them out")


def usable(names: Sequence[str], device: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """(the names that are of use on a device such as `cuda:0`, why the others are not)."""
    reasons = {name: reason for name in names if (reason := _hindrance(TUNINGS[name], device))}
    if "layout" in names and device.startswith("cuda") and "vae" not in set(names) - set(reasons):
        reasons["layout"] = "which slows a GPU down unless the VAE is compiled"
    return tuple(name for name in names if name not in reasons), reasons


def _hindrance(tuning: Tuning, device: str) -> str:
    if tuning.only not in ("", device.partition(":")[0]):
        return f"of no use on {device}"
    return tuning.hindered()


def _no_compiler() -> str:
    """torch compiles for a GPU with triton, which Windows lacks."""
    return "" if importlib.util.find_spec("triton") else "since triton is not installed"


def _no_onednn() -> str:
    import torch

    return "" if torch.backends.mkldnn.is_available() else "since this torch was built without oneDNN"


def approximations(names: Sequence[str]) -> tuple[str, ...]:
    """Those of the names that change the result beyond rounding."""
    return tuple(name for name, tuning in TUNINGS.items() if name in names and tuning.approximates)


def _halves(decoder: ShotDecoder) -> None:
    from .halves import second_device, split

    split(decoder, second_device(decoder))


def _fused(decoder: ShotDecoder) -> None:
    transformer = decoder.transformer
    transformer.fuse_qkv_projections()
    for block in transformer.transformer_blocks:
        for name in ("to_q", "to_k", "to_v"):  # else their weights would stay beside the fused ones
            delattr(block.attn1, name)


def _cudnn(decoder: ShotDecoder) -> None:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    _require_gpu("cudnn", "a GPU's attention")
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
    plain = decoder.transformer.forward

    def forward(*args: object, **kwargs: object) -> object:
        with sdpa_kernel(order, set_priority=True):
            return plain(*args, **kwargs)

    decoder.transformer.forward = forward


def _layout(decoder: ShotDecoder) -> None:
    import torch
    from torch import nn

    formats = {nn.Conv2d: torch.channels_last, nn.Conv3d: torch.channels_last_3d}
    for module in decoder.vae.modules():
        for kind, memory_format in formats.items():
            if isinstance(module, kind):
                module.to(memory_format=memory_format)


def _onednn(decoder: ShotDecoder) -> None:
    """torch sends small 3-D convolutions to a slower way of its own, whatever their number of channels."""
    import torch
    from torch import nn

    device = decoder.unconditional_ND.device
    if device.type != "cpu":
        raise ValueError(f"tuning onednn is for a CPU, and the decoder is on {device}; leave it out")
    dtype = str(decoder.vae.dtype).removeprefix("torch.")
    if not torch.backends.mkldnn.is_available() or dtype != "float32":
        raise ValueError(
            f"tuning onednn needs a torch built with oneDNN and float32 numbers, and this VAE has {dtype}; leave it "
            "out, or add --dtype float32"
        )
    for module in decoder.vae.modules():
        if isinstance(module, nn.Conv3d) and max(module.kernel_size) > 1:
            module.forward = partial(_convolved, module, torch.mkldnn_convolution)


def _convolved(module: nn.Conv3d, convolution: Callable[..., Tensor], rows_BCFHW: Tensor) -> Tensor:
    shape = module.padding, module.stride, module.dilation, module.groups
    return convolution(rows_BCFHW, module.weight, module.bias, *shape)


def _half_vae(decoder: ShotDecoder) -> None:
    """As quick as bfloat16, eight times finer in rounding, and the format that CogVideoX-2b's VAE was published in."""
    import torch
    from torch import nn

    if decoder.vae.dtype == torch.float16:
        return
    if decoder.vae.dtype != torch.bfloat16:
        raise ValueError(
            f"tuning half_vae puts float16 in place of bfloat16, and this decoder computes in "
            f"{str(decoder.vae.dtype).removeprefix('torch.')}; leave it out, or add --dtype bfloat16"
        )
    nn.Module.to(decoder.vae, torch.float16)  # diffusers' own `to` warns of modules to keep in float32: there are none


def _fp8(decoder: ShotDecoder) -> None:
    import torch

    _require_gpu("fp8", "arithmetic of a GPU")
    if torch.cuda.get_device_capability() < FP8_CAPABILITY:
        raise ValueError(
            f"tuning fp8 needs a GPU of compute capability {'.'.join(map(str, FP8_CAPABILITY))} or later; "
            f"{torch.cuda.get_device_name()} is of an earlier kind, so take int8 or leave it out"
        )
    _quantize(decoder, "fp8", "Float8DynamicActivationFloat8WeightConfig", _feeds_forward)


def _int8(decoder: ShotDecoder) -> None:
    _quantize(decoder, "int8", "Int8WeightOnlyConfig", _in_a_block)


def _quantize(decoder: ShotDecoder, name: str, config: str, which: Callable[[nn.Module, str], bool]) -> None:
    """Put torchao's numbers in place of the weights of the linear layers that `which` names."""
    if importlib.util.find_spec("torchao") is None:
        raise ValueError(f"tuning {name} needs torchao, which is not installed; pip install torchao, or leave it out")
    quantization = importlib.import_module("torchao.quantization")
    if not hasattr(quantization, config):
        raise ValueError(f"tuning {name} needs a torchao with {config}; pip install -U torchao, or leave it out")
    quantization.quantize_(decoder.transformer, getattr(quantization, config)(), filter_fn=which)


def _feeds_forward(module: nn.Module, name: str) -> bool:
    return _is_linear(module) and ".ff." in name


def _in_a_block(module: nn.Module, name: str) -> bool:
    return _is_linear(module) and name.startswith("transformer_blocks.")


def _is_linear(module: nn.Module) -> bool:
    from torch import nn

    return isinstance(module, nn.Linear)


def _gelu(decoder: ShotDecoder) -> None:
    """The products' own last step on a GPU, which spares reading and writing the widest rows once more."""
    from .layers import LinearGelu

    _require_gpu("gelu", "a GPU's way to end a matrix product")
    for block in decoder.transformer.transformer_blocks:
        if not isinstance(block.ff.net[0], LinearGelu):
            assert block.ff.net[0].approximate == "tanh", "what such a product ends with"
            block.ff.net[0] = LinearGelu(block.ff.net[0].proj)


def _blocks(decoder: ShotDecoder) -> None:
    """One block is compiled and serves for all of them, so that the start is short."""
    _compile_blocks(decoder)


def _graph(decoder: ShotDecoder) -> None:
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


def _whole(decoder: ShotDecoder) -> None:
    decoder.transformer.compile(dynamic=False, options=COMPILED)


def _vae(decoder: ShotDecoder) -> None:
    """Compiled for its two chunks, the first of 3 latent frames and the later ones of 2 with what they remember."""
    decoder.vae.decoder.compile(dynamic=False, options=COMPILED)


def _first_block(decoder: ShotDecoder) -> None:
    cache_first_block(decoder, FIRST_BLOCK_THRESHOLD)


def cache_first_block(decoder: ShotDecoder, threshold: float) -> None:
    """Where the first block's residual differs from the last computed step's by less than `threshold` of it, what the
    other blocks added then is added again; 0 asks them at every step.
    """
    decoder.transformer.enable_cache(_cache("first_block", "FirstBlockCacheConfig")(threshold=threshold))


def _taylor(decoder: ShotDecoder) -> None:
    cache_attention(decoder, TAYLOR_INTERVAL)


def cache_attention(decoder: ShotDecoder, interval: int) -> None:
    """Attention is asked at one step of `interval`, and continued in between on the line through its last two answers;
    1 asks it at every step.
    """
    decoder.transformer.enable_cache(
        _cache("taylor", "TaylorSeerCacheConfig")(
            cache_interval=interval,
            disable_cache_before_step=TAYLOR_WARM_UP,
            cache_identifiers=[r"transformer_blocks\.\d+\.attn1"],  # the default patterns miss CogVideoX's name
            taylor_factors_dtype=decoder.unconditional_ND.dtype,
        )
    )


def _cache(name: str, config: str) -> type:
    from diffusers import hooks

    if not hasattr(hooks, config):
        raise ValueError(f"tuning {name} needs diffusers with {config}; pip install -U diffusers, or leave it out")
    return getattr(hooks, config)


def _require_gpu(name: str, what: str) -> None:
    import torch

    if not torch.cuda.is_available():
        raise ValueError(f"tuning {name} is {what}; there is no GPU here, so leave it out")


TUNINGS: dict[str, Tuning] = {
    "halves": Tuning("the halves of guidance on two GPUs at once", _halves, only="cuda"),
    "fused": Tuning("one matrix product for query, key and value", _fused),
    "layout": Tuning("the VAE's convolutions with channels last (on a GPU, compiled only)", _layout),
    "onednn": Tuning("the VAE's convolutions through oneDNN, all of them", _onednn, only="cpu", hindered=_no_onednn),
    "half_vae": Tuning("the VAE in float16 where all else is bfloat16", _half_vae, only="cuda"),
    "fp8": Tuning("the feed-forward products in 8-bit floats (torchao)", _fp8, approximates=True, only="cuda"),
    "int8": Tuning("the blocks' weights kept as 8-bit integers (torchao)", _int8, approximates=True, only="cuda"),
    "cudnn": Tuning("cuDNN's attention before the others", _cudnn, only="cuda"),
    "gelu": Tuning("the feed-forward's GELU inside its matrix product", _gelu, only="cuda"),
    "blocks": Tuning("compiled transformer blocks", _blocks, only="cuda", hindered=_no_compiler),
    "graph": Tuning("compiled transformer blocks, each a CUDA graph", _graph, only="cuda", hindered=_no_compiler),
    "whole": Tuning("the whole transformer compiled", _whole, only="cuda", hindered=_no_compiler),
    "vae": Tuning("the VAE's decoder compiled", _vae, only="cuda", hindered=_no_compiler),
    "first_block": Tuning("steps whose first block tells nothing new skip the others", _first_block, approximates=True),
    "taylor": Tuning("attention continued on a line between steps that ask it", _taylor, approximates=True),
}
COMPILING = {"blocks", "graph", "whole", "vae"}  # their first shot of a size takes its time
CACHES = {"first_block", "taylor"}  # these leave arithmetic out
EXCLUSIVE = (
    {"blocks", "graph", "whole"},
    CACHES | {"whole"},  # a cache decides at every step, outside of what is compiled
    {"taylor", "blocks"},  # its memory is inside of a block
    {"taylor", "graph"},
    {"fp8", "int8"},
    {"fp8", "gelu"},  # the weights are torchao's own kind then
    {"int8", "gelu"},
    {"halves", "first_block"},  # a shot's memory is that of one transformer
    {"halves", "taylor"},
    {"halves", "cudnn"},  # two threads would undo one another's choice
    {"halves", "graph"},  # a graph belongs to the thread that recorded it
)
