"""Parity: compares this code with recorded results of the published code, on the path that users' files take.

A golden folder holds weights under their published names (`NAME_state`) and inputs with their outputs (`NAME_io`), at
any sizes. What users do not see (masks, logits, hidden states, traces of the solver) is compared by the tests.
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer, models
from torch import Tensor

from ..game.life import PUBLISHED_RULES
from ..game.state import GameState, Turn
from ..media.video import to_uint8
from ..model.encoder import clip_pixels, image_tokens
from ..model.engine import GameEngine
from ..model.prompt import RELEASE_BASE
from ..spec import RELEASE
from ..weights import World
from ..weights.convert import convert

Gaps = Iterator[tuple[str, float, float]]  # row, tolerance, largest absolute difference of one case


@dataclass(frozen=True)
class Golden:
    """A golden folder, and a scratch folder for the worlds made of it."""

    folder: Path
    scratch: Path

    def tensors(self, name: str) -> dict[str, Tensor]:
        """The recorded tensors; floats that are stored narrow are widened to float32, which is exact."""
        tensors = load_file(self.folder / f"{name}.safetensors")
        return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}

    def facts(self, name: str) -> dict:
        """A JSON file of the folder; "P" holds the sizes."""
        return json.loads((self.folder / f"{name}.json").read_text(encoding="utf-8"))

    def world(self, *parts: str) -> World:
        """Write these parts as users download them, convert them, and open the world as the scripts run it."""
        files: dict[str, dict | str] = {"spec.json": self._sizes(parts)}
        if "decoder" in parts:
            state = {"module": self.tensors("dit_state"), "iteration": 1}
            files |= {"VDM_Decoder-X/1/mp_rank_00_model_states.pt": state, "VDM_Decoder-X/latest": "1"}
        if "vae" in parts:
            files["3d-vae.pt"] = {"state_dict": self.tensors("vae_state")}
        if "image_tower" in parts:
            bare = {key.split(".model.")[1]: value for key, value in self.tensors("clip_state").items()}
            files["CLIP-ViT-B-16-laion2B/open_clip_pytorch_model.bin"] = bare
        if "engine" in parts:
            # Nobody asks this tokenizer: the ids of the instructions are recorded.
            words = ["<unk>", "<s>", "</s>", *(f"piece-{index}" for index in range(3, RELEASE_BASE))]
            model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
            files["MLLM-X/pytorch_model.bin"] = self.tensors("mllm_state")
            files["MLLM-X/adapter_config.json"] = {"lora_alpha": self.facts("mllm_io")["lora_alpha"]}
            files["Mistral-7B-Instruct-v0.1/config.json"] = {"rope_theta": 10000.0}
            files["Mistral-7B-Instruct-v0.1/tokenizer.json"] = Tokenizer(model).to_str()
        source = Path(tempfile.mkdtemp(dir=self.scratch))
        for name, content in files.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix in (".pt", ".bin"):
                torch.save(content, path)
            else:
                path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return convert(source, source / "world", precision="keep", parts=parts).with_profile("as_run")

    def _sizes(self, parts: tuple[str, ...]) -> dict:
        """The sizes of these parts as a spec; those of the others are the released ones."""
        sizes = RELEASE.to_dict()
        decoder, encoder, rows = sizes["decoder"], sizes["encoder"], {"layers": "layers", "heads": "heads"}
        if "engine" in parts:
            P = self.facts("mllm_io")["P"]
            names = {**rows, "hidden": "hidden", "intermediate": "inter", "kv_heads": "kv_heads"}
            sizes["engine"] |= {ours: P[theirs] for ours, theirs in names.items()}
            sizes["state"]["width"], decoder["heads"], decoder["head_width"] = P["mm"], 1, P["mm"]
        if "vae" in parts:
            P = self.facts("vae_io")["P"]
            channels = [P["ch"] * factor for factor in P["ch_mult"]]
            decoder["vae"] |= {"channels": channels, "layers_per_block": P["num_res_blocks"]}
        if "decoder" in parts:
            P, pixels = self.facts("dit_io")["P"], 2 ** (len(decoder["vae"]["channels"]) - 1)
            decoder |= {"layers": P["num_layers"], "heads": P["num_attention_heads"], "time_width": P["time_embed_dim"]}
            decoder |= {side: P[f"latent_{side}"] * pixels for side in ("height", "width")}
            decoder["head_width"] = P["hidden_size"] // P["num_attention_heads"]
            sizes["state"]["width"], encoder["text"]["width"] = P["hidden_size"], P["text_hidden_size"]
        if "image_tower" in parts:
            P = self.facts("clip_io")["P"]
            encoder["image"] |= {name: P[name] for name in ("image_size", "patch", "width", *rows)}
            encoder["image"]["intermediate"] = 4 * P["width"]
        return sizes


def gap(ours: Tensor, theirs: Tensor) -> float:
    """The largest absolute difference; infinite for different shapes and for NaN."""
    if ours.shape != theirs.shape:
        return math.inf
    difference = float((ours.double() - theirs.double()).abs().max())
    return math.inf if math.isnan(difference) else difference


def transformer_gaps(golden: Golden) -> Gaps:
    """The shot encoder's mixing of text and image, and the transformer for all conditions, motions and timesteps."""
    world, recorded = golden.world("decoder", "encoder"), golden.tensors("dit_io")
    decoder = world.load_decoder(parts=("decoder",))
    mixed = world.load_encoder(parts=("encoder",)).mix(recorded["text"], recorded["ip"])
    yield "shot encoder", 2e-5, gap(mixed, recorded["enc.mix_emb"])
    guided = torch.cat([decoder.unconditional_ND[None], recorded["aroutput"]])
    conditions = {"enc": mixed, "adapt": recorded["aroutput"]}
    for name, case in golden.facts("dit_io")["cases"].items():
        if (theirs := recorded.get(f"{name}.out")) is not None:
            latents, count = recorded["x"].expand_as(theirs), len(theirs)
            timesteps, motion = torch.full((count,), case["timestep"]), torch.full((count,), float(case["flow"]))
            ours = decoder.velocity(latents, timesteps, conditions.get(name, guided), motion)
            yield "transformer", 2e-5, gap(ours, theirs)


