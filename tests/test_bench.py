"""The verb `bench`: what it measures is there, comes from the right work, and compares like with like."""

import json
from pathlib import Path

import pytest
import torch
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.bench import run as bench_run
from animegamer_core.bench.measure import Timing, counted, timed
from animegamer_core.bench.plain import PlainTurn
from animegamer_core.bench.run import PARTS, Plan, check_plan, known_step_note, run_bench
from animegamer_core.bench.table import Bench, Row
from animegamer_core.bench.trials import drift, run_trials
from animegamer_core.bench.turn import OurTurn, past_turns, prompt_of, random_models
from animegamer_core.decoder import ShotDecoder
from animegamer_core.layers import JointAttention, opaque
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.tuning import FLASH3, tune

CPU = torch.device("cpu")


def plan(**changes):
    return Plan(**{"spec": SPECS["tiny"], "device": CPU, "dtype": torch.float32, "repeats": 1, **changes})


@pytest.fixture(scope="module")
def bench():
    return run_bench(plan(steps=3))


def test_every_part_is_timed_on_both_sides(bench):
    assert tuple(row.part for row in bench.rows) == PARTS
    for row in bench.rows:
        for side in (row.stock, row.ours):
            assert len(side.seconds) == 1 and side.median > 0 and side.flop > 0
    whole = {side: next(getattr(row, side) for row in bench.rows if row.part == "turn") for side in ("stock", "ours")}
    parts = {side: sum(getattr(row, side).flop for row in bench.rows if row.part != "turn") for side in whole}
    assert {side: timing.flop for side, timing in whole.items()} == parts  # a turn is its parts and nothing else


def test_both_sides_do_the_same_arithmetic_where_every_step_is_guided():
    """What differs is small: the text projection inside the stock transformer, the seam's two little layers."""
    guided = run_bench(plan(profile=PROFILES["reference"], steps=2))
    for row in guided.rows:
        if row.part != "engine":
            assert row.ours.flop == pytest.approx(row.stock.flop, rel=0.1), row.part
    assert (guided.facts["guided_steps"], guided.facts["unguided_steps"]) == (2, 0)


def test_products_that_end_otherwise_count_as_much(monkeypatch):
    """GELU inside its product, and attention as one operation of our own."""
    from test_tuning import by_rows

    def flop(*processors):
        torch.manual_seed(2)
        model = ShotDecoder(SPECS["tiny"], PROFILES["paper"]).eval()
        for change in processors:
            change(model)
        state = torch.zeros(1, SPECS["tiny"].state.tokens, 32)
        return counted(lambda: model.sample(state, torch.tensor([2.5]), [1], steps=1))

    def by_own(model):
        model.transformer.set_attn_processor(JointAttention(opaque(FLASH3, by_rows)))

    def ended(model):
        with monkeypatch.context() as there:
            there.setattr(torch.cuda, "is_available", lambda: True)
            tune(model, ["gelu"])

    assert flop(ended) == flop(by_own) == flop(ended, by_own) == flop()


def test_skipped_halves_are_told_and_counted(bench):
    facts = bench.facts
    assert facts["guidance"] == "cosine" and facts["unguided_steps"] >= 1
    sampler = next(row for row in bench.rows if row.part == "sampler")
    both, alone = facts["guided_steps"], facts["unguided_steps"]
    assert sampler.ours.flop / sampler.stock.flop == pytest.approx((both + alone / 2) / (both + alone), rel=0.1)


def test_the_stock_turn_is_of_the_same_sizes():
    spec = SPECS["tiny"]
    plain = PlainTurn.of(spec, CPU, torch.float32, steps=1)
    engine, decoder = random_models(spec, PROFILES["paper"], CPU, torch.float32)
    assert plain.length == len(prompt_of(engine, past_turns(spec)).ids_L)
    assert plain._sample().shape == (1, *spec.decoder.latent_shape)
    assert plain._decode(plain._noise()).shape[2:] == (spec.decoder.frames, spec.decoder.height, spec.decoder.width)
    for stock, ours in ((plain.vae, decoder.vae), (plain.engine, engine.llm)):
        assert sum(p.numel() for p in stock.parameters()) == sum(p.numel() for p in ours.parameters())


def test_operations_are_counted_as_by_hand():
    left, right = torch.randn(3, 5), torch.randn(5, 7)
    assert counted(lambda: left @ right) == 2 * 3 * 5 * 7


