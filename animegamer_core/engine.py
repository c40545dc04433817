"""The game engine: a Mistral that reads the turns so far and predicts the next game state.

B batch, L prompt tokens, A answer tokens, N state tokens, D state width, H engine width, V vocabulary, K past turns,
R tokens of all replies that the grammar allows.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
from einops import rearrange
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import Cache, MistralConfig, MistralForCausalLM

from .prompt import GRAMMAR, Choice, GameTokenizer, Levels, TurnPrompt, build_prompt, parse_reply
from .spec import ModelSpec, Profile
from .state import GameState, StateChange, Turn

MAX_REPLY = 200  # new tokens of a free reply (reference-facts 4.4)
FORCED_SLOTS = 100  # slot tokens that the released logits processor knows, of 226 in use


@dataclass(frozen=True)
class EngineOutput:
    """states_BND: predicted representations. logits_BAV: next-token logits at the A positions that were asked for."""

    states_BND: Tensor
    logits_BAV: Tensor


class GameEngine(nn.Module):
    """Mistral plus the two projections between its width and the state's. The profile names how a turn is read."""

    def __init__(self, spec: ModelSpec, tokenizer: GameTokenizer, profile: Profile) -> None:
        super().__init__()
        if tokenizer.size > spec.engine.vocab_size:
            raise ValueError(
                f"the tokenizer has {tokenizer.size} entries and spec {spec.name!r} room for {spec.engine.vocab_size}"
            )
        self.spec = spec
        self.tokenizer = tokenizer
        self.profile = profile
        width, hidden = spec.state.width, spec.engine.hidden
        self.llm = MistralForCausalLM(_mistral_config(spec))
        self.project_in = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, hidden))
        self.project_out = nn.Sequential(nn.Linear(hidden, width), nn.GELU(), nn.Linear(width, width))

    def prompt(self, past: Sequence[tuple[str, Levels]], instruction: str) -> TurnPrompt:
        """The prompt of a turn for this engine's vocabulary, state size and profile."""
        return build_prompt(self.tokenizer, self.spec.state.tokens, past, instruction, self.profile)

    @torch.inference_mode()
    def predict(self, past: Sequence[Turn], instruction: str) -> GameState:
        """The next game state, greedily. past: the turns of the window, oldest first, with their representations.

        ValueError: more tokens than the engine has positions for, or what `past_states` refuses.
        """
        prompt = self.prompt([(turn.instruction, turn.state.levels) for turn in past], instruction)
        if len(prompt.ids_L) > self.spec.engine.max_positions:
            raise ValueError(
                f"this turn and the {len(past)} before it take {len(prompt.ids_L)} tokens, and the engine reads "
                f"{self.spec.engine.max_positions}; choose a smaller window, or shorten the instructions"
            )
        states_KND = self.past_states(past)
        replies = self._replies if self.profile.grammar else None
        if self.profile.shared_prefill:
            seen = text = self._read(prompt, states_KND, replies)
        else:
            seen, text = self._read(prompt, states_KND), self._read_text(prompt, states_KND, replies)
        state_ND = self._state(seen[0], prompt).float().cpu()
        if replies is not None:
            levels, said = self._choose(text[0][len(prompt.ids_L) - 1 :], replies)
        else:
            levels = said = parse_reply(self._reply(prompt, *text))
        return self.state_of(state_ND, levels, said)

    def choose(self, choice: Choice, logits_V: Tensor) -> tuple[int, int | None]:
        """(the valid number of highest logit, the number that was first without that rule, None where it was none)."""
        allowed = [self.tokenizer.strength(value) for value in choice.allowed]
        return choice.allowed[int(logits_V[allowed].argmax())], self.tokenizer.strength_of(int(logits_V.argmax()))

    @staticmethod
    def state_of(state_ND: Tensor, levels: Levels, said: tuple[int | None, ...]) -> GameState:
        """The game state of a representation (N, D) and the four numbers, as chosen and as said."""
        motion, social, entertainment, stamina = levels
        return GameState(state_ND, motion, StateChange(social, entertainment, stamina), said)

    @torch.inference_mode()
    def represent(self, prompt: TurnPrompt, states_KND: Tensor) -> Tensor:
        """(N, D): the representation that a prompt predicts; states_KND are the past ones, K = 0 for none."""
        return self._state(self._read(prompt, states_KND)[0], prompt)

    @torch.inference_mode()
    def first_logits(self, prompt: TurnPrompt, states_KND: Tensor) -> Tensor:
        """(V,): the logits behind `<ML>`, from the pass that this profile reads text with."""
        read = self._read if self.profile.shared_prefill else self._read_text
        return self._logits(read(prompt, states_KND)[0])

    @torch.inference_mode()
    def reply(self, prompt: TurnPrompt, states_KND: Tensor) -> str:
        """What the engine writes behind `<ML>` when nothing holds it, one space between tokens, `</s>` included."""
        read = self._read if self.profile.shared_prefill else self._read_text
        return self._reply(prompt, *read(prompt, states_KND))

    def forward(self, prompts: Sequence[TurnPrompt], past: Sequence[Tensor], answers: int = 0) -> EngineOutput:
        """For training: prompts that may go on behind `<ML>`, and each one's past representations (K, N, D).

        Both are read as the profile reads them in play. The logits are those that predict each prompt's last `answers`
        tokens; 0 asks for what follows the prompt.
        """
        device = self.project_in[0].weight.device
        ids_BL, past_BL, query_BL = (
            pad_sequence([getattr(prompt, name) for prompt in prompts], batch_first=True).to(device)
            for name in ("ids_L", "past_L", "query_L")
        )
        lengths_B = torch.tensor([len(prompt.ids_L) for prompt in prompts], device=device)
        valid_BL = torch.arange(ids_BL.shape[1], device=device) < lengths_B[:, None]
        embeds_BLH = self._embed(ids_BL, past_BL, torch.cat(list(past)))
        hidden_BLH = self._hidden(embeds_BLH, query_BL, valid_BL)
        ends_B = lengths_B - 1 - answers  # where each prompt's `<ML>` stands
        states_BND = self.project_out(_at(hidden_BLH, self._slots(query_BL, ends_B)))
        if not self.profile.shared_prefill:
            embeds_BLH = embeds_BLH if self.profile.text_sees_states else self.llm.model.embed_tokens(ids_BL)
            hidden_BLH = self._hidden(embeds_BLH, torch.zeros_like(query_BL), valid_BL)
        asked_BA = ends_B[:, None] + torch.arange(max(1, answers), device=device)
        return EngineOutput(states_BND, self.llm.lm_head(_at(hidden_BLH, asked_BA)))

    def _hidden(self, embeds_BLH: Tensor, query_BL: Tensor, valid_BL: Tensor) -> Tensor:
        """(B, L, H): final hidden states of a batch whose query slots see one another."""
        mask = additive_mask(query_BL, valid_BL, embeds_BLH.dtype)
        return self.llm.model(inputs_embeds=embeds_BLH, attention_mask=mask, use_cache=False).last_hidden_state

    def _slots(self, query_BL: Tensor, ends_B: Tensor) -> Tensor:
        """(B, N): the positions that representations are read at; ends_B: those of each prompt's last token."""
        if self.profile.aligned_queries:
            return rearrange(query_BL.nonzero()[:, 1], "(b n) -> b n", b=len(query_BL))
        # The scripts take the last N positions, though `</frame> </img> <ML>` follow the queries.
        tokens = self.spec.state.tokens
        return ends_B[:, None] + torch.arange(1 - tokens, 1, device=ends_B.device)

    def past_states(self, past: Sequence[Turn]) -> Tensor:
        """(K, N, D): the representations of turns; ValueError where one was let go or is of another world's size."""
        weight, state = self.project_in[0].weight, self.spec.state
        for turn in past:
            if turn.state.representation is None:
                raise ValueError(f"turn {turn.number} let its representation go; load it from the story again")
            if turn.state.representation.shape != (state.tokens, state.width):
                raise ValueError(
                    f"turn {turn.number} holds a representation of shape {tuple(turn.state.representation.shape)}, "
                    f"this world's are {(state.tokens, state.width)}; a game cannot change its world's size"
                )
        rows = [turn.state.representation.to(weight) for turn in past]
        return torch.stack(rows) if rows else weight.new_zeros(0, state.tokens, state.width)

    def _embed(self, ids_BL: Tensor, past_BL: Tensor, states_KND: Tensor) -> Tensor:
        embeds_BLH = self.llm.model.embed_tokens(ids_BL)
        rows = self.project_in(states_KND.to(embeds_BLH)).flatten(0, 1)
        assert past_BL.sum() == len(rows), f"{past_BL.sum()} past slots for {len(rows)} state tokens"
        return embeds_BLH.masked_scatter(past_BL[..., None], rows.to(embeds_BLH.dtype))

    def _read(
        self, prompt: TurnPrompt, states_KND: Tensor, replies: Replies | None = None
    ) -> tuple[Tensor, Cache | None]:
        """One pass over a prompt whose query slots see one another: final hidden states (L, H) and the cache.

        replies: are read behind the prompt in the same pass, (L + R, H), which leaves nothing to go on from: no cache.
        """
        device = self.project_in[0].weight.device
        query_1L = prompt.query_L.to(device)[None]
        embeds = self._embed(prompt.ids_L.to(device)[None], prompt.past_L.to(device)[None], states_KND.to(device))
        mask = additive_mask(query_1L, torch.ones_like(query_1L), embeds.dtype)
        return self._pass(embeds, mask, replies)

    def _read_text(
        self, prompt: TurnPrompt, states_KND: Tensor, replies: Replies | None = None
    ) -> tuple[Tensor, Cache | None]:
        """The released scripts' second pass: plainly causal, also over the queries (reference-facts 4.4)."""
        ids_1L = prompt.ids_L.to(self.project_in[0].weight.device)[None]
        if self.profile.text_sees_states:
            embeds = self._embed(ids_1L, prompt.past_L.to(ids_1L.device)[None], states_KND.to(ids_1L.device))
        else:
            embeds = self.llm.model.embed_tokens(ids_1L)
        if replies is None:
            return self._pass(embeds, None)
        nowhere_1L = torch.zeros_like(ids_1L, dtype=torch.bool)
        return self._pass(embeds, additive_mask(nowhere_1L, ~nowhere_1L, embeds.dtype), replies)

    def _pass(
        self, embeds_1LH: Tensor, mask_11LL: Tensor | None, replies: Replies | None = None
    ) -> tuple[Tensor, Cache | None]:
        length, positions = embeds_1LH.shape[1], None
        if replies is not None:
            assert mask_11LL is not None
            device = embeds_1LH.device
            embeds_1LH = torch.cat([embeds_1LH, self.llm.model.embed_tokens(replies.ids_R.to(device)[None])], dim=1)
            mask_11LL = replies.masked_behind(mask_11LL)
            positions = torch.cat([torch.arange(length), length - 1 + replies.depth_R]).to(device)[None]
        output = self.llm.model(
            inputs_embeds=embeds_1LH, attention_mask=mask_11LL, position_ids=positions, use_cache=replies is None
        )
        return output.last_hidden_state[0], output.past_key_values

    def _state(self, hidden_LH: Tensor, prompt: TurnPrompt) -> Tensor:
        """(N, D): the representation that a prompt predicts; replies may follow it in hidden_LH."""
        end_B = torch.tensor([len(prompt.ids_L) - 1], device=hidden_LH.device)
        slots_BN = self._slots(prompt.query_L[None].to(hidden_LH.device), end_B)
        return self.project_out(_at(hidden_LH[None], slots_BN))[0]

    def _logits(self, hidden_LH: Tensor) -> Tensor:
        return self.llm.lm_head(hidden_LH[-1]).float()

    def _feed(self, ids: list[int], cache: Cache) -> Tensor:
        """Hidden states (len(ids), H) of tokens that follow what the cache holds."""
        ids_1L = torch.tensor([ids], device=self.project_in[0].weight.device)
        return self.llm.model(input_ids=ids_1L, past_key_values=cache, use_cache=True).last_hidden_state[0]

    @cached_property
    def _replies(self) -> Replies:
        return Replies.of(self.tokenizer)

    def _choose(self, hidden_RH: Tensor, replies: Replies) -> tuple[Levels, tuple[int | None, ...]]:
        """The four numbers by argmax over the valid ones, and what was first without that rule.

        hidden_RH: of the prompt's last token and of all replies behind it.
        """
        ends = torch.tensor(list(replies.ends.values()), device=hidden_RH.device)
        logits = dict(zip(replies.ends, self.llm.lm_head(hidden_RH[ends]).float().cpu(), strict=True))
        levels: tuple[int, ...] = ()
        said: tuple[int | None, ...] = ()
        for choice in GRAMMAR:
            number, first = self.choose(choice, logits[levels])
            levels, said = (*levels, number), (*said, first)
        return typing.cast(Levels, levels), said

    def _reply(self, prompt: TurnPrompt, hidden_LH: Tensor, cache: Cache) -> str:
        """Greedy text behind `<ML>` under the released logits processor (reference-facts 4.4)."""
        slots = self.tokenizer.slots(min(FORCED_SLOTS, self.spec.state.tokens))
        run = [self.tokenizer.token("<frame>"), *slots, self.tokenizer.token("</frame>")]
        end, written, last = self.tokenizer.token("</s>"), [], int(prompt.ids_L[-1])
        while len(written) < MAX_REPLY and last != end:
            logits_V = self._logits(hidden_LH)
            if last in run[:-1]:
                logits_V[run[run.index(last) + 1]] = logits_V.max() + 10
            else:
                logits_V[run[1:]] = 0.0
            last = int(logits_V.argmax())
            written.append(last)
            hidden_LH = self._feed([last], cache)
        return self.tokenizer.spelled([index for index in written if index not in run])


