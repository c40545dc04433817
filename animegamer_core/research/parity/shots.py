"""Parity from representation to frames: transformer, sampler, VAE, image encoder, and a whole decode."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from ...media.video import to_uint8
from ...model.decoder import ShotDecoder
from ...model.encoder import clip_pixels, image_tokens
from ...model.sampler import Guidance, Schedule, guidance_scale, solve, train_table
from ...state import MOTION_TABLES
from .golden import Golden, ParityRun, present
from .rows import Row, gap, mismatch, row

TRANSFORMER, TABLES, TRACES, VAE, TOWER, LEVELS = 2e-5, 1e-5, 2e-5, 2e-5, 1e-5, 1.0
WAVE = Guidance("reference_wave")
# The scripts' solver used the first timestep for a missing motion value (docs/reference.md, motion values).
NO_MOTION = 999.0


@torch.inference_mode()
def transformer_rows(bench: ParityRun) -> list[Row]:
    """The shot encoder's projections and the transformer, for all recorded conditions, motion values and timesteps."""
    names = "encoder projections", "transformer"
    if not present(bench.golden, "dit_state.safetensors", "dit_io.safetensors", "dit_io.json"):
        return [row(name, TRANSFORMER, []) for name in names]
    golden = Golden(bench.golden, "dit_io")
    bench.publish_decoder("dit")
    world = bench.world("dit", "decoder", "encoder")
    decoder = world.load_decoder(parts=("decoder",))
    encoder = world.load_encoder(parts=("encoder",))
    patches = decoder.transformer.patch_embed.proj(golden["x"][0]).flatten(2).transpose(1, 2).flatten(0, 1)[None]
    both_2ND = torch.cat([decoder.unconditional_ND[None], golden["aroutput"]])
    mixed = golden.gaps(
        {
            "enc.mix_emb": lambda: encoder.mix(golden["text"], golden["ip"]),
            "enc.patch_emb": lambda: patches,
            "ar.mix_emb": lambda: both_2ND,
        }
    )
    cases = golden.facts["cases"].items()
    outputs = golden.gaps({f"{name}.out": partial(_velocity, decoder, golden, name, case) for name, case in cases})
    return [row(names[0], TRANSFORMER, mixed), row(names[1], TRANSFORMER, outputs)]


def _velocity(decoder: ShotDecoder, golden: Golden, name: str, case: dict) -> Tensor:
    """One recorded call. Its condition is from the encoder, a guidance pair, or a given representation."""
    rows = len(golden[f"{name}.out"])
    condition = {"enc": "enc.mix_emb", "adapt": "aroutput"}.get(name.partition(".")[0], "ar.mix_emb")
    return decoder.velocity(
        golden["x"].expand(rows, -1, -1, -1, -1),
        torch.full((rows,), case["timestep"]),
        golden[condition],
        torch.full((rows,), float(case["flow"])),
    )


def sampler_rows(bench: ParityRun) -> list[Row]:
    """Schedule and guidance tables, and traces of the solver with a toy network and the recorded noise."""
    names = "sampler tables", "sampler guidance", "sampler traces"
    if not present(bench.golden, "sampler.safetensors", "sampler.json"):
        return [row(name, tolerance, []) for name, tolerance in zip(names, (TABLES, TABLES, TRACES), strict=True)]
    golden = Golden(bench.golden, "sampler")
    tables, scales, traces = [gap(train_table(), golden["table1000.sqrt_alphas_cumprod_ascending"])], [], []
    for steps in map(int, golden.facts["schedules"]):
        schedule, prefix = Schedule.of(steps, released=True), f"s{steps}."
        tables.append(gap(schedule.sqrt_alphas, golden[prefix + "sqrt_alphas_cumprod"]))
        tables.append(gap(schedule.snapped_sqrt_alphas, golden[prefix + "quantized_sqrt_alphas_cumprod"]))
        tables.append(mismatch(list(schedule.timesteps), golden[prefix + "timesteps"].tolist()))
        ours = [guidance_scale(WAVE.name, WAVE.strength, step, schedule) for step in range(steps)]
        scales.append(gap(torch.tensor(ours, dtype=torch.float64), golden[prefix + "guidance"]))
    for name, run in golden.facts["runs"].items():
        traces += _trace(golden, name, run)
    return [row(names[0], TABLES, tables), row(names[1], TABLES, scales), row(names[2], TRACES, traces)]


