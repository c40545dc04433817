"""A vision model in this process: InternVL, Qwen-VL, LLaVA and others, from a local folder through transformers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...endpoint import VARIED, Cancelled, CaptionerError, CaptionerUnavailable, Question, Reply
from ...messages import brief
from ...spec import DTYPES


@dataclass(frozen=True)
class LocalSettings:
    """A vision model on this machine. model: a folder of transformers with safetensors. max_tokens: of one reply."""

    model: Path
    device: str | None = None
    """Transformers: cpu, cuda, cuda:1 or mps; unset: cuda if available."""
    dtype: str = "auto"
    """Transformers: auto (that of the stored weights), bfloat16, float16 or float32."""
    max_tokens: int = 256

    def __post_init__(self) -> None:
        if not (Path(self.model) / "config.json").is_file():
            raise ValueError(f"{self.model} has no config.json; give the folder of a downloaded vision model")
        if self.dtype not in ("auto", *DTYPES) or self.max_tokens < 1:
            raise ValueError(
                f"dtype {self.dtype!r}, max_tokens {self.max_tokens}; expected auto or one of {DTYPES}, at least 1"
            )


class LocalModel:
    """Answers questions one at a time. Code in a model folder is never run."""

    def __init__(self, settings: LocalSettings) -> None:
        self.name = f"transformers {Path(settings.model).resolve().name}"
        self.settings = settings
        self._lock = threading.Lock()
        self._processor, self._model = _load(settings)

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The model's most likely reply; from the second attempt on a sample with the attempt as seed."""
        with self._lock:  # generate() is not thread-safe, and memory is for one question
            if stop.is_set():
                raise Cancelled("the run was stopped")
            return self._generate(question, attempt, stop)

    def _generate(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        import torch

        try:
            inputs = self._inputs(question)
            # Sampling has the attempt as seed, and leaves the process's own random state unchanged.
            devices = [self._model.device] if self._model.device.type == "cuda" else []
            with torch.inference_mode(), torch.random.fork_rng(devices=devices):
                torch.manual_seed(attempt)
                ids_BL = self._model.generate(**inputs, **self._options(attempt, stop))
        except torch.cuda.OutOfMemoryError as error:
            raise CaptionerUnavailable(f"{self.name}: the device ran out of memory") from error
        except (RuntimeError, ValueError, IndexError) as error:
            raise CaptionerError(f"{self.name} cannot answer: {brief(error)}") from error
        if stop.is_set():
            raise Cancelled("the run was stopped")
        said = ids_BL[0, inputs["input_ids"].shape[1] :]
        ended = len(said) < self.settings.max_tokens or int(said[-1]) in self._ends()
        text = self._processor.decode(said, skip_special_tokens=True)
        problem = "" if ended else "the reply was cut off at the token limit"
        return Reply(text, problem, int(inputs["input_ids"].shape[1]), len(said))

    def _inputs(self, question: Question) -> Any:
        parts: list[dict[str, Any]] = []
        for number, picture in enumerate(question.pictures, start=1):
            parts += [{"type": "text", "text": f"Image-{number}:"}, {"type": "image", "image": picture}]
        message = {"role": "user", "content": [*parts, {"type": "text", "text": question.text}]}
        inputs = self._processor.apply_chat_template(
            [message], add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        return inputs.to(self._model.device, dtype=self._model.dtype)

    def _options(self, attempt: int, stop: threading.Event) -> dict[str, Any]:
        import torch
        from transformers import StoppingCriteriaList

        def stopped(ids_BL: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            return torch.full((len(ids_BL),), stop.is_set(), device=ids_BL.device)

        options = {"max_new_tokens": self.settings.max_tokens, "stopping_criteria": StoppingCriteriaList([stopped])}
        varied = {"do_sample": True, "temperature": VARIED, "top_p": 1.0, "top_k": 0}
        return {**options, **(varied if attempt > 1 else {"do_sample": False})}

    def _ends(self) -> tuple[int, ...]:
        ends = self._model.generation_config.eos_token_id
        return tuple(ends) if isinstance(ends, list | tuple) else (ends,)


def _load(settings: LocalSettings) -> tuple[Any, Any]:
    """The processor and the model; ValueError names a folder that cannot be used."""
    import torch
    from transformers import AutoModelForImageTextToText, AutoProcessor

    folder = str(settings.model)
    device = settings.device or ("cuda" if torch.cuda.is_available() else "cpu")
    known = {"local_files_only": True, "trust_remote_code": False}
    try:
        processor = AutoProcessor.from_pretrained(folder, **known)
        model = AutoModelForImageTextToText.from_pretrained(folder, dtype=settings.dtype, use_safetensors=True, **known)
        model = model.to(device)
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AssertionError) as error:  # no CUDA: an assertion
        why = brief(error)
        raise ValueError(f"{folder}: no vision model that transformers can open on {device} ({why})") from error
    if not getattr(processor, "chat_template", None):
        raise ValueError(f"{folder} has no chat template; choose an instruction-tuned model")
    return processor, model.eval()
