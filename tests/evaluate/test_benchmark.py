"""The verb `bench`: it measures the right work on both sides, and refuses what it cannot measure."""

import pytest
import torch
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.evaluate.benchmark import run as bench_run
from animegamer_core.evaluate.benchmark.run import BenchmarkPlan
from animegamer_core.runtime.presets import Preset
from animegamer_core.spec import SPECS

CPU = torch.device("cpu")


def plan(**changes):
    return BenchmarkPlan(**{"spec": SPECS["tiny"], "device": CPU, "dtype": torch.float32, "repeats": 1, **changes})


@pytest.fixture(scope="module", autouse=True)
def quick():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("animegamer_core.evaluate.benchmark.run.DRIFT_STEPS", 2)
        yield


def test_a_worlds_own_weights_are_taken(tmp_path):
    tiny_world = save_tiny_world(tmp_path)
    turn = bench_run.our_turn(plan(spec=tiny_world.spec, world=tiny_world))
    assert turn.sampling["guidance"] == tiny_world.profile.guidance
    stored = tiny_world.load_decoder(CPU, torch.float32).state_dict()
    assert all(torch.equal(value, stored[name]) for name, value in turn.decoder.state_dict().items())


def test_ours_runs_by_the_preset_beside_the_worlds_steps():
    asked = plan(preset=Preset("quick", 2, "constant", optimizations=("fused", "layout")))
    bench = bench_run.measure_ours(asked, bench_run.measure_stock(asked))
    facts = bench.facts
    assert (facts["preset"], facts["steps"], facts["guidance"]) == ("quick", "2, stock 4", "constant")
    assert max(bench.drift) < 1e-5 and "drift of latents" in bench.text


def test_wrong_arguments_say_what_to_do(capsys):
    wrong = {"--spec tiny --world toybox": "drop --spec and --profile", "--spec tiny --steps 0": "steps is 0"}
    for words, sentence in (wrong | {"--device cuda:77": "not available here"}).items():
        assert main(["bench", *words.split()]) == 2
        assert sentence in capsys.readouterr().err


def test_the_command_prints_what_is_measured_a_table_and_what_is_left_out(capsys):
    words = ["bench", "--spec", "tiny", "--device", "cpu", "--repeats", "1", "--preset", "live"]
    assert main([*words, "--steps", "999,400", "--solver", "ddim", "--with", "layout"]) == 0
    printed = capsys.readouterr()
    about = "weights: random|optimizations: layout|steps: (999, 400), stock 2|solver: ddim|engine |turn "
    for line in (*about.split("|"), f"torch: {torch.__version__}"):
        assert f"\n{line}" in printed.out
    assert "skipped flash3, gelu, blocks, vae" in printed.err
