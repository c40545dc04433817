"""Prototype: data -> vae -> latents -> towers -> joint -> eval for a new Toybox, on 1 to 4 GPUs. Work folder in RAM."""
import argparse
import json
import math
import os
import pickle
import random
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from einops import rearrange
from torch import nn

sys.path.insert(0, os.environ.get("CODE", str(Path(__file__).parent / "code")))
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.toybox import world as W
from animegamer_core.train.losses import (
    contrastive,
    divergence,
    edge_error,
    motion_error,
    noised,
    sqrt_alpha_cumprod,
    velocity_target,
)

T0 = time.time()
RANK = int(os.environ.get("RANK", 0)); WORLD = int(os.environ.get("WORLD_SIZE", 1))
DEV = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if torch.cuda.is_available() else torch.device("cpu")

def say(*a):
    if RANK == 0: print(f"[{time.time()-T0:6.1f}]", *a, flush=True)

def spec(a):
    t = SPECS["toybox"]
    if a.old: return replace(t, state=replace(t.state, width=a.heads*64), decoder=replace(t.decoder, heads=a.heads, layers=a.layers, steps=4))
    ch = tuple(int(x) for x in a.channels.split(","))
    return replace(t, state=replace(t.state, width=a.heads*64, **({"text_tokens": a.text_tokens} if a.text_tokens else {})),
        encoder=replace(t.encoder, text=replace(t.encoder.text, vocab_size=a.vocab), image=replace(t.encoder.image, image_size=128, patch=16, width=192, heads=6, intermediate=384)),
        engine=replace(t.engine, vocab_size=a.vocab),
        decoder=replace(t.decoder, heads=a.heads, layers=a.layers, height=(W.HEIGHT * getattr(W, "SCALE", 1)), width=(W.WIDTH * getattr(W, "SCALE", 1)), steps=4,
            vae=replace(t.decoder.vae, channels=ch, latent_channels=a.latent)))

# ---------------------------------------------------------------- data
def draw_one(job):
    index, scene = job
    import cv2; cv2.setNumThreads(1)
    from animegamer_core.toybox.drawing.draw import draw_shot
    frames = draw_shot(scene)
    from animegamer_core.data.motion import _pair_value, dis_flow
    scale = 480 / frames.shape[1]
    value = float(np.mean([_pair_value(f * scale, 0.2, 0.0) for f in dis_flow(list(frames))]))
    FR[index] = frames
    return index, value

def init(path, shape):
    global FR
    torch.set_num_threads(1)
    FR = np.memmap(path, np.uint8, "r+", shape=shape)

def data(a):
    from multiprocessing import get_context

    from animegamer_core.toybox.dataset import DatasetGames
    fields = {"games": a.games, "held_out": a.held}
    if "edition" in DatasetGames.__dataclass_fields__: fields["edition"] = 2
    games = DatasetGames(**fields).scenes()
    rows, scenes = [], []
    for name, row in games.items():
        for turn, scene in enumerate(row):
            rows.append({"game": name, "turn": turn, "held": name.startswith("heldout")}); scenes.append(scene)
    shape = (len(scenes), W.FRAMES, (W.HEIGHT * getattr(W, "SCALE", 1)), (W.WIDTH * getattr(W, "SCALE", 1)), 3)
    path = a.work / "frames.u8"
    with open(path, "wb") as f: f.truncate(int(np.prod(shape)))
    say("drawing", shape, f"{np.prod(shape)/1e9:.1f} GB")
    values = np.zeros(len(scenes))
    with get_context("fork").Pool(a.workers, init, (path, shape)) as pool:
        for k, (i, v) in enumerate(pool.imap_unordered(draw_one, list(enumerate(scenes)), chunksize=8)):
            values[i] = v
            if k % 4000 == 0: say("drawn", k)
    edges = np.quantile([v for v, r in zip(values, rows) if not r["held"]], (.2, .4, .6, .8))
    for r, v, s in zip(rows, values, scenes):
        r["value"] = float(v); r["level"] = level = int(np.searchsorted(edges, v, side="right")) + 1
        rng = random.Random(f"unmatched adverb:{s.seed}")
        said = level
        if rng.random() < 0.8 and not r["held"]: said = rng.choice([x for x in range(1, 6) if x != level])
        r["motion_text"] = f"{W.adverb(s, said)} {W.motion_text(s)}"
        r["caption"] = W.caption(s, said)
    pickle.dump({"rows": rows, "scenes": scenes, "shape": shape, "edges": edges.tolist()}, open(a.work / "meta.pkl", "wb"))
    say("data done", len(rows), "edges", edges, "held", sum(r["held"] for r in rows))