@dataclass(frozen=True)
class Replies:
    """All that the grammar lets follow a prompt: a tree of numbers, each with the two tags that lead to the next.

    One pass reads the R tokens of all branches behind the prompt, in place of one pass a number over the branch that
    was chosen. ids_R: int64. depth_R: each token's distance from the prompt's last one, 1 and more. seen_RR: bool, row
    by row what a token sees beside the prompt: itself and what its branch has before it. ends: the numbers so far ->
    where the next one is predicted, counted from the prompt's last token.
    """

    ids_R: Tensor
    depth_R: Tensor
    seen_RR: Tensor
    ends: dict[tuple[int, ...], int]

    @classmethod
    def of(cls, tokenizer: GameTokenizer) -> Replies:
        """The tree in this vocabulary; what follows the last number is not asked for, so that one is left out."""
        ids: list[int] = []
        ways: dict[tuple[int, ...], list[int]] = {(): []}  # the numbers so far -> the tokens that say them
        for count, (choice, following) in enumerate(pairwise(GRAMMAR)):
            tags = [tokenizer.token(choice.closing), tokenizer.token(following.opening)]
            for numbers in [numbers for numbers in ways if len(numbers) == count]:
                for value in choice.allowed:
                    said = [tokenizer.strength(value), *tags]
                    ways[(*numbers, value)] = [*ways[numbers], *range(len(ids), len(ids) + len(said))]
                    ids += said
        depths, seen_RR = torch.zeros(len(ids), dtype=torch.long), torch.zeros(len(ids), len(ids), dtype=torch.bool)
        for way in ways.values():
            for depth, token in enumerate(way, start=1):
                depths[token], seen_RR[token, way[:depth]] = depth, True
        ends = {numbers: way[-1] + 1 if way else 0 for numbers, way in ways.items()}
        return cls(torch.tensor(ids), depths, seen_RR, ends)

    def masked_behind(self, mask_11LL: Tensor) -> Tensor:
        """(1, 1, L + R, L + R) additive mask: a prompt's own, behind which the replies see all of it."""
        length, never = mask_11LL.shape[-1], torch.finfo(mask_11LL.dtype).min
        mask = nn.functional.pad(mask_11LL, (0, len(self.ids_R), 0, len(self.ids_R)))
        mask[..., :length, length:] = never
        mask[..., length:, length:].masked_fill_(~self.seen_RR.to(mask.device), never)
        return mask


def _at(hidden_BLH: Tensor, positions_BP: Tensor) -> Tensor:
    """(B, P, H): the hidden states at each row's positions."""
    return hidden_BLH[torch.arange(len(hidden_BLH), device=hidden_BLH.device)[:, None], positions_BP]


def additive_mask(query_BL: Tensor, valid_BL: Tensor, dtype: torch.dtype) -> Tensor:
    """(B, 1, L, L) additive mask: causal, but query slots also see one another; nobody sees padding but itself."""
    length = query_BL.shape[1]
    seen = torch.ones(length, length, dtype=torch.bool, device=query_BL.device).tril()
    seen = seen | (query_BL[:, :, None] & query_BL[:, None, :])
    itself = torch.eye(length, dtype=torch.bool, device=query_BL.device)
    seen = (seen & valid_BL[:, None, :]) | itself
    mask = torch.zeros(seen.shape, dtype=dtype, device=query_BL.device)
    return mask.masked_fill(~seen, torch.finfo(dtype).min)[:, None]


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
        sliding_window=None,  # 4096 would break the ready-made mask of windows above 14 turns
        tie_word_embeddings=False,
        attn_implementation="sdpa",
    )
