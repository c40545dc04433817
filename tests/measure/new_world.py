"""All steps from free base models to a played turn, on random weights, with seconds and peak memory of each step.

    python tests/measure/new_world.py --work /tmp/measure
    python tests/measure/new_world.py --work /tmp/measure --tiny --device cpu

Writes folders laid out as downloads of CogVideoX-2b, Mistral-7B-Instruct-v0.1 and CLIP at the published sizes, makes a
world of them (`new`), compares its first velocity with stock CogVideoX's, takes two steps of each stage with recipe
`lora` on made-up clips, and plays a turn with what they left. Nothing is downloaded. At the published sizes it needs a
GPU of 80 GB, 60 GB of disk and 60 GB of main memory. T5 has 4 of its 24 layers, since it only computes features;
--t5-layers 24 writes all of it, twice 8 GB more, and then also checks `--spec release`.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

import numpy as np
import stock_files
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXTransformer3DModel
from noise import noise_turn
from published_files import image_tower_tensors, save
from safetensors.torch import save_file
from torch import nn
from transformers import MistralConfig, MistralForCausalLM

from animegamer_core.__main__ import main as animegamer
from animegamer_core.media.video import write_clip
from animegamer_core.model.encoder import image_encoder, text_encoder
from animegamer_core.model.sampler import STOCK_SCHEDULER
from animegamer_core.spec import RELEASE, ModelSpec
from animegamer_core.weights import open_world
from animegamer_core.weights.base_folders import BaseFolders, find_base
from animegamer_core.weights.parts import build_model
from animegamer_core.weights.storage import plan_shards

GIB = 2**30
TIED = "encoder.embed_tokens.weight"  # of T5, which stores it as shared.weight
SHARD = 5 * 10**9  # bytes, as the hub's shards have
TURNS = 6
STARTS = {"warmup": (), "joint": ("warmup",), "predict": ("joint",), "adapt": ("joint", "predict")}
FEW = "--steps 2 --batch 2 --accumulation 1 --per-card 2 --lr-warmup 1 --log-every 1 --save-every 1000".split()
INSTRUCTION = "Character: Qiqi; Motion: quickly fly on a broomstick; Background: day sky."


def write_random(model: nn.Module, folder: Path, stem: str, dtype: torch.dtype, device: torch.device) -> None:
    """Write a meta model as sharded safetensors of random numbers, made on the device, a shard at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    shapes = {name: value.shape for name, value in model.state_dict().items() if name != TIED}
    shards = plan_shards({name: shape.numel() * dtype.itemsize for name, shape in shapes.items()}, SHARD)
    index = {}
    for number, names in enumerate(shards, start=1):
        file = f"{stem}-{number:05}-of-{len(shards):05}.safetensors" if len(shards) > 1 else f"{stem}.safetensors"
        save_file({name: _random(name, shapes[name], dtype, device) for name in names}, folder / file)
        index |= dict.fromkeys(names, file)
    if len(shards) > 1:
        (folder / f"{stem}.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))


def _random(name: str, shape: torch.Size, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    value = torch.empty(shape, dtype=dtype, device=device)
    value.normal_(std=0.02) if value.dim() > 1 else value.fill_(float(name.endswith("weight")))
    return value.cpu()


def write_base(folder: Path, spec: ModelSpec, device: torch.device) -> None:
    """Write base models of the sizes of a spec with the published widths."""
    video, llm = folder / "CogVideoX-2b", folder / "Mistral-7B-Instruct-v0.1"
    transformer = build_model(lambda: CogVideoXTransformer3DModel(num_layers=spec.decoder.layers))
    write_random(transformer, video / "transformer", "diffusion_pytorch_model", torch.float16, device)
    transformer.save_config(video / "transformer")
    kinds = {"down_block_types": ("CogVideoXDownBlock3D",) * 4, "up_block_types": ("CogVideoXUpBlock3D",) * 4}
    vae = build_model(lambda: AutoencoderKLCogVideoX(**kinds))
    write_random(vae, video / "vae", "diffusion_pytorch_model", torch.float16, device)
    vae.save_config(video / "vae")
    CogVideoXDDIMScheduler(**STOCK_SCHEDULER).save_pretrained(video / "scheduler")
    t5 = build_model(lambda: text_encoder(spec.encoder.text))
    write_random(t5, video / "text_encoder", "model", torch.float16, device)
    t5.config.save_pretrained(video / "text_encoder")
    stock_files.write_letters(video / "tokenizer" / "tokenizer.json", 32100)
    sizes = spec.engine
    config = MistralConfig(
        vocab_size=32000, hidden_size=sizes.hidden, intermediate_size=sizes.intermediate,
        num_hidden_layers=sizes.layers, num_attention_heads=sizes.heads, num_key_value_heads=sizes.kv_heads,
        max_position_embeddings=sizes.max_positions, rms_norm_eps=1e-5, tie_word_embeddings=False,
    )  # fmt: skip
    write_random(build_model(lambda: MistralForCausalLM(config)), llm, "model", torch.bfloat16, device)
    config.save_pretrained(llm)
    stock_files.write_letters(llm / "tokenizer.json", 32000, "\u2581")
    clip = folder / stock_files.CLIP
    save(clip / "open_clip_pytorch_model.bin", image_tower_tensors(image_encoder(spec.encoder.image)))
    (clip / "open_clip_config.json").write_text('{"model_cfg": {"vision_cfg": {}}}')


def write_dataset(folder: Path, spec: ModelSpec) -> None:
    """Write one game of clips in which coarse noise moves, at the size that the world draws."""
    decoder, numbers = spec.decoder, np.random.default_rng(0)
    clips = [f"clips/{number:04d}.mp4" for number in range(TURNS)]
    turns = [noise_turn(number, clip, "fly on a broomstick", 1.0) for number, clip in enumerate(clips)]
    for turn in turns:
        coarse = numbers.integers(0, 256, (2, 3, 3), dtype=np.uint8)
        tile = -(-decoder.height // 2), -(-decoder.width // 3)
        picture = coarse.repeat(tile[0], 0).repeat(tile[1], 1)[: decoder.height, : decoder.width]
        frames = np.stack([np.roll(picture, frame, axis=1) for frame in range(decoder.frames)])
        (folder / turn.clip).parent.mkdir(parents=True, exist_ok=True)
        write_clip(folder / turn.clip, frames, decoder.fps)
    (folder / "turns.jsonl").write_text("".join(turn.to_json() + "\n" for turn in turns))
    (folder / "games.jsonl").write_text(json.dumps({"game": "noise", "clips": [turn.clip for turn in turns]}) + "\n")
    motion = {"backend": "dis", "threshold": 0.2, "edges": [1.0, 2.0, 3.0, 4.0], "values": [0.5, 1.5, 2.5, 3.5, 4.5]}
    (folder / "dataset.json").write_text(json.dumps({"format": 1, "settings": {"motion": motion}}))


@torch.no_grad()
def compare_velocities(base: BaseFolders, world: Path, device: torch.device) -> str:
    """How far the world's first velocity is from stock CogVideoX's for a text of zeros, both in float32."""
    stock = CogVideoXTransformer3DModel.from_pretrained(base.cogvideox / "transformer").float().to(device).eval()
    decoder = open_world(world).load_decoder(device, torch.float32, parts=("decoder",))
    torch.manual_seed(0)
    latents = torch.randn(1, *decoder.spec.decoder.latent_shape, device=device)
    texts = torch.zeros(1, decoder.spec.state.tokens, stock.config.text_embed_dim, device=device)
    worst, deviation = {1e-5: 0.0, 1e-6: 0.0}, 0.0  # by the eps of the last norm: diffusers', CogVideoX's own and ours
    for timestep, motion in ((19, 40.0), (499, 2.5), (999, 0.0)):
        at = torch.tensor([timestep], device=device)
        found = decoder.velocity(latents, at, decoder.unconditional_ND[None], torch.tensor([motion], device=device))
        for eps in worst:
            stock.norm_out.norm.eps = eps
            wanted = stock(latents, texts, timestep=at, return_dict=False)[0]
            worst[eps], deviation = max(worst[eps], float((found - wanted).abs().max())), float(wanted.std())
    shown = ", ".join(f"{value:.1e} at eps {eps:.0e}" for eps, value in worst.items())
    return f"largest difference {shown}; velocities deviate by {deviation:.2f}"


def measured(name: str, work: Callable[[], object], device: torch.device, rows: Path) -> None:
    """Run one step; print and store its seconds and memory."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    begun = time.perf_counter()
    note = work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    row = {
        "step": name,
        "seconds": round(time.perf_counter() - begun, 2),
        "gpu_gib": round(torch.cuda.max_memory_allocated() / GIB, 2) if device.type == "cuda" else 0.0,
        "host_gib_so_far": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),  # files too
        "note": note if isinstance(note, str) else "",
    }
    say(
        "{step:10s} {seconds:7.1f} s   GPU {gpu_gib:6.2f} GiB   host so far {host_gib_so_far:6.2f} GiB   {note}".format(
            **row
        )
    )
    with rows.open("a") as file:
        file.write(json.dumps(row) + "\n")


def command(log: Path, *words: object) -> None:
    """Run one command of the program with its output in a file; SystemExit shows the end of it if it fails."""
    with log.open("a") as file, redirect_stdout(file), redirect_stderr(file):
        status = animegamer([str(word) for word in words])
    if status:
        raise SystemExit(f"{log.read_text()[-3000:]}\n{' '.join(map(str, words))} ended with {status}")


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def run_way(args: argparse.Namespace) -> None:
    """Run all steps in the folder --work."""
    work, device = args.work, torch.device(args.device)
    work.mkdir(parents=True, exist_ok=True)
    world, folder, begun = work / "world", work / "base", time.perf_counter()
    text = replace(RELEASE.encoder.text, layers=args.t5_layers)
    spec = replace(RELEASE, encoder=replace(RELEASE.encoder, text=text))

    def step(name: str, what: Callable[[], object]) -> None:
        measured(name, what, device, work / "rows.jsonl")

    def run(name: str, *words: object) -> None:
        step(name, lambda: command(work / "log.txt", *words))

    step("downloads", lambda: stock_files.write_base(folder) if args.tiny else write_base(folder, spec, device))
    base = find_base(folder)
    made = ["--cogvideox", base.cogvideox, "--mistral", base.mistral, "--clip", base.clip, "--out", world]
    made += ["--precision", "keep"] if args.tiny else ["--spec", "release"] if spec == RELEASE else []
    run("new", "new", *made)
    run("new again", "new", *made)
    step("velocity", lambda: compare_velocities(base, world, device))
    shutil.rmtree(folder)  # the world has all of it, and the disk may be small
    step("dataset", lambda: write_dataset(work / "dataset", open_world(world).spec))
    files = {stage: work / "runs" / stage / f"{stage}.safetensors" for stage in STARTS}
    for stage, start in STARTS.items():
        out = files[stage].parent
        places = ["--dataset", work / "dataset", "--world", world, "--cache", work / "cache", "--out", out]
        places += ["--start", *(files[name] for name in start)] if start else []
        run(stage, "train", stage, *places, *FEW, "--recipe", "lora")
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
    (work / "game.txt").write_text(INSTRUCTION + "\n")
    staged = [word for stage in ("joint", "predict", "adapt") for word in ("--lora", files[stage])]
    run("play", "play", work / "game.txt", "--world", world, *staged, "--out", work / "out", "--device", device)
    say(f"all in {time.perf_counter() - begun:.0f} s, torch {torch.__version__} on {device}; rows and log in {work}")


def main() -> None:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="a new folder on a fast disk")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--t5-layers", type=int, default=4, help="of 24 (default %(default)s)")
    parser.add_argument("--tiny", action="store_true", help="small models, to try this script")
    args = parser.parse_args()
    if args.work.exists() and any(args.work.iterdir()):
        parser.error(f"{args.work} is not empty; give a new folder")
    run_way(args)


if __name__ == "__main__":
    main()