def load(a):
    m = pickle.load(open(a.work / "meta.pkl", "rb"))
    frames = torch.from_numpy(np.memmap(a.work / "frames.u8", np.uint8, "r+", shape=m["shape"]))
    held = np.array([r["held"] for r in m["rows"]])
    return m, frames, np.flatnonzero(~held), np.flatnonzero(held)

def pics(u8): return rearrange(u8.to(DEV, non_blocking=True).float() / 127.5 - 1, "... h w c -> ... c h w")

class Ema:
    def __init__(s, params, decay): s.p = list(params); s.d = decay; s.a = [p.detach().clone() for p in s.p]; s.n = 0
    @torch.no_grad()
    def step(s):
        s.n += 1; torch._foreach_lerp_(s.a, [p.detach() for p in s.p], 1 - min(s.d, (1 + s.n) / (10 + s.n)))
    @torch.no_grad()
    def swap(s):
        for p, a in zip(s.p, s.a): t = p.detach().clone(); p.copy_(a); a.copy_(t)

def sync_grads(params):
    if WORLD == 1: return
    g = [p.grad for p in params if p.grad is not None]
    flat = torch._utils._flatten_dense_tensors(g); dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    for x, y in zip(g, torch._utils._unflatten_dense_tensors(flat, g)): x.copy_(y)

def lr_at(a, elapsed):
    """Time-based schedule over the whole stage: warm up, hold, then cosine to the floor in the last part."""
    done = elapsed / (60 * a.total)
    up = min(1.0, elapsed / (60 * a.warm)) if a.warm else 1.0
    return up * (a.floor + (1 - a.floor) * (1 + math.cos(math.pi * min(1, done))) / 2)

def optimizers(a, named):
    """Muon for the matrices of blocks, AdamW for the rest."""
    mats = [p for n, p in named if p.ndim == 2 and "blocks" in n and a.muon]
    ids = {id(p) for p in mats}
    rest = [p for n, p in named if id(p) not in ids]
    out = [torch.optim.AdamW([{"params": [p for p in rest if p.ndim > 1], "weight_decay": 0.01}, {"params": [p for p in rest if p.ndim <= 1], "weight_decay": 0.0}], lr=a.lr, betas=(0.9, 0.99), fused=DEV.type == "cuda")]
    if mats: out.append(torch.optim.Muon(mats, lr=a.lr * a.muon_gain, weight_decay=0.01, adjust_lr_fn="match_rms_adamw"))
    for o in out:
        for g in o.param_groups: g["base"] = g["lr"]
    say("optimizers:", len(mats), "matrices by Muon,", len(rest), "others")
    return out

