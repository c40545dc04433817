"""Stage `distill`: one pass learns what guidance computes from two, and shots are then sampled with one pass a step."""

import copy
import math
from contextlib import nullcontext
from types import SimpleNamespace
from unittest import mock

import pytest
import test_train as shared
import torch
from safetensors.torch import load_file

from animegamer_core.spec import Sampling
from animegamer_core.train import few_steps
from animegamer_core.train.few_steps import FewStepLearner
from animegamer_core.train.learners import DistillLearner
from animegamer_core.train.parts import set_trainable
from animegamer_core.train.sampling import MicroBatch
from animegamer_core.train.stages import RECIPES
from animegamer_core.weights.adapter_files import adapter_facts

CPU = torch.device("cpu")
UPDATES = {"lora_rank": 2, "lora_alpha": 2.0, "lora_targets": RECIPES["lora"]["distill"].lora_targets, "trainable": ()}


def batch_of(learner, ready, count=4):
    return learner.batch(ready, torch.arange(count), MicroBatch(0), CPU)


def heeding(decoder):
    """The decoder with an output that tells its states apart, which one that was never trained hardly does; the same
    whatever tests ran before.
    """
    with torch.no_grad():
        decoder.transformer.proj_out.weight.normal_(std=0.5, generator=torch.Generator().manual_seed(0))
    return decoder


def learner_of(ready, **changes):
    return DistillLearner(shared.tiny_config("distill", **changes), heeding(shared.new_parts(ready).decoder))


@pytest.mark.parametrize("guidance", ["cosine", "constant"])
def test_the_target_is_the_guided_velocity_by_hand(guidance, ready):
    learner = learner_of(ready, teacher_guidance=guidance)
    batch = batch_of(learner, ready)
    decoder, states = learner.decoder, batch["states"]
    with torch.no_grad():
        nothing = decoder.unconditional_ND.expand_as(states)
        conditioned = decoder.velocity(batch["clean"], batch["timesteps"], states, batch["motion"])
        without = decoder.velocity(batch["clean"], batch["timesteps"], nothing, batch["motion"])
        with learner._teacher() as teacher:
            wanted = learner._guided(teacher, batch["clean"], batch)
    for row, timestep in enumerate(batch["timesteps"].tolist()):
        risen = (1 - math.cos(math.pi * (timestep / 999) ** 5)) / 2 if guidance == "cosine" else 1.0
        scale = 1 + decoder.spec.decoder.guidance_scale * risen
        by_hand = without[row] + scale * (conditioned[row] - without[row])
        # Guidance makes the rounding, which differs with the rows of a batch, seven times as large.
        torch.testing.assert_close(wanted[row], by_hand, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(wanted, conditioned, atol=1e-3)  # else nothing would be learned


def test_under_autocast_the_targets_are_float32_and_every_lora_weight_learns(ready):
    """Older torch keeps the teacher's casts of weights, which have no gradient, for the student's pass."""
    learner = learner_of(ready, **UPDATES)
    names, batch = set_trainable(learner, learner.settings), batch_of(learner, ready)
    plain, wanted = learner._wanted, []
    learner._wanted = lambda *given: wanted.append(plain(*given)) or wanted[-1]
    with torch.autocast("cpu", torch.bfloat16):
        loss = learner(batch)["loss"]
    loss.backward()
    assert wanted[0].dtype is loss.dtype is torch.float32
    parameters = dict(learner.named_parameters())
    assert names and all(parameters[name].grad is not None for name in names)
    assert all(parameters[name].grad.any() for name in names if ".lora_B." in name)


def test_one_pass_learns_what_two_predict(ready, tmp_path):
    parts = shared.new_parts(ready)
    heeding(parts.decoder)
    untaught = DistillLearner(shared.tiny_config("distill"), copy.deepcopy(parts.decoder))
    _, lines = shared.run("distill", parts, ready, tmp_path, steps=80, batch=8, lr=2e-3, ema=0.0)
    assert adapter_facts(tmp_path / "distill.safetensors").sampling == Sampling(guidance="distilled")
    losses = shared.losses_of(lines)
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])
    # noise that training never drew
    batch = untaught.batch(ready, torch.tensor(ready.clips())[:16], MicroBatch(10_000), CPU)
    with torch.no_grad(), untaught._teacher() as teacher:
        wanted = untaught._guided(teacher, batch["clean"], batch)
        before = untaught.decoder.velocity(batch["clean"], batch["timesteps"], batch["states"], batch["motion"])
        after = parts.decoder.velocity(batch["clean"], batch["timesteps"], batch["states"], batch["motion"])
    late = batch["timesteps"] > 700  # where guidance does most
    assert late.any() and (after - wanted)[late].norm() < 0.7 * (before - wanted)[late].norm()


