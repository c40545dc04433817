"""Parity of the engine: prompts, representations, first logits, replies and parsed states."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ...life import PUBLISHED_RULES
from ...model.engine import GameEngine, additive_mask
from ...model.prompt import TurnPrompt, parse_reply
from ...spec import PROFILES
from ...state import GameState, Turn
from .golden import Golden, ParityRun, RecordedTokenizer, present, read_tensors
from .rows import Row, gap, graded_row, mismatch, row

ENGINE, EXACT = 5e-5, 0.0
CHAINED = 5e-4  # tolerance per earlier turn of a chain: errors of 4e-5 a turn grew to 2.3e-4 with recorded weights
AS_RUN = PROFILES["as_run"]
ALIGNED = replace(AS_RUN, aligned_queries=True)
WITH_STATES = replace(AS_RUN, text_sees_states=True)
ROWS = {  # key of Findings.gaps -> (row, tolerance)
    "tokens": ("instruction tokens", EXACT),
    "prompts": ("prompts and masks", EXACT),
    "hidden": ("hidden states as run", ENGINE),
    "states": ("representations as run", ENGINE),
    "aligned": ("representations aligned", ENGINE),
    "logits": ("first logits as run", ENGINE),
    "logits_with": ("first logits with states", ENGINE),
    "replies": ("replies and states", EXACT),
    "parsed": ("reading of replies", EXACT),
}
CHAIN = "chain"
WIDE, WIDE_CHAIN = "representations at full width", "chain at full width"


@dataclass(frozen=True)
class Played:
    """A recorded turn that was played again: its prompt, the past states (K, N, D) that it read, and its new state.

    before: the number of earlier turns in the game.
    """

    name: str
    before: int
    prompt: TurnPrompt
    past_KND: Tensor
    state: GameState


@dataclass
class Findings:
    """Differences by row. chain: pairs of a difference and its tolerance."""

    gaps: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    chain: list[tuple[float, float]] = field(default_factory=list)

    def rows(self) -> list[Row]:
        """All rows of the engine; a row without differences is absent."""
        exact = [row(name, tolerance, self.gaps[key]) for key, (name, tolerance) in ROWS.items()]
        return [*exact, graded_row(CHAIN, chain_tolerance(1), self.chain)]


def chain_tolerance(before: int) -> float:
    """The tolerance of a turn that reads the engine's own outputs. before: the number of earlier turns."""
    return ENGINE + CHAINED * before


def engine_rows(bench: ParityRun) -> list[Row]:
    """Play every recorded turn from the recorded earlier states; for row `chain`, from the engine's own outputs."""
    findings, golden = Findings(), Golden(bench.golden, "mllm_io")
    if present(bench.golden, "mllm_io.json"):
        cases = golden.facts["parse_cases"]
        findings.gaps["parsed"] = [mismatch(list(parse_reply(text)), levels) for text, levels in cases]
    if not present(bench.golden, "mllm_state.safetensors", "mllm_io.safetensors", "mllm_io.json"):
        return findings.rows()
    bench.publish_engine("mllm", golden.facts)
    engine = _engine(bench, "mllm", golden.facts)
    recorded = golden.facts["instruction_token_ids"]
    if bench.tokenizer is not None:
        opening = [engine.tokenizer.token("<TURN>")]
        findings.gaps["tokens"] = [
            mismatch(opening + engine.tokenizer.encode_text(text), ids) for text, ids in recorded.items()
        ]
    for window, turns in _windows(golden.facts).items():
        for played in _play_recorded(engine, golden, window, turns):
            _compare(engine, golden, played, findings.gaps)
        for played in _play_chain(engine, window, turns):
            _compare_chained(golden, played, findings)
    return findings.rows()