def test_operations_of_a_gpus_attention_are_counted_where_queries_share_keys():
    queries, keys = torch.empty(2, 8, 16, 64, device="meta"), torch.empty(2, 2, 24, 64, device="meta")
    attention = torch.ops.aten._scaled_dot_product_flash_attention
    assert counted(lambda: attention(queries, keys, keys)) == 2 * 2 * 8 * 16 * 24 * (64 + 64)


def test_work_is_warmed_up_once_and_then_repeated():
    calls = []
    timing = timed(lambda: calls.append(1), CPU, repeats=4, flop=8)
    assert len(calls) == 5 and len(timing.seconds) == 4 and timing.allocated is None


def test_medians_ratios_and_shares_by_hand():
    row = Row(
        "sampler",
        Timing((4.0, 2.0, 3.0), 9.0, flop=6 * 10**12),
        Timing((1.5, 1.5, 9.0), 9.0, flop=6 * 10**12),
        steps=10,
        our_steps=10,
    )
    assert row.ratio == 2.0 and row.ours.tflops == 4.0
    assert "300 / 150" in row.line(8.0) and "50 %" in row.line(8.0) and "1.500 .. 9.000" in row.line(8.0)
    assert row.values()["stock"]["median"] == 3.0
    assert "-" in Row("vae", Timing((1.0,), 1.0), Timing((1.0,), 1.0)).line(8.0)


@pytest.mark.parametrize(
    ("gpu", "seconds", "said"),
    [
        ("NVIDIA H200", 8.4, "known are 168 ms (+0 %)"),
        ("NVIDIA H200", 12.6, "compare the matmul"),
        ("NVIDIA L4", 30, None),
    ],
)
def test_the_stock_step_is_held_against_the_known_one(gpu, seconds, said):
    row = Row("sampler", Timing((seconds,), seconds), Timing((1.0,), 1.0), steps=50, our_steps=50)
    note = known_step_note(Bench((row,), 745.0, {"spec": "release", "machine": {"gpu": gpu}}))
    assert note is None if said is None else said in note
    assert ("compare" in (note or "")) == (said == "compare the matmul")


def test_a_worlds_own_weights_are_taken(tmp_path):
    tiny_world = save_tiny_world(tmp_path)
    turn = bench_run._ours(plan(spec=tiny_world.spec, world=tiny_world))
    assert isinstance(turn, OurTurn) and turn.guidance == tiny_world.profile.guidance
    stored = tiny_world.load_decoder(CPU, torch.float32).state_dict()
    assert all(torch.equal(value, stored[name]) for name, value in turn.decoder.state_dict().items())


def test_each_way_is_tried_alone_on_an_untuned_decoder(capsys):
    bench = run_bench(plan(steps=2, alone=("fused", "layout")), print)
    assert [row.name for row in bench.trials.rows] == ["fused", "layout"]
    for row in bench.trials.rows:
        assert row.drift < 1e-4 and row.against["sampler"] > 0 and row.first > 0
    assert bench.trials.format_drift is None  # float32 is what formats are held against
    assert "alone: layout" in capsys.readouterr().out and "fused " in bench.text and "~" not in bench.text
    with pytest.raises(ValueError, match="unknown tuning"):
        run_bench(plan(alone=("faster",)))


def test_a_way_that_approximates_is_marked():
    text = run_bench(plan(steps=2, alone=("layout", "first_block"))).text
    assert "\nfirst_block ~ " in text and "\nlayout  " in text and "(~ approximates" in text


def test_a_number_format_drifts_and_is_told():
    torch.manual_seed(0)
    _, decoder = random_models(SPECS["tiny"], PROFILES["paper"], CPU, torch.bfloat16)
    turn = OurTurn(None, decoder, 2, "cosine")
    assert 1e-4 < run_trials(turn, [], 1, {}, print).format_drift < 1
    assert drift(torch.tensor([3.0, 4.0]), torch.tensor([0.0, 5.0])) == pytest.approx((10 / 25) ** 0.5)