def test_a_run_from_weights_with_guidance_says_what_becomes_of_it(places, tmp_path):
    few, said = "--recipe lora --steps 2 --batch 2 --lr-warmup 0", []
    assert shared.train("distill", *places[:2], tmp_path / "first", few) == 0
    start = f"{few} --start {tmp_path / 'first' / 'distill.safetensors'}"
    with pytest.raises(ValueError, match="guidance is in these weights already, and would be applied twice"):
        shared.train("distill", *places[:2], tmp_path / "second", start)
    assert shared.train("adapt", *places[:2], tmp_path / "third", start, said.append) == 0
    assert any("adapt trains it out" in line for line in said)
    start += f" {tmp_path / 'third' / 'adapt.safetensors'}"
    assert shared.train("distill", *places[:2], tmp_path / "fourth", start) == 0, "so it may be put in again"


FEW = {"timesteps": (999, 908), "teacher_steps": 6, "batch": 8, "ema": 0.0}


@pytest.mark.parametrize(("pairs", "steps", "near"), [(15, 15, 0.1), (0, 36, 0.5)])
def test_two_taught_steps_draw_what_the_teacher_draws(pairs, steps, near, ready, tmp_path):
    """Each phase alone brings what is drawn near the teacher's, by the energy distance between both."""
    parts = shared.new_parts(ready)
    options = {**FEW, "pairs": pairs, "steps": steps, "lr": 5e-3, "matching_lr": 3e-3, "fake_updates": 2, "collapse": 0}
    asked = FewStepLearner(shared.tiny_config("distill", **options), copy.deepcopy(heeding(parts.decoder))).eval()
    seen = [asked.batch(ready, torch.arange(18), MicroBatch(step), CPU)["timesteps"] for step in range(20)]
    assert torch.cat(seen).aminmax() == (20, 980), "distributions are not compared at the ends"
    batch = batch_of(asked, ready, 18)
    with mock.patch.object(few_steps, "_solved", wraps=few_steps._solved) as solved:
        teachers, untaught = asked.drawn(batch, by_teacher=True).flatten(1), asked.drawn(batch).flatten(1)
    assert [len(call.args[2]) for call in solved.call_args_list] == [6, 2]
    shared.run("distill", parts, ready, tmp_path, **options)
    asked.decoder.load_state_dict(parts.decoder.state_dict())
    taught = asked.drawn(batch).flatten(1)
    far = [2 * torch.cdist(x, teachers).mean() - torch.cdist(x, x).mean() for x in (taught, untaught, teachers)]
    assert far[0] - far[2] < near * (far[1] - far[2])
    stated = Sampling(steps=(999, 908), guidance="distilled", solver="ddim")
    assert adapter_facts(tmp_path / "distill.safetensors").sampling == asked.taught == stated


def test_the_judge_learns_what_is_a_clip_and_the_student_to_pass_for_one(ready):
    config = shared.tiny_config("distill", **FEW, pairs=0, gan=1.0)
    learner = FewStepLearner(config, heeding(shared.new_parts(ready).decoder))
    judge, batch = learner.heads["judge"], batch_of(learner, ready)
    turns = [learner.batch(ready, torch.arange(1), MicroBatch(step), CPU)["losses"].__name__ for step in range(6)]
    assert turns == [*["_fake_losses"] * 5, "_match_losses"], "the student is matched with what it has drawn before"
    optimizer = torch.optim.AdamW(judge.parameters(), lr=0.01)
    for _ in range(10):
        (loss := learner._fake_losses(batch)["judge"]).backward()
        assert loss < 2, "a mean over the shots: it begins at 2 log 2"
        optimizer.step()
        optimizer.zero_grad()
    losses = learner._match_losses(batch)
    losses["loss"].backward()
    assert losses["gan"] > math.log(2), "what it drew does not pass yet"
    made = torch.full_like(batch["clean"], 3.0)
    found = mock.patch.object(few_steps, "clean_of", side_effect=[made - 2, made - 1])  # by teacher and fake score
    with mock.patch.object(learner, "_made", return_value=made), found:
        assert learner._match_losses(batch)["matching"].item() == pytest.approx((1 / 2) ** 2 / 2)
    assert all(value.grad is None for value in judge.parameters()), "nor does it spoil the judge"


