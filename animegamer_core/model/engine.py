"""The game engine: a Mistral that predicts the next game state from the instruction and the past turns.

B batch, L prompt tokens, A answer tokens, N state tokens, D state width, H engine width, V vocabulary, K past turns,
R tokens of the reply tree.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, MistralConfig, MistralForCausalLM, MistralModel

from ..game.life import Number, changes
from ..game.state import GameState, Turn
from ..spec import ModelSpec, Profile
from .prompt import GameTokenizer, Levels, TurnPrompt, build_prompt, parse_reply

PREFILL = 2048  # tokens of a prompt that are read at a time; most prompts have fewer
MAX_REPLY = 200  # new tokens of a free reply (docs/reference.md, replies)
# The KV cache in calls and outputs of a Mistral: transformers 5.24 renamed it, and 5.40 drops the old name.
CACHE = "cache" if "cache" in inspect.signature(MistralModel.forward).parameters else "past_key_values"
FORCED_SLOTS = 100  # the released logits processor forces these slot tokens, of 226 in use


@dataclass(frozen=True)
class EngineOutput:
    """states_BND: predicted representations. logits_BAV: next-token logits at the A requested positions."""

    states_BND: Tensor
    logits_BAV: Tensor


class GameEngine(nn.Module):
    """Mistral and the projections between its width and the state's. The profile says how prompts are read."""

    def __init__(self, spec: ModelSpec, tokenizer: GameTokenizer, profile: Profile) -> None:
        super().__init__()
        self.spec = spec
        self.tokenizer = tokenizer
        self.profile = profile
        width, hidden = spec.state.width, spec.engine.hidden
        self.llm = MistralForCausalLM(_mistral_config(spec))
        self.project_in = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.project_out = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, width))

    def prompt(self, past: Sequence[Turn], instruction: str) -> TurnPrompt:
        """The prompt of a turn after these, in this engine's vocabulary, state size and profile."""
        before = [(turn.instruction, self.levels(turn.state)) for turn in past]
        return build_prompt(self.tokenizer, self.spec.state.tokens, before, instruction, self.profile)

    def levels(self, state: GameState) -> Levels:
        """The numbers of a state, in the order of the prompt."""
        return state.motion, *changes(state.change, self.tokenizer.numbers[1:]).values()

    @torch.inference_mode()
    def predict(self, past: Sequence[Turn], instruction: str) -> GameState:
        """The next game state, by greedy choice. past: the turns of the window with representations, oldest first.

        ValueError if the prompt has more tokens than the engine has positions, or as in `build_prompt` and
        `past_states`.
        """
        prompt = self.prompt(past, instruction)
        if len(prompt.ids_L) > self.spec.engine.max_positions:
            raise ValueError(
                f"this turn and the {len(past)} before it take {len(prompt.ids_L)} tokens, but the engine has only "
                f"{self.spec.engine.max_positions} positions; choose a smaller window, or shorten the instructions"
            )
        states_KND = self.past_states(past)
        tree = self._reply_tree if self.profile.grammar else None
        if self.profile.shared_prefill:
            read = text = self._read(prompt, states_KND, tree)
        else:
            read, text = self._read(prompt, states_KND), self._text_pass(prompt, states_KND, tree)
        state_ND = self._state(read[0], prompt).float().cpu()
        if tree is not None:
            levels, raw_choices = self._choose(text[0][len(prompt.ids_L) - 1 :], tree)
        else:
            levels = raw_choices = parse_reply(self._reply(prompt, *text), len(self.tokenizer.numbers))
        return self.state_of(state_ND, levels, raw_choices)

    @torch.inference_mode()
    def predict_all(self, pasts: Sequence[Sequence[Turn]], instructions: Sequence[str]) -> list[GameState]:
        """Like `predict` for the next turn of each of several games, with one pass over all of them for each number.

        Turns whose reply is free, and a single one, are predicted one by one.
        """
        turns = list(zip(pasts, instructions, strict=True))
        if len(turns) == 1 or not self.profile.grammar:
            return [self.predict(*turn) for turn in turns]
        prompts, states = [self.prompt(*turn) for turn in turns], [self.past_states(past) for past in pasts]
        output = self(prompts, states)
        states_BND, found = output.states_BND.float().cpu(), [list[tuple[int, int | None]]() for _ in turns]
        for number, following in pairwise((*self.tokenizer.numbers, None)):
            for chosen, logits_V in zip(found, output.logits_BAV[:, 0].float().cpu(), strict=True):
                chosen.append(self.choose(number, logits_V))
            if following is not None:
                tags = [self.tokenizer.token(number.closing), self.tokenizer.token(following.opening)]
                answers = [[self.tokenizer.strength(chosen[-1][0]), *tags] for chosen in found]
                prompts = [prompt.followed_by(ids) for prompt, ids in zip(prompts, answers, strict=True)]
                output = self(prompts, states)
        replies = [tuple(zip(*chosen, strict=True)) for chosen in found]
        return [self.state_of(state, *reply) for state, reply in zip(states_BND, replies, strict=True)]

    def choose(self, choice: Number, logits_V: Tensor) -> tuple[int, int | None]:
        """(the best valid number; the number of the best token of all, None if that is not a number)."""
        allowed = [self.tokenizer.strength(value) for value in choice.choices]
        return choice.choices[int(logits_V[allowed].argmax())], self.tokenizer.strength_of(int(logits_V.argmax()))

    def state_of(self, state_ND: Tensor, levels: Levels, raw_choices: tuple[int | None, ...]) -> GameState:
        """The game state of a representation (N, D), the valid numbers and the unconstrained ones."""
        names = (stat.name for stat in self.tokenizer.numbers[1:])
        return GameState(state_ND, levels[0], dict(zip(names, levels[1:], strict=True)), raw_choices)

    @torch.inference_mode()
    def represent(self, prompt: TurnPrompt, states_KND: Tensor) -> Tensor:
        """(N, D): the representation that a prompt predicts. states_KND: the past representations; K may be 0."""
        return self._state(self._read(prompt, states_KND)[0], prompt)

    @torch.inference_mode()
    def first_logits(self, prompt: TurnPrompt, states_KND: Tensor) -> Tensor:
        """(V,): the logits after `<ML>`, from this profile's text pass."""
        return self._logits(self._text_pass(prompt, states_KND)[0])

    @torch.inference_mode()
    def reply(self, prompt: TurnPrompt, states_KND: Tensor) -> str:
        """The engine's free text after `<ML>`, with one space between tokens, up to `</s>`."""
        return self._reply(prompt, *self._text_pass(prompt, states_KND))

    def forward(self, prompts: Sequence[TurnPrompt], past: Sequence[Tensor], answers: int = 0) -> EngineOutput:
        """States and logits of a batch of prompts, for training; they are computed as this profile does in play.

        prompts: may have an answer after `<ML>`. past: the past representations (K, N, D) of each prompt. The logits
        predict each prompt's last `answers` tokens; with 0, the token after the prompt.
        """
        device = self.project_in[0].weight.device
        ids_BL, past_BL, query_BL = (
            pad_sequence([getattr(prompt, name) for prompt in prompts], batch_first=True).to(device)
            for name in ("ids_L", "past_L", "query_L")
        )
        lengths_B = torch.tensor([len(prompt.ids_L) for prompt in prompts], device=device)
        embeds_BLH = self._embed(ids_BL, past_BL, torch.cat(list(past)))
        hidden_BLH = self._hidden(embeds_BLH, query_BL)  # padding follows a prompt, so the causal mask hides it
        ends_B = lengths_B - 1 - answers  # position of each prompt's `<ML>`
        states_BND = self.project_out(_at(hidden_BLH, self._slots(query_BL, ends_B)))
        if not self.profile.shared_prefill:
            embeds_BLH = embeds_BLH if self.profile.text_sees_states else self.llm.model.embed_tokens(ids_BL)
            hidden_BLH = self._hidden(embeds_BLH, torch.zeros_like(query_BL))
        asked_BA = ends_B[:, None] + torch.arange(max(1, answers), device=device)
        return EngineOutput(states_BND, self.llm.lm_head(_at(hidden_BLH, asked_BA)))

    def _hidden(self, embeds_BLH: Tensor, query_BL: Tensor) -> Tensor:
        """(B, L, H): final hidden states; query slots attend to one another."""
        mask = additive_mask(query_BL, embeds_BLH.dtype)
        return self.llm.model(inputs_embeds=embeds_BLH, attention_mask=mask, use_cache=False).last_hidden_state

    def _slots(self, query_BL: Tensor, ends_B: Tensor) -> Tensor:
        """(B, N): the positions of the predicted representations. ends_B: positions of each prompt's last token."""
        if self.profile.aligned_queries:
            return rearrange(query_BL.nonzero()[:, 1], "(b n) -> b n", b=len(query_BL))
        # The released scripts take the last N positions, although `</frame> </img> <ML>` follow the queries.
        tokens = self.spec.state.tokens
        return ends_B[:, None] + torch.arange(1 - tokens, 1, device=ends_B.device)

    def past_states(self, past: Sequence[Turn]) -> Tensor:
        """(K, N, D): the representations of turns; ValueError if one is not in memory or has another world's size."""
        weight, state = self.project_in[0].weight, self.spec.state
        for turn in past:
            if turn.state.representation is None:
                raise ValueError(
                    f"the representation of turn {turn.number} is not in memory; load the turn from its story"
                )
            if turn.state.representation.shape != (state.tokens, state.width):
                raise ValueError(
                    f"turn {turn.number} has a representation of shape {tuple(turn.state.representation.shape)}, this "
                    f"world's have {(state.tokens, state.width)}; continue in a world of the same size"
                )
        rows = [turn.state.representation.to(weight) for turn in past]
        return torch.stack(rows) if rows else weight.new_zeros(0, state.tokens, state.width)

    def _embed(self, ids_BL: Tensor, past_BL: Tensor, states_KND: Tensor) -> Tensor:
        embeds_BLH = self.llm.model.embed_tokens(ids_BL)
        rows = self.project_in(states_KND.to(embeds_BLH)).flatten(0, 1)
        assert past_BL.sum() == len(rows), f"{past_BL.sum()} past slots for {len(rows)} state tokens"
        return embeds_BLH.masked_scatter(past_BL[..., None], rows.to(embeds_BLH.dtype))

    def _text_pass(
        self, prompt: TurnPrompt, states_KND: Tensor, tree: ReplyTree | None = None
    ) -> tuple[Tensor, Cache | None]:
        """Like `_read`, but in a separate causal pass if the profile has one (docs/reference.md, replies)."""
        if self.profile.shared_prefill:
            return self._read(prompt, states_KND, tree)
        return self._read(prompt, states_KND if self.profile.text_sees_states else None, tree, causal=True)

    def _read(
        self, prompt: TurnPrompt, states_KND: Tensor | None, tree: ReplyTree | None = None, causal: bool = False
    ) -> tuple[Tensor, Cache | None]:
        """Final hidden states (L, H) of a prompt whose query slots attend to one another, and the KV cache.

        states_KND: None leaves the embeddings of the slot tokens. causal: query slots attend only to what is before
        them. With a tree, the hidden states of its tokens follow, (L + R, H), and the cache cannot be used. A long
        prompt is read in parts, so that memory grows linearly with its length.
        """
        device, length = self.project_in[0].weight.device, len(prompt.ids_L)
        ids_1L, positions = prompt.ids_L.to(device)[None], torch.arange(length)
        query_L = torch.zeros_like(prompt.query_L) if causal else prompt.query_L
        if states_KND is None:
            embeds_1LH = self.llm.model.embed_tokens(ids_1L)
        else:
            embeds_1LH = self._embed(ids_1L, prompt.past_L.to(device)[None], states_KND)
        if tree is not None:
            embeds_1LH = torch.cat([embeds_1LH, self.llm.model.embed_tokens(tree.ids_R.to(device)[None])], dim=1)
            positions = torch.cat([positions, length - 1 + tree.depth_R])
        ends = _part_ends(query_L, len(positions))
        unmasked = tree is None and not query_L.any()
        cache, hidden = None, []
        for start, end in pairwise([0, *ends]):
            mask = None if unmasked else _prompt_mask(query_L.to(device), tree, start, end, embeds_1LH.dtype)
            output = self.llm.model(
                inputs_embeds=embeds_1LH[:, start:end],
                attention_mask=mask,
                position_ids=positions[None, start:end].to(device),
                use_cache=tree is None or len(ends) > 1,
                **{CACHE: cache},
            )
            cache = getattr(output, CACHE)
            hidden.append(output.last_hidden_state[0])
        return torch.cat(hidden), cache

    def _state(self, hidden_LH: Tensor, prompt: TurnPrompt) -> Tensor:
        """(N, D): the representation that a prompt predicts; hidden_LH may continue after the prompt."""
        end_B = torch.tensor([len(prompt.ids_L) - 1], device=hidden_LH.device)
        slots_BN = self._slots(prompt.query_L[None].to(hidden_LH.device), end_B)
        return self.project_out(_at(hidden_LH[None], slots_BN))[0]

    def _logits(self, hidden_LH: Tensor) -> Tensor:
        return self.llm.lm_head(hidden_LH[-1]).float()

    @cached_property
    def _reply_tree(self) -> ReplyTree:
        return ReplyTree.of(self.tokenizer)

    def _choose(self, hidden_RH: Tensor, tree: ReplyTree) -> tuple[Levels, tuple[int | None, ...]]:
        """The best valid numbers, and the best ones of all as in `choose`.

        hidden_RH: of the prompt's last token and of the tree's tokens.
        """
        ends = torch.tensor(list(tree.ends.values()), device=hidden_RH.device)
        logits = dict(zip(tree.ends, self.llm.lm_head(hidden_RH[ends]).float().cpu(), strict=True))
        levels: tuple[int, ...] = ()
        raw_choices: tuple[int | None, ...] = ()
        for choice in self.tokenizer.numbers:
            number, raw = self.choose(choice, logits[levels])
            levels, raw_choices = (*levels, number), (*raw_choices, raw)
        return levels, raw_choices

    def _reply(self, prompt: TurnPrompt, hidden_LH: Tensor, cache: Cache) -> str:
        """Greedy text after `<ML>` with the released logits processor (docs/reference.md, replies)."""
        slots = self.tokenizer.slots(min(FORCED_SLOTS, self.spec.state.tokens))
        run = [self.tokenizer.token("<frame>"), *slots, self.tokenizer.token("</frame>")]
        end, last = self.tokenizer.token("</s>"), int(prompt.ids_L[-1])
        written: list[int] = []
        while len(written) < MAX_REPLY and last != end:
            logits_V = self._logits(hidden_LH)
            if last in run[:-1]:
                logits_V[run[run.index(last) + 1]] = logits_V.max() + 10
            else:
                logits_V[run[1:]] = 0.0
            last = int(logits_V.argmax())
            written.append(last)
            ids_1L = torch.tensor([[last]], device=hidden_LH.device)
            hidden_LH = self.llm.model(input_ids=ids_1L, use_cache=True, **{CACHE: cache}).last_hidden_state[0]
        return self.tokenizer.decode_with_tags([index for index in written if index not in run])