def test_the_command_prints_the_table_and_writes_json(tmp_path, capsys):
    assert main(["bench", "--spec", "tiny", "--steps", "1", "--repeats", "1", "--json", str(tmp_path / "b.json")]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n{part} " in printed for part in PARTS) and "random weights" in printed
    written = json.loads((tmp_path / "b.json").read_text())
    (values,) = written["benches"]
    assert [row["part"] for row in values["rows"]] == list(PARTS) and values["matmul_tflops"] > 0
    assert written["command"] and values["machine"]["torch"]


def test_several_presets_stand_beside_one_stock_turn(tmp_path, capsys, monkeypatch):
    turns, of = [], PlainTurn.of
    monkeypatch.setattr(PlainTurn, "of", lambda *given: turns.append(given) or of(*given))
    words = ["bench", "--spec", "tiny", "--device", "cpu", "--repeats", "1", "--preset", "exact", "live"]
    assert main([*words, "--json", str(tmp_path / "b.json")]) == 0
    first, second = json.loads((tmp_path / "b.json").read_text())["benches"]
    assert (first["preset"], second["preset"]) == ("exact", "live") and len(turns) == 1
    assert [row["stock"] for row in first["rows"]] == [row["stock"] for row in second["rows"]]
    printed = capsys.readouterr().out
    assert "preset exact:" in printed and "preset live:" in printed


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--spec", "tiny", "--world", "toybox"], "give one of them"),
        (["--world", "toybox", "--profile", "paper"], "leave it out"),
        (["--repeats", "0"], "1 time or more"),
        (["--spec", "tiny", "--steps", "0"], "steps is 0"),
        (["--device", "cuda:77"], "not available here"),
    ],
)
def test_wrong_arguments_say_what_to_do(words, sentence, capsys):
    assert main(["bench", *words]) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--guidance", "linear"], ["--profile", "mine"]])
def test_names_that_are_none_list_those_that_are(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(["bench", "--spec", "tiny", *words])
    assert left.value.code == 2 and f"invalid choice: '{words[1]}' (choose from" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"guidance": "linear"}, "unknown guidance 'linear'"),
        ({"guidance": ""}, "unknown guidance ''"),
        ({"steps": 0}, "steps is 0"),
        ({"steps": 1001}, "steps is 1001"),
    ],
)
def test_a_plan_that_cannot_be_measured_is_refused_before_anything_is(changes, sentence, monkeypatch):
    monkeypatch.setattr(PlainTurn, "of", lambda *given: pytest.fail("the stock turn was made"))
    with pytest.raises(ValueError, match=sentence):
        run_bench(plan(**changes))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tuned": ("fused", "flash3")}, "tuning flash3 cannot be measured here, of no use with float32; leave it out"),
        ({"dtype": torch.bfloat16, "alone": ("onednn",)}, "of no use with bfloat16"),
        ({"device": torch.device("cuda"), "alone": ("int8",)}, "since torchao is not installed"),
    ],
)
def test_what_a_machine_cannot_do_is_said_before_anything_is_measured(changes, says, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    told = []
    with pytest.raises(ValueError, match=says):
        run_bench(plan(**changes), told.append)
    assert not told


@pytest.mark.parametrize("name", ["cudnn", "gelu", "graph", "halves", "flash3", "fp8"])
@pytest.mark.parametrize("asked", ["tuned", "alone"])
def test_a_way_that_needs_a_gpu_is_refused_on_a_cpu_before_anything_is_measured(asked, name, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)  # one beside it is of no use to it
    dtype = torch.bfloat16 if name == "flash3" else torch.float32
    with pytest.raises(ValueError, match=f"tuning {name} .*, since it computes on cuda alone, and not on cpu; leave"):
        check_plan(plan(dtype=dtype, **{asked: (name,)}))


def test_a_way_of_a_cpu_is_refused_on_a_gpu_before_anything_is_measured():
    with pytest.raises(ValueError, match="tuning onednn .*, since it computes on cpu alone, and not on cuda:0"):
        check_plan(plan(device=torch.device("cuda:0"), alone=("onednn",)))


def test_a_way_that_is_meant_for_gpus_is_measured_on_a_cpu_too():
    check_plan(plan(alone=("blocks", "vae", "int8")))


@pytest.mark.parametrize(("place", "says"), [(".", "is a folder; give a file, such as "), ("f/x", "lies below a file")])
def test_a_place_that_no_file_can_have_is_refused_before_anything_is_measured(
    place, says, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(PlainTurn, "of", lambda *given: pytest.fail("the stock turn was made"))
    (tmp_path / "f").touch()
    assert main(["bench", "--spec", "tiny", "--json", str(tmp_path / place)]) == 2
    assert f"--json {tmp_path / place} {says}" in capsys.readouterr().err


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that nobody can write to")
def test_a_folder_that_takes_no_files_is_refused_before_anything_is_measured(capsys, monkeypatch):
    monkeypatch.setattr(PlainTurn, "of", lambda *given: pytest.fail("the stock turn was made"))
    assert main(["bench", "--spec", "tiny", "--json", "/proc/bench/b.json"]) == 2
    assert "bench: --json /proc/bench/b.json: /proc takes no files" in capsys.readouterr().err