def _trace(golden: Golden, name: str, run: dict) -> list[float]:
    """Differences in one recorded run: the final latents; if recorded, the network's inputs and guided predictions."""
    schedule = Schedule.of(run["steps"], released=True)
    motion = NO_MOTION if run["flow"] is None else run["flow"]
    seen, clean = [], []

    def velocity(latents: Tensor, timestep: int, alone: bool) -> Tensor:
        seen.append(latents)
        return _toy_network(golden, name, latents, timestep, motion)

    draws = iter(golden[f"{name}.draws"][::2])  # in the scripts, each step but the first drew twice and used the second
    noise, on_step = partial(next, draws), lambda done, steps, now: clean.append(now)
    final = solve(velocity, golden[f"{name}.x0"], schedule, WAVE, noise, on_step)
    found = [gap(final, golden[f"{name}.final"])]
    if f"{name}.x_in" in golden.tensors:
        recorded = golden[f"{name}.denoised"]
        unconditional, conditional = recorded[:, 0], recorded[:, 1]
        strength = torch.tensor(run["guidance"]).view(-1, 1, 1, 1, 1)
        found.append(gap(torch.cat(seen), golden[f"{name}.x_in"]))
        found.append(gap(torch.cat(clean), unconditional + strength * (conditional - unconditional)))
    return found


def _toy_network(golden: Golden, name: str, latents_1TCHW: Tensor, timestep: int, motion: float) -> Tensor:
    """(2, T, C, H, W): the toy network of the recorded traces (docs/reference.md, recorded results)."""
    bias_C = golden[f"{name}.aroutput"][0].mean(0) @ golden["net.wc"]
    bias_2C = torch.stack([torch.zeros_like(bias_C), bias_C])
    wave_C = torch.cos(3 * timestep / 1000 + golden["net.wt"])
    hidden = torch.einsum("btchw,cd->btdhw", latents_1TCHW.expand(2, -1, -1, -1, -1), golden["net.w1"])
    hidden = hidden + (wave_C + 0.01 * motion + bias_2C)[:, None, :, None, None]
    return torch.einsum("btchw,cd->btdhw", hidden.tanh(), golden["net.w2"])


@torch.inference_mode()
def vae_rows(bench: ParityRun) -> list[Row]:
    """Decoding in chunks and all at once, encoding in one pass, and frames as 8-bit pictures."""
    rows = {"VAE decode": VAE, "VAE decode at once": VAE, "VAE encode": VAE, "VAE frames (levels)": LEVELS}
    if not present(bench.golden, "vae_state.safetensors", "vae_io.safetensors"):
        return [row(name, tolerance, []) for name, tolerance in rows.items()]
    golden = Golden(bench.golden, "vae_io")
    bench.publish_vae("vae")
    decoder = bench.world("vae", "vae").load_decoder(parts=("vae",))
    factor, clip = decoder.vae.config.scaling_factor, golden["clip"]

    def decoded(latent_BCTHW: Tensor) -> Tensor:
        return decoder.decode_latents(latent_BCTHW.transpose(1, 2) * factor).transpose(1, 2)

    def encoded(clip_BCFHW: Tensor) -> Tensor:
        return decoder.encode_frames(clip_BCFHW.transpose(1, 2)).transpose(1, 2) / factor

    def pictured() -> Tensor:
        return torch.stack([_levels(frames) for frames in decoded(golden["decode.latent"]).transpose(1, 2)])

    decode = golden.gaps(
        {
            "decode.chunked": lambda: decoded(golden["decode.latent"]),
            "decode.single_frame": lambda: decoded(golden["decode.latent"][:, :, :1]),
        }
    )
    encode = golden.gaps(
        {
            "encode.mean": lambda: encoded(clip),
            "encode1.mean": lambda: encoded(clip[:, :, :1]),
            "encode.logvar": lambda: decoder.vae.encode(clip).latent_dist.logvar,
        }
    )
    at_once = _at_once(decoder, golden, decoded)
    pictures = golden.gaps({"decode.uint8": pictured})
    found = zip(rows.items(), (decode, at_once, encode, pictures), strict=True)
    return [row(name, tolerance, gaps) for (name, tolerance), gaps in found]