@dataclass(frozen=True)
class ReplyTree:
    """All replies that the grammar allows, as a tree of numbers, each followed by the two tags before the next number.

    One pass over the prompt and the tree's R tokens replaces one pass per number. ids_R: int64. depth_R: each token's
    distance from the prompt's last token. seen_RR: bool, the tokens that a token attends to besides the prompt: itself
    and those before it on its path. ends: the numbers so far -> the position that predicts the next one, counted from
    the prompt's last token.
    """

    ids_R: Tensor
    depth_R: Tensor
    seen_RR: Tensor
    ends: dict[tuple[int, ...], int]

    @classmethod
    def of(cls, tokenizer: GameTokenizer) -> ReplyTree:
        """The tree in this vocabulary; the last number is left out, since nothing after it is predicted."""
        ids: list[int] = []
        paths: dict[tuple[int, ...], list[int]] = {(): []}  # the numbers so far -> indices of their tokens
        for count, (choice, following) in enumerate(pairwise(tokenizer.numbers)):
            tags = [tokenizer.token(choice.closing), tokenizer.token(following.opening)]
            for numbers in [numbers for numbers in paths if len(numbers) == count]:
                for value in choice.choices:
                    new = [tokenizer.strength(value), *tags]
                    paths[(*numbers, value)] = [*paths[numbers], *range(len(ids), len(ids) + len(new))]
                    ids += new
        depths, seen_RR = torch.zeros(len(ids), dtype=torch.long), torch.zeros(len(ids), len(ids), dtype=torch.bool)
        for path in paths.values():
            for depth, token in enumerate(path, start=1):
                depths[token], seen_RR[token, path[:depth]] = depth, True
        ends = {numbers: path[-1] + 1 if path else 0 for numbers, path in paths.items()}
        return cls(torch.tensor(ids), depths, seen_RR, ends)


