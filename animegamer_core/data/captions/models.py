"""Captioners on this machine: a vision model through transformers, and sidecar files that need no model.

InternVL, Qwen-VL, LLaVA and others are read from a local folder. In a sidecar `<film>.captions.jsonl` a person or a
generator described spans of a film, one line a span: {start, end, character, motion, background, adverb or adverbs,
stats}. adverbs: {level 1..5: word}. stats: {name: change in units}.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from ...endpoint import VARIED, Cancelled, CaptionerError, CaptionerUnavailable, Question, Reply
from ...game.life import STATS, Stat
from ...game.recall import names_of
from ...game.state import clean_text
from ...json_files import read_rows
from ...messages import quoted, shortened
from ..motion import LEVELS
from ..records import ClipRecord, Seconds, check_stats
from .replies import Caption, ReplyError, why_unfit

SIDECAR = ".captions.jsonl"  # instead of the film's suffix
LEAST = 0.5  # of a clip that its span covers
CLOSENESS = 1e-6  # seconds: times are sums of floats
_LEVELS = tuple(map(str, range(1, LEVELS + 1)))
_Names = Annotated[list[str], msgspec.Meta(min_length=1)]


def sidecar_of(film: Path) -> Path:
    """The sidecar file of a film, as `pond.captions.jsonl` next to `pond.mp4`."""
    return film.with_suffix(SIDECAR)


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


class LocalModel:
    """Answers questions one at a time. Code in a model folder is never run."""

    def __init__(self, settings: LocalSettings) -> None:
        self.name = f"transformers {Path(settings.model).resolve().name}"
        self.settings = settings
        self._lock = threading.Lock()
        self._processor, self._model = _load(settings)

    def answer(self, question: Question, attempt: int, stop: threading.Event) -> Reply:
        """The model's most likely reply; from the second attempt on a sample with the attempt as seed."""
        import torch
        from transformers import StoppingCriteriaList

        def stopped(ids_BL: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
            return torch.full((len(ids_BL),), stop.is_set(), device=ids_BL.device)

        options = {"max_new_tokens": self.settings.max_tokens, "stopping_criteria": StoppingCriteriaList([stopped])}
        varied = {"do_sample": True, "temperature": VARIED, "top_p": 1.0, "top_k": 0}
        options |= varied if attempt > 1 else {"do_sample": False}
        devices = [self._model.device] if self._model.device.type == "cuda" else []
        with self._lock:  # generate() is not thread-safe, and memory is for one question
            if stop.is_set():
                raise Cancelled("the run was stopped")
            try:
                inputs = self._inputs(question)
                # Sampling has the attempt as seed, and leaves the process's own random state unchanged.
                with torch.inference_mode(), torch.random.fork_rng(devices=devices):
                    torch.manual_seed(attempt)
                    ids_BL = self._model.generate(**inputs, **options)
            except torch.cuda.OutOfMemoryError as error:
                raise CaptionerUnavailable(f"{self.name}: the device ran out of memory") from error
            except (RuntimeError, ValueError, IndexError) as error:
                raise CaptionerError(f"{self.name} cannot answer: {shortened(error)}") from error
        if stop.is_set():
            raise Cancelled("the run was stopped")
        said = ids_BL[0, inputs["input_ids"].shape[1] :]
        text = self._processor.decode(said, skip_special_tokens=True)
        problem = "" if len(said) < self.settings.max_tokens else "the reply was cut off at the token limit"
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
        why = shortened(error)
        raise ValueError(f"{folder}: no vision model that transformers can open on {device} ({why})") from error
    if not getattr(processor, "chat_template", None):
        raise ValueError(f"{folder} has no chat template; choose an instruction-tuned model")
    return processor, model.eval()


class Span(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a sidecar: what a film shows from `start` to `end`, in seconds. ValueError for words that do not fit in
    an instruction."""

    start: Seconds
    end: Seconds
    character: str | _Names
    motion: str
    background: str
    stats: dict[str, int]
    adverb: str | None = None
    adverbs: dict[str, str] | None = None

    def __post_init__(self) -> None:
        if not self.start < self.end:
            raise ValueError(f"start {self.start} is not before end {self.end}")
        if (self.adverb is None) == (self.adverbs is None):
            raise ValueError("expected either adverb (a word) or adverbs ({level: word})")
        if sorted(self.by_level) != list(_LEVELS):
            raise ValueError(
                f"adverbs has {shortened(', '.join(self.by_level))}; expected a word for {', '.join(_LEVELS)}"
            )
        words = [("motion", self.motion), ("background", self.background)]
        words += [("character", name) for name in self.names or ("",)]
        words += [(f"adverb of level {level}", word) for level, word in self.by_level.items()]
        for key, text in words:
            if problem := why_unfit(text):
                raise ValueError(f"{key} {quoted(text)} {problem}")

    @property
    def names(self) -> tuple[str, ...]:
        """The characters, the main one first."""
        if isinstance(self.character, str):  # people join names in a text; in a list, "Tom & Jerry" may be one
            return tuple(map(clean_text, re.split(r"[,、，&/+](?: *and )?| and ", self.character)))
        return names_of(clean_text(",".join(self.character)))

    @property
    def by_level(self) -> dict[str, str]:
        """An adverb for each motion level."""
        return dict.fromkeys(_LEVELS, self.adverb) if self.adverbs is None else self.adverbs


class ScriptCaptioner:
    """Captions clips by the spans of their films. sidecars: film name in the dataset -> sidecar file."""

    name = "script"

    def __init__(self, sidecars: Mapping[str, str | Path], stats: Sequence[Stat] = STATS) -> None:
        self._spans = {film: read_spans(Path(path), stats) for film, path in sidecars.items()}

    def caption(self, record: ClipRecord) -> Caption:
        """The caption of the span that covers most of the clip, the first of two halves, as the shot encoder reads the
        clip's first frame; ReplyError if that is less than half of it."""

        def covered(span: Span) -> float:
            return round(min(span.end, record.end) - max(span.start, record.start), 6)

        span = max(self._spans.get(record.film, ()), key=covered, default=None)
        if span is None or covered(span) < LEAST * (record.end - record.start) - CLOSENESS:
            found = f"no span of {record.film!r} covers half of {record.start:.2f} to {record.end:.2f} s"
            raise ReplyError(found, f"a line of {record.film}{SIDECAR} that does")
        return Caption(span.names, span.motion, span.background, span.by_level[str(record.motion_level)], span.stats)


def read_spans(path: Path, stats: Sequence[Stat] = STATS) -> list[Span]:
    """The spans of a sidecar, in its order; ValueError names a wrong line."""
    if not path.is_file():
        raise ValueError(f"{path} is missing; captioner `script` needs a file <film>{SIDECAR} next to each film")
    spans = []
    for number, span, problem in read_rows(path, Span):
        try:
            if span is None:
                raise ValueError(problem)
            check_stats(span.stats, stats)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}; correct the line") from error
        spans.append(span)
    return spans