def _at_once(decoder: ShotDecoder, golden: Golden, decoded: Callable[[Tensor], Tensor]) -> list[float]:
    """Differences if all latents are decoded in one chunk, whose frames are normalised together (`decode.full`).

    Sometimes only their difference from the chunked frames was recorded.
    """
    latent_BCTHW, chunk = golden["decode.latent"], decoder.vae.num_latent_frames_batch_size
    chunked = decoded(latent_BCTHW)
    decoder.vae.num_latent_frames_batch_size = latent_BCTHW.shape[2]
    full = decoded(latent_BCTHW)
    decoder.vae.num_latent_frames_batch_size = chunk
    found = golden.gaps({"decode.full": lambda: full})
    apart = golden.facts.get("full_vs_chunked_max") if (golden.folder / "vae_io.json").is_file() else None
    return found if apart is None else [*found, abs(gap(full, chunked) - apart)]


def _levels(frames_FCHW: Tensor) -> Tensor:
    """(F, C, H, W): frames as 0..255, as they are written to clips."""
    return torch.from_numpy(to_uint8(frames_FCHW)).permute(0, 3, 1, 2)


@torch.inference_mode()
def image_tower_rows(bench: ParityRun) -> list[Row]:
    """Preprocessing of an image, and the image encoder's tokens for it and its mirror image."""
    names = "picture preprocessing", "picture tower"
    if not present(bench.golden, "clip_state.safetensors", "clip_io.safetensors", "clip_io.json"):
        return [row(name, TOWER, []) for name in names]
    golden = Golden(bench.golden, "clip_io")
    bench.publish_image_tower("clip", golden.sizes)
    world = bench.world("clip", "image_tower")
    tower = world.load_encoder(parts=("image_tower",)).image_tower
    size = world.spec.encoder.image.image_size
    image = (golden["image_u8"] / 127.5 - 1)[None]
    both = torch.cat([image, image.flip(-1)])
    prepared = golden.gaps(
        {
            "pre_small": lambda: clip_pixels(image, size),
            "pre224_rows": lambda: clip_pixels(image, 224)[0, :, ::16],
        }
    )
    tokens = golden.gaps(
        {
            "tokens": lambda: image_tokens(tower, clip_pixels(image, size)),
            "tokens_batch2": lambda: image_tokens(tower, clip_pixels(both, size)),
        }
    )
    return [row(names[0], TOWER, prepared), row(names[1], TOWER, tokens)]


@torch.inference_mode()
def whole_rows(bench: ParityRun) -> list[Row]:
    """A whole decode: from a recorded engine output and recorded noise to frames."""
    name = "whole decode (levels)"
    weights = "dit_state.safetensors", "vae_state.safetensors", "mllm_io.safetensors"
    if not present(bench.golden, *weights, "e2e_io.safetensors", "e2e_io.json"):
        return [row(name, LEVELS, [])]
    golden = Golden(bench.golden, "e2e_io")
    bench.publish_decoder("e2e")
    bench.publish_vae("e2e")
    decoder = bench.world("e2e", "decoder", "vae").load_decoder()
    state_1ND = Golden(bench.golden, "mllm_io")[golden.sizes["ar_key"]]
    motion = float(golden.facts["flow"])
    noise = iter([golden["x0"], *golden["draws"][::2]])
    latents = decoder.denoise(state_1ND, torch.tensor([motion]), partial(next, noise), steps=golden.sizes["steps"])
    frames = decoder.decode_latents(latents)[0]
    kept = golden.facts["frames_kept"]
    found = [gap(_levels(frames[index : index + 1])[0], golden["frames_u8"][at]) for at, index in enumerate(kept)]
    if MOTION_TABLES["released"].value(golden.facts["states"][0]) != motion:
        found.append(math.inf)
    means = ((frames + 1) / 2).clamp(0, 1).mean(dim=(1, 2, 3))
    return [row(name, LEVELS, [*found, gap(means * 255, golden["frames_mean"] * 255)])]