def train(a, name, params_named, make_loss, ema_decay, extra=lambda: {}):
    params = [p for _, p in params_named]
    opts = optimizers(a, params_named); ema = Ema(params, ema_decay)
    ck = a.work / f"{name}{a.tag}.ck"; step, before = 0, 0.0
    if ck.exists():
        c = torch.load(ck, map_location=DEV, weights_only=False)
        for p, v in zip(params, c["params"]): p.data.copy_(v)
        for e, v in zip(ema.a, c["ema"]): e.copy_(v)
        for o, v in zip(opts, c["opts"]): o.load_state_dict(v)
        step, before, ema.n = c["step"], c["elapsed"], c["n"]; say("resumed at", step, before)
        for o in opts:
            for g in o.param_groups: g.setdefault("base", a.lr)
    t = time.time(); shown = time.time(); sums = {}; n = 0
    while True:
        elapsed = before + time.time() - t
        stop = torch.tensor([float(time.time() - t > 60 * a.minutes or elapsed > 60 * a.total)], device=DEV)
        if step % 10 == 0:
            if WORLD > 1: dist.broadcast(stop, 0)
            if stop.item(): break
        f = lr_at(a, elapsed)
        for o in opts:
            for g in o.param_groups: g["lr"] = g["base"] * f
        with torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
            parts = make_loss(step)
        parts["loss"].backward()
        sync_grads(params)
        norm = nn.utils.clip_grad_norm_(params, 1.0)
        for o in opts: o.step()
        for p in params: p.grad = None
        ema.step(); step += 1; n += 1
        for k, v in {**parts, "norm": norm}.items(): sums[k] = sums.get(k, 0) + v.detach()
        if time.time() - shown > a.every:
            say(name, step, " ".join(f"{k} {float(v)/n:.4f}" for k, v in sums.items()), f"lr x{f:.3f} {(time.time()-shown)/n*1e3:.0f} ms/step")
            shown = time.time(); sums = {}; n = 0
    if RANK == 0:
        torch.save({"params": [p.data for p in params], "ema": ema.a, "opts": [o.state_dict() for o in opts], "step": step, "elapsed": before + time.time() - t, "n": ema.n}, ck)
    say(name, "stopped at", step, "elapsed", before + time.time() - t)
    ema.swap()
    return step

def half(sd): return {k: v.detach().half().contiguous().cpu() for k, v in sd.items()}
def save(a, name, sd):
    if RANK == 0:
        from safetensors.torch import save_file
        save_file(half(sd), a.work / f"{name}.safetensors"); say("saved", name, (a.work / f"{name}.safetensors").stat().st_size / 1e6, "MB")
def read(a, name, model):
    from safetensors.torch import load_file
    model.load_state_dict({k: v.float() for k, v in load_file(a.work / f"{name}.safetensors").items()}); return model

# ---------------------------------------------------------------- vae
def psnr(x, y): return 10 * math.log10(4 / F.mse_loss(x, y).item())