def wide_rows(bench: ParityRun) -> list[Row]:
    """Check the projections at the published width, on the same small Mistral.

    Only some rows of each representation were recorded, so turns with a past can only be compared in a chain.
    """
    files = "mllm1920_io.safetensors", "mllm1920_io.json", "mllm1920_resamplers.safetensors"
    if not present(bench.golden, *files, "mllm_state.safetensors", "mllm_io.json"):
        return [row(WIDE, ENGINE, []), graded_row(WIDE_CHAIN, chain_tolerance(1), [])]
    golden, small = Golden(bench.golden, "mllm1920_io"), Golden(bench.golden, "mllm_io")
    stored = read_tensors(bench.golden / files[2])  # matrices are stored as 4 W in float8
    projections = {key: value / 4 if key.endswith(".weight") else value for key, value in stored.items()}
    bench.publish_engine("mllm1920", small.facts, projections)
    engine = _engine(bench, "mllm1920", small.facts)
    turns = dict(enumerate(golden.facts["lines"], 1))
    found, chain = [], []
    for played in _play_chain(engine, golden.facts["window"], turns):
        gaps = _wide_gaps(golden, played)
        if len(played.past_KND):
            chain += [(difference, chain_tolerance(played.before)) for difference in gaps]
        else:
            found += gaps
    return [row(WIDE, ENGINE, found), graded_row(WIDE_CHAIN, chain_tolerance(1), chain)]


def _wide_gaps(golden: Golden, played: Played) -> list[float]:
    """Differences in a representation's recorded rows, and in the root mean square of every row."""
    states_ND, prefix = played.state.representation, f"{played.name}.vid_output_"
    rows = gap(states_ND[golden.facts["rows"]], golden[prefix + "rows"])
    return [rows, gap(states_ND.square().mean(1).sqrt(), golden[prefix + "row_rms"])]


def _engine(bench: ParityRun, name: str, facts: Mapping) -> GameEngine:
    engine = bench.world(name, "engine").load_engine()
    if bench.tokenizer is None:
        engine.tokenizer = RecordedTokenizer(engine.tokenizer, facts["instruction_token_ids"])
    return engine


def _windows(facts: Mapping) -> dict[int, dict[int, str]]:
    """`max_window` -> turn number -> instruction, for all recorded cases; missing ones are from the played lines."""
    windows: dict[int, dict[int, str]] = defaultdict(dict)
    for name, case in facts["cases"].items():
        window, turn = _window_and_turn(name)
        windows[window][turn] = case["instruction"]
    lines = dict(enumerate(facts["P"]["lines"], 1))
    return {
        window: {turn: turns.get(turn) or lines[turn] for turn in range(1, max(turns) + 1)}
        for window, turns in windows.items()
    }


def _play_recorded(engine: GameEngine, golden: Golden, window: int, turns: Mapping[int, str]) -> Iterator[Played]:
    """Play each turn from the recorded states before it, so that rounding errors do not add up.

    A turn for which some of these states are missing is left out; it is only compared in the chain.
    """
    for number in sorted(turns):
        past = [_recorded(golden, window, earlier, turns[earlier]) for earlier in _read_by(number, window)]
        if None not in past:
            yield _play(engine, window, number, turns[number], past)


def _play_chain(engine: GameEngine, window: int, turns: Mapping[int, str]) -> Iterator[Played]:
    """Play the turns in order, each from the engine's own outputs, as in a game."""
    history: dict[int, Turn] = {}
    for number, instruction in sorted(turns.items()):
        played = _play(engine, window, number, instruction, [history[earlier] for earlier in _read_by(number, window)])
        yield played
        history[number] = Turn(number, instruction, 0, played.state, {})


def _read_by(number: int, window: int) -> range:
    """The numbers of the turns that a turn reads; `window` includes the turn itself, as in the scripts."""
    return range(max(1, number - window + 1), number)


def _play(engine: GameEngine, window: int, number: int, instruction: str, past: Sequence[Turn]) -> Played:
    engine.profile = AS_RUN
    prompt = engine.prompt_of(past, instruction)
    state = engine.predict(past, instruction)
    return Played(f"w{window}.turn{number}", number - 1, prompt, engine.past_states(past), state)


def _recorded(golden: Golden, window: int, number: int, instruction: str) -> Turn | None:
    """A turn as recorded with this window, or with one that reads the same past; None if there is none."""
    for name in golden.facts["cases"]:
        other, turn = _window_and_turn(name)
        if turn != number or f"{name}.vid_output" not in golden.tensors:
            continue
        if other == window or min(other, window) >= number:  # both windows cover all turns before it
            motion, *change = golden.facts["cases"][name]["states"]
            changes = dict(zip(PUBLISHED_RULES.names, change, strict=True))
            state = GameState(golden[f"{name}.vid_output"][0], motion, changes)
            return Turn(number, instruction, 0, state, {})
    return None