def vae_gaps(golden: Golden) -> Gaps:
    """Decoding in chunks, and encoding in one pass."""
    recorded, decoder = golden.tensors("vae_io"), golden.world("vae").load_decoder(parts=("vae",))
    factor = decoder.vae.config.scaling_factor
    frames = decoder.decode_latents(recorded["decode.latent"].transpose(1, 2) * factor)
    latents = decoder.encode_frames(recorded["clip"].transpose(1, 2)) / factor
    yield "VAE decode", 2e-5, gap(frames.transpose(1, 2), recorded["decode.chunked"])
    yield "VAE encode", 2e-5, gap(latents.transpose(1, 2), recorded["encode.mean"])


def image_gaps(golden: Golden) -> Gaps:
    """Preprocessing of an image, and the image encoder's tokens."""
    recorded, world = golden.tensors("clip_io"), golden.world("image_tower")
    tower, size = world.load_encoder(parts=("image_tower",)).image_tower, world.spec.encoder.image.image_size
    pixels = clip_pixels((recorded["image_u8"] / 127.5 - 1)[None], size)
    yield "image preprocessing", 1e-5, gap(pixels, recorded["pre_small"])
    yield "image encoder", 1e-5, gap(image_tokens(tower, pixels), recorded["tokens"])


def engine_gaps(golden: Golden) -> Gaps:
    """Prompt, representation, levels and reply of every recorded turn, each from the recorded turns before it."""
    facts, recorded, engine = golden.facts("mllm_io"), golden.tensors("mllm_io"), recorded_engine(golden)
    for name, case in facts["cases"].items():
        past = recorded_past(facts, recorded, name)
        prompt = engine.prompt(past, case["instruction"])
        yield "prompts", 0.0, gap(prompt.ids_L, recorded[f"{name}.input_ids"])
        if "same_as" not in case:
            state = engine.predict(past, case["instruction"])
            reply = engine.reply(prompt, engine.past_states(past))
            yield "representations", 5e-5, gap(state.representation, recorded[f"{name}.vid_output"][0])
            right = (reply, list(engine.levels(state))) == (case["text"], case["states"])
            yield "replies and levels", 0.0, float(not right)


