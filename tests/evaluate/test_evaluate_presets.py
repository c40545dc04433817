"""The task `evaluate presets`, end to end in a tiny world of random weights, and a preset in the acceptance table."""

import json
import math
from dataclasses import replace

import pytest
import torch
from test_evaluate_toybox import tiny_world  # noqa: F401  a fixture

from animegamer_core.__main__ import main
from animegamer_core.cli.evaluate import Presets
from animegamer_core.cli.options import parse
from animegamer_core.evaluate.estimates import psnr
from animegamer_core.evaluate.presets import REPEATS, in_proportion
from animegamer_core.evaluate.toybox.context import EvalContext, Sampling
from animegamer_core.evaluate.toybox.rows import SCORED
from animegamer_core.evaluate.toybox.run import EvalRun, Plan
from animegamer_core.runtime.presets import PRESETS, Preset, preset_for_device
from animegamer_core.spec import PROFILES, SPECS, resolve_sampling
from animegamer_core.weights import open_world

SMALL = Plan(shots=3, true=3, sweeps=1, games=2, turns=3, colours=2, unseen=1)


@pytest.fixture(scope="module")
def run(tiny_world, tmp_path_factory):  # noqa: F811
    """The task's exit status and what it saved; preset live has one step of this world's two."""
    rows = {**PRESETS, "live": replace(PRESETS["live"], steps=1)}
    out = tmp_path_factory.mktemp("out")
    words = ["--world", str(tiny_world), "--limit", "1", "--workers", "1", "--device", "cpu", "--out", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("animegamer_core.runtime.presets.PRESETS", rows)
        status = parse(Presets, [*words, "--presets", "live", "exact"], "evaluate presets", "").run()
    return status, json.loads((out / "presets.json").read_text())


def test_exact_comes_first_and_everything_is_held_against_it(run):
    status, values = run
    assert status == 0 and values["command"].startswith("python -m animegamer_core"), "as it can be typed again"
    assert [score["preset"]["name"] for score in values["presets"]] == ["exact", "none", "live"]
    exact, none, live = values["presets"]
    assert (exact["steps"], none["steps"], live["steps"]) == (2, 2, 1)
    assert exact["psnr"] is None
    assert none["psnr"] is None or none["psnr"] > 40  # steps of weak guidance, with and without the other half
    assert 5 < live["psnr"] < 60
    for score in values["presets"]:
        assert len(score["seconds"]) == REPEATS and score["median"] > 0
        assert score["recognition"]["count"] == 4 * score["accuracy"]["count"] == 4 * values["shots"]
        heads = [score["recognised"][head]["value"] for head in SCORED]
        assert score["recognition"]["value"] == pytest.approx(sum(heads) / 4)
    assert values["fingerprint"] and values["machine"]["torch"] and values["dtype"] == "float32"


def test_steps_in_proportion_are_a_share_of_the_worlds_own():
    def steps(name, spec):
        return resolve_sampling(spec, PROFILES["paper"], preset=in_proportion(PRESETS[name], spec)).steps

    assert [steps(name, SPECS["toybox"]) for name in ("exact", "balanced", "live")] == [16, 8, 4]
    assert steps("live", SPECS["tiny"]) == 1


def test_a_preset_in_the_acceptance_table_stands_beside_exact(tiny_world, tmp_path, capsys):  # noqa: F811
    words = ["evaluate", "toybox", "--world", str(tiny_world), "--rows", "shots", "--limit", "1", "--device", "cpu"]
    assert main([*words, "--preset", "live", "--steps", "1", "--workers", "1", "--out", str(tmp_path)]) in (0, 1)
    assert "PSNR to the shots of preset exact" in capsys.readouterr().out
    report = json.loads((tmp_path / "report.json").read_text())
    sampling = report["sampling"]
    assert (sampling["preset"], sampling["steps"], sampling["tuned"]) == ("live", 1, ["fused", "layout", "onednn"])
    assert sampling["in_place_of_the_presets"] == ["steps 1 instead of the preset's 12"]
    line = next(line for line in report["lines"] if line["name"].startswith("PSNR"))
    assert line["unit"] == "dB" and 5 < line["value"] < 60


def test_every_lab_draws_the_same_scenes(tiny_world):  # noqa: F811
    world = open_world(tiny_world)
    plain = EvalRun(EvalContext(world, workers=1), SMALL, seed=3)
    ready = plain.with_context(plain.context.with_sampling(Sampling(preset=preset_for_device(PRESETS["exact"], "cpu"))))
    assert ready.true is plain.true and ready.states is plain.states
    assert hasattr(ready.context.decoder.transformer.transformer_blocks[0].attn1, "to_qkv")
    assert psnr(ready.shots, plain.shots) > 60 or math.isinf(psnr(ready.shots, plain.shots))
    quick = plain.with_context(
        plain.context.with_sampling(Sampling(preset=Preset("quick", "", steps=1, guidance="constant")))
    )
    assert quick.context.options == {"steps": 1, "guidance": "constant"} and psnr(quick.shots, plain.shots) < 60
    assert plain.context.decoder is not quick.context.decoder
    assert len(plain.measured_levels) == len(plain.asked_levels) == 3


def test_shots_decide_alone_what_a_cache_skips(tiny_world):  # noqa: F811
    """A batch would decide together, and a shot would depend on its neighbours."""
    sampling = Sampling(preset=Preset("cached", "", optimizations=("first_block",)))
    states, seeds = torch.randn(3, 8, 32, generator=torch.Generator().manual_seed(0)), [1, 2, 3]
    context = EvalContext(open_world(tiny_world), workers=1, sampling=sampling)
    together = context.shoot(states, [2.0, 3.0, 4.0], seeds)
    assert (together[1:2] == context.shoot(states[1:2], [3.0], [2])).all()
    assert context.batch == 1