def _window_and_turn(name: str) -> tuple[int, int]:
    window, turn = re.fullmatch(r"w(\d+)\.turn(\d+)", name).groups()
    return int(window), int(turn)


def _compare_chained(golden: Golden, played: Played, findings: Findings) -> None:
    """Compare the prompt, and the representation if the turn read the engine's own outputs."""
    if played.name in golden.facts["cases"]:
        findings.gaps["prompts"].append(max(_prompt_gaps(golden, played.name, played.prompt)))
    theirs = golden.tensors.get(f"{played.name}.vid_output")
    if theirs is not None and len(played.past_KND):
        difference = gap(played.state.representation, theirs[0])
        findings.chain.append((difference, chain_tolerance(played.before)))


def _compare(engine: GameEngine, golden: Golden, played: Played, gaps: dict[str, list[float]]) -> None:
    """Compare one turn with its recorded results. If it is `same_as` another turn, only the prompt was recorded."""
    name, prompt = played.name, played.prompt
    case = golden.facts["cases"].get(name)
    if case is None or "same_as" in case:
        return
    passes = {
        "states": ("vid_output", AS_RUN, lambda: played.state.representation),
        "aligned": ("vid_aligned", ALIGNED, lambda: engine.represent(prompt, played.past_KND)),
        "hidden": ("hidden_tail", AS_RUN, lambda: _hidden_tail(engine, played)),
        "logits": ("first_logits_as_run", AS_RUN, lambda: _logits(engine, golden, played)),
        "logits_with": ("first_logits_with_embeds", WITH_STATES, lambda: _logits(engine, golden, played)),
    }
    for key, (suffix, profile, compute) in passes.items():
        theirs = golden.tensors.get(f"{name}.{suffix}")
        if theirs is not None:
            engine.profile = profile
            ours = compute()
            gaps[key].append(gap(ours, theirs[0] if theirs.ndim > ours.ndim else theirs))
    for field_name, profile in (("text", AS_RUN), ("text_with_embeds", WITH_STATES)):
        engine.profile = profile
        gaps["replies"].append(mismatch(engine.reply(prompt, played.past_KND), case[field_name]))
    gaps["replies"].append(mismatch(list(engine.levels(played.state)), case["states"]))


def _hidden_tail(engine: GameEngine, played: Played) -> Tensor:
    """(N + 3, H): the final hidden states from the first query on, from which the scripts take the representation."""
    seen = []
    hook = engine.llm.model.register_forward_hook(lambda _, __, output: seen.append(output.last_hidden_state[0]))
    try:
        engine.represent(played.prompt, played.past_KND)
    finally:
        hook.remove()
    return seen[0][int(played.prompt.query_L.nonzero()[0]) :]


def _logits(engine: GameEngine, golden: Golden, played: Played) -> Tensor:
    return engine.first_logits(played.prompt, played.past_KND)[golden.facts["logit_ids"]]


def _prompt_gaps(golden: Golden, name: str, prompt: TurnPrompt) -> Iterator[float]:
    """Differences in the ids, the scripts' three masks (-1 marks a query), and the resulting attention mask."""
    yield _exact(prompt.ids_L, golden[f"{name}.input_ids"])
    yield _exact(prompt.query_L, golden[f"{name}.ids_gen_mask"])
    yield _exact(prompt.past_L, golden[f"{name}.ids_cmp_mask"])
    yield _exact(1 - 2 * prompt.query_L.long(), golden[f"{name}.attention_mask"])
    if f"{name}.mask4d_allowed" in golden.tensors:
        mask = additive_mask(prompt.query_L[None], torch.float32)[0, 0]
        yield _exact(mask == 0, golden[f"{name}.mask4d_allowed"])


def _exact(ours: Tensor, theirs: Tensor) -> float:
    return gap(ours.long(), theirs.long()) if ours.shape == theirs.shape else math.inf