def test_a_collapsed_student_ends_the_run_and_the_last_good_one_stays(ready, tmp_path):
    parts = shared.new_parts(ready)
    output = heeding(parts.decoder).transformer.proj_out
    learner = FewStepLearner(shared.tiny_config("distill", **FEW, pairs=0), copy.deepcopy(parts.decoder))
    red = torch.tensor([1.0, -1.0, -1.0])[:, None, None].expand(2, 5, 3, 4, 4)
    with mock.patch.object(few_steps, "decoding", lambda *_: nullcontext(lambda latents: red)):
        trainer = SimpleNamespace(learner=learner, data=ready, device=CPU, config=learner.settings)
        with mock.patch.object(learner, "batch", wraps=learner.batch) as read:
            signs = few_steps._signs(trainer, parts, None).tolist()
    assert read.call_args.args[1].tolist() == [18, 18, 19, 20, 21, 21, 22, 23], "of all held-out clips"
    assert signs == pytest.approx([0, 2 / math.sqrt(3), 8 / 9], rel=0.01), "still and red"

    def spoil(step, *_):
        assert step > 2 or not list(tmp_path.glob("last_good*")), "pairs are not watched"
        if step == 3:  # still grey shots
            output.requires_grad_(False).weight.zero_()

    options = {**FEW, "pairs": 1, "steps": 4, "watch_every": 1, "collapse": 20.0}
    with pytest.raises(ValueError, match=r"collapsed at step 3: .* motion 0\.0.*last_good.safetensors has .* lower"):
        shared.run("distill", parts, ready, tmp_path, {"on_step": spoil}, **options)
    assert adapter_facts(tmp_path / "last_good.safetensors").sampling.steps == FEW["timesteps"]


def test_teacher_and_student_on_one_decoder_do_not_draw_with_each_others_lora(ready):
    config = shared.tiny_config("distill", **FEW, **UPDATES, pairs=0)
    learner = FewStepLearner(config, heeding(shared.new_parts(ready).decoder)).eval()
    batch, _ = batch_of(learner, ready), set_trainable(learner, config)

    def found():
        with torch.no_grad(), learner._fake() as fake:
            seen = learner._pass(fake, batch["clean"], batch)
        return [seen, *(learner.drawn(batch, by_teacher) for by_teacher in (True, False))]

    before = found()
    for adapter, stays in {"fake": [False, True, True], "default": [True, True, False]}.items():
        for name in [name for name, _ in learner.named_parameters() if f".lora_B.{adapter}." in name]:
            torch.nn.init.ones_(learner.get_parameter(name))
        now = found()
        assert list(map(torch.equal, now, before)) == stays, adapter
        before = now


@pytest.mark.parametrize("pairs", [3, 0])
def test_a_few_step_lora_learns_the_same_if_activations_are_computed_again(pairs, ready, tmp_path):
    """The backward pass computes them with the LoRA of the pass before it, student's or fake score's."""
    found = []
    for again in (False, True):
        parts, changes = shared.new_parts(ready), {**UPDATES, **FEW, "checkpointing": again, "collapse": 0}
        steps = {"pairs": pairs, "steps": 6, "fake_updates": 2, "lr": 1e-2, "matching_lr": 1e-2, "gan": 0.0}
        heeding(parts.decoder)
        shared.run("distill", parts, ready, tmp_path / str(again), **changes, **steps)
        found.append(load_file(tmp_path / str(again) / "distill.safetensors"))
        assert not any("lora" in name for name in parts.decoder.state_dict()), "the fake score does not stay beside it"
    plain, again = found
    assert plain.keys() == again.keys() and any(value.abs().max() > 1e-3 for value in plain.values())
    assert all(torch.equal(plain[name], again[name]) for name in plain)