def recorded_engine(golden: Golden) -> GameEngine:
    """The engine, whose tokenizer knows the recorded ids of the instructions."""
    engine, ids = golden.world("engine").load_engine(), golden.facts("mllm_io")["instruction_token_ids"]
    setattr(engine.tokenizer, "encode_text", lambda text: ids[text][1:])  # noqa: B010  the first id is <TURN>
    return engine


def recorded_past(facts: dict, recorded: dict[str, Tensor], name: str) -> list[Turn]:
    """The turns that case `wWINDOW.turnNUMBER` reads; a window counts the turn itself, as in the scripts."""
    window, number = map(int, re.findall(r"\d+", name))
    past = []
    for earlier in range(max(1, number - window + 1), number):
        case = facts["cases"][f"w{window}.turn{earlier}"]
        motion, *change = case["states"]
        stored = recorded[f"{case.get('same_as', f'w{window}.turn{earlier}')}.vid_output"][0]
        state = GameState(stored, motion, dict(zip(PUBLISHED_RULES.names, change, strict=True)))
        past.append(Turn(earlier, case["instruction"], 0, state, {}))
    return past


def whole_gaps(golden: Golden) -> Gaps:
    """A whole decode: from a recorded engine output and recorded noise to frames."""
    facts, recorded = golden.facts("e2e_io"), golden.tensors("e2e_io")
    decoder = golden.world("decoder", "vae").load_decoder()
    state_1ND = golden.tensors("mllm_io")[facts["P"]["ar_key"]]
    noise = iter([recorded["x0"], *recorded["draws"][::2]])  # the scripts drew twice a step and used the second
    motion = torch.tensor([float(facts["flow"])])
    latents = decoder.sample(state_1ND, motion, (), steps=facts["P"]["steps"], draw=lambda: next(noise))
    frames = torch.from_numpy(to_uint8(decoder.decode_latents(latents)[0])).permute(0, 3, 1, 2)
    yield "whole decode (levels)", 1.0, gap(frames[facts["frames_kept"]], recorded["frames_u8"])


CHECKS: dict[Callable[[Golden], Gaps], tuple[str, ...]] = {  # the files that each check needs
    transformer_gaps: ("dit_state", "dit_io"),
    vae_gaps: ("vae_state", "vae_io"),
    engine_gaps: ("mllm_state", "mllm_io"),
    image_gaps: ("clip_state", "clip_io"),
    whole_gaps: ("dit_state", "vae_state", "mllm_io", "e2e_io"),
}


def parity(folder: str | Path) -> tuple[list[tuple[str, int, float, float]], list[str]]:
    """(part, cases, largest absolute difference, tolerance) for every part, and the files of the parts that lack some.

    ValueError if there is no such folder.
    """
    if not Path(folder).is_dir():
        raise ValueError(f"{folder}: no such folder; give a folder of golden fixtures")
    cases: dict[tuple[str, float], list[float]] = {}
    absent: set[str] = set()
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        golden = Golden(Path(folder), Path(scratch))
        for check, names in CHECKS.items():
            lacking = {name for name in names if not (golden.folder / f"{name}.safetensors").is_file()}
            absent |= lacking
            for part, tolerance, difference in () if lacking else check(golden):
                cases.setdefault((part, tolerance), []).append(difference)
    return [(part, len(found), max(found), tolerance) for (part, tolerance), found in cases.items()], sorted(absent)
