"""A folder of golden fixtures; writes its weights in the layout of the files that users download."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file
from torch import Tensor

from ...checkpoint import CheckpointError, World
from ...checkpoint.convert import convert
from ...checkpoint.storage import read_json
from ...model.prompt import RELEASE_BASE, GameTokenizer
from .rows import gap

MISTRAL = "Mistral-7B-Instruct-v0.1"
TOKENIZER_FILES = ("tokenizer.model", "tokenizer.json")


class Golden:
    """One part of a golden folder (`NAME_io` or `NAME`): its recorded tensors and its JSON file."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name

    @cached_property
    def facts(self) -> dict:
        """The content of the JSON file; "P" holds the fixture's parameters."""
        return read_json(self.folder / f"{self.name}.json")

    @property
    def sizes(self) -> dict:
        """The fixture's parameters, such as its sizes."""
        return self.facts["P"]

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """The recorded tensors; narrow floats are widened to float32, which is exact, and float64 is kept."""
        return read_tensors(self.folder / f"{self.name}.safetensors")

    def __getitem__(self, key: str) -> Tensor:
        return self.tensors[key]

    def gaps(self, ours: Mapping[str, Callable[[], Tensor]]) -> list[float]:
        """The differences from the recorded tensors; only tensors that were recorded are computed."""
        return [gap(compute(), self[key]) for key, compute in ours.items() if key in self.tensors]


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a fixture file, with narrow floats widened to float32."""
    tensors = load_file(path)
    narrow = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)
    return {key: value.float() if value.dtype in narrow else value for key, value in tensors.items()}


def present(folder: Path, *names: str) -> bool:
    """Whether all these fixture files are in the folder."""
    return all((folder / name).is_file() for name in names)


@dataclass(frozen=True)
class ParityRun:
    """The golden folder, a scratch folder, and the folder of a published tokenizer, if any."""

    golden: Path
    scratch: Path
    tokenizer: Path | None

    def world(self, name: str, *parts: str) -> World:
        """Convert the scratch folder `name` like a user's download, and open it with profile `as_run`."""
        world = convert(self.scratch / name, self.scratch / f"{name}-world", precision="keep", parts=parts)
        return world.with_profile("as_run")

    def publish_decoder(self, name: str) -> None:
        """Write VDM_Decoder-Golden/, with some of the other content that DeepSpeed saves with weights."""
        path = self.scratch / name / "VDM_Decoder-Golden" / "1" / "mp_rank_00_model_states.pt"
        beside = {"iteration": 1, "optimizer": None, "np_rng_state": numpy.random.RandomState(0).get_state()}
        _save(path, {"module": read_tensors(self.golden / "dit_state.safetensors"), **beside})
        path.parent.with_name("latest").write_text("1", encoding="utf-8")

    def publish_vae(self, name: str) -> None:
        """Write 3d-vae.pt."""
        _save(self.scratch / name / "3d-vae.pt", {"state_dict": read_tensors(self.golden / "vae_state.safetensors")})

    def publish_engine(self, name: str, facts: Mapping, replaced: Mapping[str, Tensor] | None = None) -> None:
        """Write MLLM-Golden/ and the Mistral folder. replaced: used instead of the tensors of the same names."""
        folder, sizes = self.scratch / name / "MLLM-Golden", facts["P"]
        tensors = read_tensors(self.golden / "mllm_state.safetensors")
        _save(folder / "pytorch_model.bin", {**tensors, **(replaced or {})})
        if "lora_alpha" in facts:
            _write_json(folder / "adapter_config.json", {"lora_alpha": facts["lora_alpha"]})
        mistral = self.scratch / name / MISTRAL
        config = {
            "num_attention_heads": sizes["heads"],
            "num_key_value_heads": sizes["kv_heads"],
            "max_position_embeddings": 32768,
            "rope_theta": 10000.0,
            "rms_norm_eps": 1e-5,
        }
        _write_json(mistral / "config.json", config)
        self._publish_tokenizer(mistral)

    def publish_image_tower(self, name: str, sizes: Mapping) -> None:
        """Write CLIP-ViT-B-16-laion2B/ in open_clip's format."""
        folder = self.scratch / name / "CLIP-ViT-B-16-laion2B"
        tensors = read_tensors(self.golden / "clip_state.safetensors")
        bare = {key.removeprefix("clip_img_encoder.model."): value for key, value in tensors.items()}
        _save(folder / "open_clip_pytorch_model.bin", bare)
        vision = {"head_width": sizes["width"] // sizes["heads"]}
        _write_json(folder / "open_clip_config.json", {"model_cfg": {"vision_cfg": vision}})

    def _publish_tokenizer(self, mistral: Path) -> None:
        """Write the base tokenizer into Mistral's folder; without one, a placeholder with as many entries."""
        found = [name for name in TOKENIZER_FILES if self.tokenizer and (self.tokenizer / name).is_file()]
        for name in found:
            (mistral / name).write_bytes((self.tokenizer / name).read_bytes())
        if not found:
            from tokenizers import Tokenizer, models

            entries = ["<unk>", "<s>", "</s>", *(f"piece-{index}" for index in range(3, RELEASE_BASE))]
            words = models.WordLevel({word: index for index, word in enumerate(entries)}, unk_token="<unk>")
            Tokenizer(words).save(str(mistral / "tokenizer.json"))


class RecordedTokenizer(GameTokenizer):
    """Stands in for the published tokenizer; knows only the recorded instructions and the tags."""

    def __init__(self, tokenizer: GameTokenizer, recorded: Mapping[str, list[int]]) -> None:
        super().__init__(tokenizer.backend)
        self._recorded = recorded

    def encode_text(self, text: str) -> list[int]:
        """The recorded ids without the tag at their beginning; CheckpointError for any other text."""
        if text not in self._recorded:
            raise CheckpointError(f"the fixture records no tokens of {text!r}; give the published tokenizer")
        return self._recorded[text][1:]


def _save(path: Path, content: Mapping) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(content, path)


def _write_json(path: Path, values: Mapping) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