def vae(a):
    m, frames, tr, he = load(a); s = spec(a)
    torch.manual_seed(0); v = ShotDecoder(s).vae.to(DEV)
    if (a.work / "vae.safetensors").exists() and not (a.work / "vae.ck").exists(): read(a, "vae", v)
    if DEV.type == "cuda": torch.backends.cudnn.benchmark = True; v = v.to(memory_format=torch.channels_last_3d) if a.last else v
    rng = np.random.default_rng(100 + RANK + int(time.time()) % 1000)
    def loss(step):
        rows = torch.from_numpy(rng.choice(tr, a.batch, replace=False))
        f = frames[rows]
        h, w = f.shape[2:4]; ch, cw = a.crop
        if ch < h:
            y, x = 8 * rng.integers((h - ch) // 8 + 1), 8 * rng.integers((w - cw) // 8 + 1); f = f[:, :, y:y+ch, x:x+cw]
        clip = rearrange(pics(f), "b f c h w -> b c f h w")
        post = v.encode(clip).latent_dist
        rebuilt = v.decode(post.mean + post.std * torch.randn_like(post.std)).sample.float()
        parts = {"l1": F.l1_loss(rebuilt, clip), "mse": F.mse_loss(rebuilt, clip), "edge": edge_error(rebuilt, clip, 3), "motion": motion_error(rebuilt, clip), "kl": divergence(post.mean.float(), post.logvar.float())}
        return {"loss": parts["l1"] + parts["mse"] + .3 * parts["edge"] + .3 * parts["motion"] + 1e-4 * parts["kl"], **parts}
    train(a, "vae", list(v.named_parameters()), loss, 0.999)
    save(a, "vae", v.state_dict())
    with torch.no_grad(), torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
        p = []
        for i in he[RANK::WORLD][:12]:
            clip = rearrange(pics(frames[i:i+1]), "b f c h w -> b c f h w")
            p.append(psnr(v.decode(v.encode(clip).latent_dist.mode()).sample.float(), clip))
        say("held-out PSNR of 12 clips", np.mean(p), "worst", min(p))

def latents(a):
    m, frames, tr, he = load(a); s = spec(a)
    v = read(a, "vae", ShotDecoder(s).vae).to(DEV).eval()
    T, C, h, w = s.decoder.latent_shape
    path = a.work / "latents.f16"; shape = (len(frames), 2, T, C, h, w)
    if RANK == 0:
        with open(path, "wb") as f: f.truncate(int(np.prod(shape)) * 2)
    if WORLD > 1: dist.barrier()
    out = torch.from_numpy(np.memmap(path, np.float16, "r+", shape=shape))
    chunks = torch.arange(len(frames)).split(16)[RANK::WORLD]
    stats = torch.zeros(3, device=DEV, dtype=torch.float64)
    with torch.no_grad():
        for k, idx in enumerate(chunks):
            with torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
                post = v.encode(rearrange(pics(frames[idx]), "b f c h w -> b c f h w")).latent_dist
            both = torch.stack([post.mean.float(), post.std.float()], 1)
            stats += torch.stack([both[:, 0].double().sum(), (both[:, 0].double() ** 2 + both[:, 1].double() ** 2).sum(), torch.tensor(float(both[:, 0].numel()), device=DEV)])
            out[idx] = rearrange(both, "b p c t h w -> b p t c h w").half().cpu()
            if k % 100 == 0: say("latents", k, "of", len(chunks))
    if WORLD > 1: dist.all_reduce(stats)
    mean = stats[0] / stats[2]; std = (stats[1] / stats[2] - mean ** 2).sqrt()
    if RANK == 0: json.dump({"shape": shape, "scale": float(1 / std)}, open(a.work / "latents.json", "w"))
    say("latents done, scale", float(1 / std), "mean", float(mean))

def load_latents(a, device):
    j = json.load(open(a.work / "latents.json"))
    x = torch.from_numpy(np.memmap(a.work / "latents.f16", np.float16, "r+", shape=tuple(j["shape"])))
    return (x if device is None else x.to(device)), j["scale"]

# ---------------------------------------------------------------- towers (one process)
class Heads(nn.Module):
    def __init__(s, tw, iw, patch, width=128):
        super().__init__(); s.text = nn.Linear(tw, width, bias=False); s.image = nn.Linear(iw, width, bias=False); s.patches = nn.Linear(iw, 3*patch*patch); s.log_scale = nn.Parameter(torch.tensor([2.66]))

def tokenizer(a): return GameTokenizer.from_words(W.vocabulary(True) if a.old else W.vocabulary(), spec(a).state.tokens)

def towers(a):
    from animegamer_core.model.encoder import clip_pixels
    m, frames, tr, he = load(a); s = spec(a); tok = tokenizer(a)
    torch.manual_seed(0); e = ShotEncoder(s, tok.backend).to(DEV)
    heads = Heads(s.encoder.text.width, s.encoder.image.width, s.encoder.image.patch).to(DEV)
    first = torch.from_numpy(np.ascontiguousarray(frames[:, 0].numpy())).to(DEV)
    caps = [r["caption"] for r in m["rows"]]; num = {c: i for i, c in enumerate(dict.fromkeys(caps))}; cap = torch.tensor([num[c] for c in caps], device=DEV)
    end = e.tokenizer.token_to_id("</s>")
    ids = nn.utils.rnn.pad_sequence([torch.tensor([*e.tokenizer.encode(c, add_special_tokens=False).ids, end]) for c in caps], batch_first=True).to(DEV)
    named = [(n, p) for n, p in e.named_parameters() if "tower" in n] + [("heads." + n, p) for n, p in heads.named_parameters()]
    gen = torch.Generator().manual_seed(1); trt = torch.from_numpy(tr)
    def loss(step):
        rows = trt[torch.randint(len(trt), (a.batch,), generator=gen)].to(DEV)
        t = e.text_features(ids[rows]); px = rearrange(first[rows].float()/127.5-1, "b h w c -> b c h w"); im = e.image_features(px)
        valid = (ids[rows] > 0)[..., None].to(t)
        tv = F.normalize(heads.text((t*valid).sum(1)/valid.sum(1)).float(), dim=-1); iv = F.normalize(heads.image(im.mean(1)).float(), dim=-1)
        match = contrastive(tv, iv, heads.log_scale.exp().clamp(max=100), cap[rows])
        want = rearrange(clip_pixels(px, s.encoder.image.image_size), "b c (h p) (w q) -> b (h w) (c p q)", p=s.encoder.image.patch, q=s.encoder.image.patch)
        px_loss = F.mse_loss(heads.patches(im).float(), want)
        return {"loss": match + px_loss, "match": match, "pixels": px_loss}
    train(a, "towers", named, loss, 0.998)
    save(a, "towers", {n: p for n, p in e.state_dict().items() if "tower" in n})
    save(a, "heads", heads.state_dict())

def features(a, e, m, frames):
    """text (n, L, W), image (n, P, W), blank (L, W) of all clips on the device, fp16."""
    texts = [r["motion_text"] for r in m["rows"]]; T, I = [], []
    with torch.no_grad():
        for k in range(0, len(texts), 256):
            T.append(e.text_features(e.text_ids(texts[k:k+256])).half())
            with torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
                I.append(e.image_features(pics(frames[k:k+256, 0])).half())
        return torch.cat(T), torch.cat(I), e.text_features(e.text_ids([""]))[0].half()

# ---------------------------------------------------------------- joint
def models(a, with_vae=True):
    s = spec(a); tok = tokenizer(a); torch.manual_seed(0)
    e = ShotEncoder(s, tok.backend); d = ShotDecoder(s)
    from safetensors.torch import load_file
    if (a.work / "towers.safetensors").exists(): e.load_state_dict({**e.state_dict(), **{k: v.float() for k, v in load_file(a.work / "towers.safetensors").items()}})
    for name, mod in (("mix", e), ("transformer", d.transformer)):
        if (a.work / f"{name}{a.tag}.safetensors").exists(): mod.load_state_dict({**mod.state_dict(), **{k: v.float() for k, v in load_file(a.work / f"{name}{a.tag}.safetensors").items()}}); say("loaded", name)
    if with_vae: read(a, "vae", d.vae); d.vae.register_to_config(scaling_factor=json.load(open(a.work / "latents.json"))["scale"])
    return e.to(DEV), d.to(DEV)

def old(a):
    """Put the shipped VAE and encoders where the stages look for them."""
    from safetensors.torch import load_file, save_file

    import animegamer_core.toybox as tb
    w = Path(tb.__file__).parent / "weights"
    save_file(load_file(w / "vae/model.safetensors"), a.work / "vae.safetensors")
    e = {f"{t}.{k}": v for t in ("text_tower", "image_tower") for k, v in load_file(w / f"encoder/{t}/model.safetensors").items()}
    save_file(e, a.work / "towers.safetensors")

def joint(a):
    m, frames, tr, he = load(a); s = spec(a)
    e, d = models(a, False); d.vae = None
    lat, scale = load_latents(a, DEV); text, image, blank = features(a, e, m, frames); say("features ready", tuple(text.shape), tuple(image.shape))
    motion = torch.tensor([r["value"] for r in m["rows"]], device=DEV)
    if a.compile:
        from animegamer_core.train.compiling import compile_for_training
        compile_for_training(d.transformer, dynamic=False)
    named = [("mix." + n, p) for n, p in e.named_parameters() if "tower" not in n and not a.freeze_mix] + list(d.transformer.named_parameters())
    gen = torch.Generator(DEV).manual_seed(1000 * int(time.time()) + RANK)
    trt, het = torch.from_numpy(tr).to(DEV), torch.from_numpy(he).to(DEV); per = a.batch
    def parts(rows, train=True, gen=gen):
        n = len(rows); both = lat[rows].float() * scale
        clean = both[:, 0] + both[:, 1] * torch.randn(both[:, 0].shape, generator=gen, device=DEV)
        noise = torch.randn(clean.shape, generator=gen, device=DEV)
        # stratified over the batch, so that every step sees all noise levels
        ts = ((torch.arange(n, device=DEV) + torch.rand(n, generator=gen, device=DEV)) / n * 1000).long()
        t, im, mo = text[rows].float(), image[rows].float(), motion[rows]
        if train:
            u = torch.rand(n, 5, generator=gen, device=DEV)
            t = torch.where(u[:, 0, None, None] < .05, blank.float(), t)
            both_gone = u[:, 3] < a.drop_both
            t = t.masked_fill(((u[:, 1] < .05) | both_gone)[:, None, None], 0.); im = im.masked_fill(((u[:, 2] < .05) | both_gone)[:, None, None], 0.)
            mo = mo.masked_fill((u[:, 4] < a.drop_both) & both_gone, 0.)
        sa = sqrt_alpha_cumprod(ts, clean)
        got = d.velocity(noised(clean, noise, sa), ts, e.mix(t, im), mo).float()
        return F.mse_loss(got, velocity_target(clean, noise, sa))
    d.train()
    def loss(step): return {"loss": parts(trt[torch.randint(len(trt), (per,), generator=gen, device=DEV)])}
    train(a, "joint", named, loss, a.ema)
    with torch.no_grad(), torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
        g2 = torch.Generator(DEV).manual_seed(7)
        v = [parts(het[torch.randint(len(het), (per,), generator=g2, device=DEV)], False, g2).item() for _ in range(8)]
    say("held-out loss", np.mean(v))
    save(a, "transformer" + a.tag, {k.replace("_orig_mod.", ""): v for k, v in d.transformer.state_dict().items()}); save(a, "mix" + a.tag, {n: p for n, p in e.state_dict().items() if "tower" not in n})

# ---------------------------------------------------------------- eval
def ssim_map(x, y):
    k = torch.arange(7, dtype=torch.float32, device=x.device) - 3; k = torch.exp(-k**2/(2*1.5**2)); k = (k/k.sum()); k2 = (k[:, None]*k[None])[None, None]
    c = lambda z: F.conv2d(z, k2)
    mx, my = c(x), c(y); vx, vy, vxy = c(x*x)-mx**2, c(y*y)-my**2, c(x*y)-mx*my
    return ((2*mx*my+.0001)*(2*vxy+.0009))/((mx**2+my**2+.0001)*(vx+vy+.0009))

def likeness(true, got, box):
    """SSIM of the box (y0, x0, y1, x1) of a true grey frame with the drawn one, best over shifts of up to 6 px."""
    y0, x0, y1, x1 = box; H, Wd = true.shape; best = -1.
    crop = true[y0:y1, x0:x1][None, None]; pad = F.pad(got[None, None], (6, 6, 6, 6), mode="replicate")
    outs = [pad[..., y0+6+dy:y1+6+dy, x0+6+dx:x1+6+dx] for dy in range(-6, 7) for dx in range(-6, 7)]
    y = torch.cat(outs); return ssim_map(crop.expand(len(y), -1, -1, -1), y).mean((1, 2, 3)).max().item()

def evaluate(a):
    m, frames, tr, he = load(a); e, d = models(a); d.eval(); e.eval(); s = spec(a); d.profile = PROFILES["paper"]
    d.spec = replace(s, decoder=replace(s.decoder, guidance_scale=0.0, vae=replace(s.decoder.vae, scaling_factor=d.vae.config.scaling_factor)))
    text, image, blank = features(a, e, m, frames)
    d.unconditional_ND.copy_(e.unconditional())
    by = {l: [i for i in he if m["rows"][i]["level"] == l][RANK::WORLD][: a.shots] for l in range(1, 6)}
    sheet = []; res = {}
    grey = lambda u: (u.float() @ torch.tensor([.299, .587, .114], device=DEV)) / 255
    for l, rows in by.items():
        rows = torch.tensor(rows)
        with torch.no_grad():
            st = e.mix(text[rows].float(), image[rows].float()); mo = torch.tensor([m["rows"][i]["value"] for i in rows])
            for steps in a.steps:
                out = []
                with torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
                    x = d.sample(st, mo, [1000 + int(i) for i in rows], steps=steps, guidance=a.guidance)
                    got = torch.cat([d.decode_latents(x[k:k+1]) for k in range(len(x))])
                res[l, steps] = (rows, ((got.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8))
            with torch.autocast(DEV.type, torch.bfloat16, enabled=DEV.type == "cuda"):
                reb = torch.cat([d.decode_vae(d.encode_vae(pics(frames[k:k+1]))) for k in rows.tolist()])
            res[l, 0] = (rows, ((reb.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8))
    lines = {}
    for (l, steps), (rows, got) in res.items():
        like, worst, ps = [], [], []
        for i, g in zip(rows.tolist(), got):
            t = frames[i].to(DEV); gg = grey(rearrange(g, "f c h w -> f h w c")); tt = grey(t)
            ps.append(10*math.log10(255**2/max(1e-9, F.mse_loss(rearrange(g, "f c h w -> f h w c").float(), t.float()).item())))
            boxes = BOXES(m["scenes"][i]); v = [likeness(tt[f], gg[f], boxes[f]) for f in range(1, 17) if boxes[f] is not None]
            if v: like.append(np.mean(v)); worst.append(min(v))
        lines[l, steps] = (np.mean(like), np.mean(worst), np.mean(ps), len(like))
    if WORLD > 1:
        all_ = [None] * WORLD; dist.all_gather_object(all_, lines)
        lines = {k: tuple(np.mean([x[k][j] for x in all_]) if j < 3 else sum(x[k][3] for x in all_) for j in range(4)) for k in lines}
    for steps in (0, *a.steps):
        say("VAE  " if steps == 0 else f"{steps} steps", " | ".join(f"L{l} like {lines[l,steps][0]:.3f} worst {lines[l,steps][1]:.3f} psnr {lines[l,steps][2]:.1f} n {lines[l,steps][3]}" for l in range(1, 6)))
    if RANK == 0:
        from PIL import Image
        for l in (1, 3, 4, 5):
            rows, got = res[l, a.steps[0]]; tiles = []
            for i, g in list(zip(rows.tolist(), got))[:6]:
                for src in (rearrange(g, "f c h w -> f h w c").cpu().numpy(), frames[i].numpy()):
                    tiles.append(np.concatenate([src[f] for f in (0, 4, 8, 12, 16)], 1))
            Image.fromarray(np.concatenate(tiles, 0)).save(a.work / f"level{l}{a.tag}.jpg", quality=90)

def BOXES(scene):
    from animegamer_core.toybox.drawing import draw as D
    if hasattr(D, "figure_boxes"): return D.figure_boxes(scene)
    return [(20, 40, 90, 104)] * 17

if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("stage"); p.add_argument("--tag", default=""); p.add_argument("--work", type=Path, default=Path("/dev/shm/w"))
    p.add_argument("--games", type=int, default=4); p.add_argument("--held", type=int, default=2); p.add_argument("--workers", type=int, default=os.cpu_count())
    p.add_argument("--old", action="store_true"); p.add_argument("--channels", default="32,64,96,128"); p.add_argument("--latent", type=int, default=16); p.add_argument("--heads", type=int, default=6); p.add_argument("--layers", type=int, default=8); p.add_argument("--vocab", type=int, default=1024); p.add_argument("--text-tokens", type=int, default=0)
    p.add_argument("--minutes", type=float, default=1); p.add_argument("--total", type=float, default=1); p.add_argument("--warm", type=float, default=0.1); p.add_argument("--floor", type=float, default=0.02)
    p.add_argument("--batch", type=int, default=2); p.add_argument("--lr", type=float, default=1e-3); p.add_argument("--every", type=float, default=20); p.add_argument("--crop", type=lambda t: tuple(map(int, t.split("x"))), default=(10**6, 10**6))
    p.add_argument("--muon", action="store_true"); p.add_argument("--muon-gain", type=float, default=1.0); p.add_argument("--last", action="store_true"); p.add_argument("--compile", action="store_true"); p.add_argument("--freeze-mix", action="store_true"); p.add_argument("--ema", type=float, default=0.999); p.add_argument("--drop-both", type=float, default=0.1)
    p.add_argument("--shots", type=int, default=6); p.add_argument("--steps", type=lambda t: [int(x) for x in t.split(",")], default=[4]); p.add_argument("--guidance", default="distilled")
    a = p.parse_args(); a.work.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    if DEV.type == "cuda": torch.cuda.set_device(DEV)
    if WORLD > 1: dist.init_process_group("nccl", device_id=DEV)
    {"data": data, "vae": vae, "latents": latents, "towers": towers, "joint": joint, "eval": evaluate, "old": old}[a.stage](a)
    if WORLD > 1: dist.destroy_process_group()
