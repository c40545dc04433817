"""Piece 1 of Toybox 2: train the 16-channel VAE on drawn clips and some of the film. Resumes from /root/vae/state.pt."""
import argparse, io, json, math, os, random, struct, sys, threading, time
from concurrent.futures import ProcessPoolExecutor
import numpy as np, torch, torch.nn.functional as F
from animegamer_core.toybox.drawing.draw import draw_shot
from animegamer_core.data.motion import motion_value
from animegamer_core.toybox.dataset import DatasetGames
from diffusers import AutoencoderKLCogVideoX

T0 = time.monotonic()
def say(*a): print(f"[{time.monotonic()-T0:6.1f}]", *a, flush=True)

from animegamer_core.toybox.world import AMPLITUDES, CHARACTERS, COLOURS, MOTIONS, PLACES, PROPS, TIMES, UNSEEN_PAIRS, Scene
C, M, P = tuple(CHARACTERS), tuple(MOTIONS), PLACES
# One in six of each kind of pair never occurs in training; a latin square over the tables' order.
HELD_CM = {(C[i], M[j]) for i in range(6) for j in range(12) if (i + j) % 6 == 0}
HELD_CP = {(C[i], P[j]) for i in range(6) for j in range(8) if (i + 2 * j + j // 3) % 6 == 1}
HELD_MP = {(M[i], P[j]) for i in range(12) for j in range(8) if (i + j) % 6 == 2}

def scene(number, split="train"):
    rng = random.Random(f"toybox2/vae/{split}/{number}")
    while True:
        c, m, p = rng.choice(C), rng.choice(M), rng.choice(P)
        if (c, m) in HELD_CM or (c, p) in HELD_CP or (m, p) in HELD_MP: continue
        partner = None
        if MOTIONS[m].partner:
            partner = rng.choice([n for n in C if n != c and CHARACTERS[n].film == CHARACTERS[c].film])
            if m == "hug" and c in ("Yuzu", "Beni"): continue
        shown = rng.random() < .62
        amp = math.exp(rng.uniform(math.log(AMPLITUDES[0]), math.log(AMPLITUDES[1])))
        if rng.random() < .25: amp = rng.uniform(8, 20)   # the quick shots are the hard ones
        return Scene(CHARACTERS[c].film, c, partner, m, p, rng.choice(TIMES), rng.choice(PROPS) if shown else None,
                     rng.choice(tuple(COLOURS)) if shown else None, False, amp, rng.getrandbits(56) * 4)

def draw(number):
    from animegamer_core.toybox.drawing.draw import draw_shot
    return np.asarray(draw_shot(scene(number)))

def held(index_scene):
    from animegamer_core.toybox.drawing.draw import draw_shot
    from animegamer_core.data.motion import motion_value
    clip = np.asarray(draw_shot(index_scene)); return clip, motion_value(clip)

def film_frames(path):
    from PIL import Image
    out, data, at = [], open(path, "rb").read(), 0
    while at < len(data):
        n, = struct.unpack_from("<I", data, at); out.append(np.asarray(Image.open(io.BytesIO(data[at+4:at+4+n])).convert("RGB"))); at += 4 + n
    return np.stack(out)

def edges(x): return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]

def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--until", type=float, default=560); ap.add_argument("--steps", type=int, default=12000)
    ap.add_argument("--batch", type=int, default=8); ap.add_argument("--clips", type=int, default=9000)
    ap.add_argument("--lr", type=float, default=1.2e-3); ap.add_argument("--film", default=".gpu/bunny.webps")
    ap.add_argument("--out", default=os.environ.get("OUT", "/tmp/out")); ap.add_argument("--state", default="/root/vae")
    ap.add_argument("--device", default="cuda"); ap.add_argument("--eager", action="store_true")
    ap.add_argument("--eval", type=int, default=240); ap.add_argument("--workers", type=int, default=15); ap.add_argument("--init")
    o = ap.parse_args(); os.makedirs(o.state, exist_ok=True); os.makedirs(o.out, exist_ok=True)
    dev = o.device
    pool = ProcessPoolExecutor(o.workers)
    list(pool.map(abs, range(4 * o.workers)))  # fork before threads and CUDA exist
    clips = torch.empty(o.clips, 17, 96, 144, 3, dtype=torch.uint8, device=dev); filled = [0]
    cache = f"{o.state}/clips.npy"
    if os.path.exists(cache):
        a = np.load(cache, mmap_mode="r"); n = min(len(a), o.clips); clips[:n] = torch.from_numpy(np.array(a[:n])).to(dev); filled[0] = n; say("clips from cache", n)
    def fill():
        for i, clip in zip(range(filled[0], o.clips), pool.map(draw, range(filled[0], o.clips), chunksize=8)):
            clips[i] = torch.from_numpy(clip).to(dev); filled[0] = i + 1
    threading.Thread(target=fill, daemon=True).start()
    film = None
    if os.path.exists(o.film):
        film = torch.from_numpy(film_frames(o.film)); say("film", tuple(film.shape)); 
        cut = (film[1:].float() - film[:-1].float()).abs().mean((1, 2, 3)) > 28
        ok = [i for i in range(len(film) - 17) if not cut[i:i+16].any()]
        test = [i for i in ok if (i // 160) % 8 == 7 and ((i + 16) // 160) % 8 == 7]; test_set = {k for i in test for k in range(i, i + 17)}
        train = [i for i in ok if (i // 160) % 8 != 7 and ((i + 16) // 160) % 8 != 7]; film = film.to(dev); say("film windows", len(train), len(test))
    torch.backends.cudnn.benchmark = True; torch.set_float32_matmul_precision("high")
    from diffusers import AutoencoderKLCogVideoX
    torch.manual_seed(0)
    vae = AutoencoderKLCogVideoX(down_block_types=("CogVideoXDownBlock3D",) * 3, up_block_types=("CogVideoXUpBlock3D",) * 3,
        block_out_channels=(32, 64, 96), layers_per_block=1, latent_channels=16, norm_num_groups=8, scaling_factor=1.0,
        sample_height=96, sample_width=144, temporal_compression_ratio=4)
    vae.num_sample_frames_batch_size = 16
    say("down/up", vae.config.block_out_channels, sum(p.numel() for p in vae.parameters()))
    vae.to(dev).train()
    params = [p for p in vae.parameters()]
    opt = torch.optim.AdamW(params, lr=o.lr, betas=(.9, .99), weight_decay=1e-4, fused=dev == "cuda")
    ema = [p.detach().clone() for p in params]; step = 0
    st = f"{o.state}/state.pt"
    if os.path.exists(st):
        s = torch.load(st, map_location=dev, weights_only=True); vae.load_state_dict(s["vae"]); opt.load_state_dict(s["opt"]); ema = s["ema"]; step = s["step"]; say("resumed at", step)
    elif o.init:
        s = torch.load(o.init, map_location=dev, weights_only=True); vae.load_state_dict({k: v.float() for k, v in s["vae"].items()}); ema = [p.detach().clone() for p in params]; step = s["step"]; say("weights of step", step)
    if not o.eager:
        vae.encoder.forward = torch.compile(vae.encoder.forward); vae.decoder.forward = torch.compile(vae.decoder.forward)
    while filled[0] < min(300, o.clips): time.sleep(.2)
    say("clips", filled[0])
    g = torch.Generator(device="cpu").manual_seed(1000 + step)
    def batch():
        if film is not None and torch.rand((), generator=g) < .12:
            idx = [train[int(torch.randint(len(train), (), generator=g))] for _ in range(o.batch)]
            x = torch.stack([film[i:i+17] for i in idx])
        else:
            x = clips[torch.randint(filled[0], (o.batch,), generator=g).to(dev)]
        if torch.rand((), generator=g) < .5: x = x.flip(3)
        return x.to(torch.float32).permute(0, 4, 1, 2, 3).div_(127.5).sub_(1)
    def rate(s):
        warm = min(1, (s + 1) / 200); t = s / o.steps
        return o.lr * warm * (.01 + .99 * .5 * (1 + math.cos(math.pi * min(1, t))))
    t_log, n_log = time.monotonic(), 0; last = {}
    while step < o.steps and time.monotonic() - T0 < o.until:
        for group in opt.param_groups: group["lr"] = rate(step)
        x = batch()
        with torch.autocast(dev, torch.bfloat16):
            post = vae.encode(x).latent_dist
            z = post.mean + post.std * torch.randn_like(post.mean)
            y = vae.decode(z).sample
        y = y.float(); d = y - x
        l1 = d.abs().mean(); mse = d.square().mean()
        mot = ((y[:, :, 1:] - y[:, :, :-1]) - (x[:, :, 1:] - x[:, :, :-1])).abs().mean()
        xe, ye = x.permute(0, 2, 1, 3, 4).flatten(0, 1), y.permute(0, 2, 1, 3, 4).flatten(0, 1)
        e = 0.
        for scale in range(3):
            for u, v in zip(edges(xe), edges(ye)): e = e + (u - v).abs().mean()
            if scale < 2: xe, ye = F.avg_pool2d(xe, 2), F.avg_pool2d(ye, 2)
        kl = .5 * (post.mean.float().square() + post.logvar.float().exp() - 1 - post.logvar.float()).mean()
        loss = l1 + mse + .3 * e + .3 * mot + 1e-4 * kl
        opt.zero_grad(set_to_none=True); loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(params, 1.0)
        if torch.isfinite(norm): opt.step()
        decay = min(.9995, (step + 1) / (step + 10))
        with torch.no_grad(): torch._foreach_lerp_(ema, params, 1 - decay)
        step += 1; n_log += 1
        if step % 500 == 0 or step in (20, 100):
            if dev == "cuda": torch.cuda.synchronize()
            now = time.monotonic()
            say(f"step {step} l1 {l1:.4f} psnr {10*math.log10(4/mse.item()):.2f} edge {e:.4f} kl {kl:.1f} norm {norm:.3f} {(now-t_log)/n_log*1000:.1f} ms/step clips {filled[0]}")
            t_log, n_log = now, 0
    say("stop at", step)
    torch.save({"vae": vae.state_dict(), "opt": opt.state_dict(), "ema": ema, "step": step}, st)
    if not os.path.exists(cache) or filled[0] > len(np.load(cache, mmap_mode="r")) + 500:
        np.save(cache, clips[:filled[0]].cpu().numpy())
    with torch.no_grad():
        for p, q in zip(params, ema): p.copy_(q)
    vae.eval()
    torch.save({"vae": {k: v.to(torch.float16) for k, v in vae.state_dict().items()}, "step": step}, f"{o.out}/vae-ema-fp16.pt")
    from animegamer_core.toybox.dataset import DatasetGames
    scenes = [s for row in DatasetGames(games=0, held_out=24).scenes().values() for s in row][:o.eval]
    from animegamer_core.toybox.calibration import DATA_VALUES
    rows = []
    edges4 = json.load(open(".gpu/levels.json"))
    for s0 in range(0, len(scenes), 16):
        got = list(pool.map(held, scenes[s0:s0+16]))
        x = torch.from_numpy(np.stack([c for c, _ in got])).to(dev).float().permute(0, 4, 1, 2, 3).div_(127.5).sub_(1)
        with torch.no_grad(), torch.autocast(dev, torch.bfloat16, enabled=False):
            y = vae.decode(vae.encode(x).latent_dist.mode()).sample.clamp(-1, 1)
        mse = (x - y).square().mean((1, 2, 3, 4)); 
        def sharp(v): a, b = edges(v); return a.abs().mean((1, 2, 3, 4)) + b.abs().mean((1, 2, 3, 4))
        for k, (_, value) in enumerate(got):
            level = 1 + sum(value > q for q in edges4); rows.append((level, 10 * math.log10(4 / mse[k].item()), (sharp(y)[k] / sharp(x)[k]).item()))
    for level in range(1, 6):
        r = [q for q in rows if q[0] == level]
        if r: say(f"level {level} n {len(r)} psnr {sum(q[1] for q in r)/len(r):.2f} sharp {sum(q[2] for q in r)/len(r):.3f}")
    say(f"mean of all psnr {sum(q[1] for q in rows)/len(rows):.2f}")
    if film is not None and test:
        ps = []
        for i in test[::17][:40]:
            x = film[i:i+17][None].float().permute(0, 4, 1, 2, 3).div(127.5).sub(1)
            with torch.no_grad(): y = vae.decode(vae.encode(x).latent_dist.mode()).sample.clamp(-1, 1)
            ps.append(10 * math.log10(4 / (x - y).square().mean().item()))
        say(f"film held out psnr {sum(ps)/len(ps):.2f} of {len(ps)}")
    os._exit(0)

if __name__ == "__main__": main()