def _part_ends(query_L: Tensor, total: int) -> list[int]:
    """Where the parts of a prompt and its tree end; the last part has all query slots, since they see one another."""
    queries = query_L.nonzero()
    first = int(queries[0]) if len(queries) else len(query_L) - 1
    return [*(range(PREFILL, first + 1, PREFILL) if total > PREFILL else ()), total]


def _prompt_mask(query_L: Tensor, tree: ReplyTree | None, start: int, end: int, dtype: torch.dtype) -> Tensor:
    """(1, 1, end - start, end) additive mask for the part from `start` to `end` of a prompt and its tree.

    Causal, with attention among query slots; the tree attends to the whole prompt and to its own paths.
    """
    length, places = len(query_L), torch.arange(end, device=query_L.device)
    query = nn.functional.pad(query_L, (0, max(0, end - length)))[:end]
    seen = (places <= places[start:, None]) | (query & query[start:, None])
    if tree is not None and end > length:
        seen[length - start :, length:] = tree.seen_RR.to(seen.device)
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[None, None]


def _at(hidden_BLH: Tensor, positions_BP: Tensor) -> Tensor:
    """(B, P, H): the hidden states at each row's positions."""
    return hidden_BLH[torch.arange(len(hidden_BLH), device=hidden_BLH.device)[:, None], positions_BP]


def additive_mask(query_BL: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, 1, L, L) additive mask: causal, with attention among query slots."""
    length = query_BL.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=query_BL.device).tril()
    seen = seen | (query_BL[:, :, None] & query_BL[:, None, :])
    return torch.where(seen, 0.0, torch.finfo(dtype).min).to(dtype)[:, None]


def _mistral_config(spec: ModelSpec) -> MistralConfig:
    engine = spec.engine
    return MistralConfig(
        vocab_size=engine.vocab_size,
        hidden_size=engine.hidden,
        intermediate_size=engine.intermediate,
        num_hidden_layers=engine.layers,
        num_attention_heads=engine.heads,
        num_key_value_heads=engine.kv_heads,
        head_dim=engine.hidden // engine.heads,
        max_position_embeddings=engine.max_positions,
        rms_norm_eps=1e-5,
        rope_theta=engine.rope_theta,
        sliding_window=None,  # 4096 would break our own mask for windows above 14 turns
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
