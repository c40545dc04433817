"""Presets: what a name means in each world, what it does to a decoder, and what it saves."""

import json
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from test_tuning import decoder, shot
from tiny_world import save_tiny_world

from animegamer_core.__main__ import main
from animegamer_core.bench import run as bench_run
from animegamer_core.bench.measure import counted
from animegamer_core.bench.plain import PlainTurn
from animegamer_core.bench.run import Plan, run_bench
from animegamer_core.bench.trials import DriftMeter
from animegamer_core.bench.turn import past_turns, resting_models
from animegamer_core.decoder import ShotDecoder
from animegamer_core.play import PlaySettings
from animegamer_core.presets import (
    PRESETS,
    Preset,
    PresetModels,
    check_streaming,
    get_preset,
    in_room,
    overridden,
    prepare,
    preset_on,
    settings_by,
)
from animegamer_core.spec import PROFILES, RELEASE, SPECS
from animegamer_core.story import Story
from animegamer_core.tuning import TUNINGS, Tuning, check_names

CPU = torch.device("cpu")
PAPER = PROFILES["paper"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return save_tiny_world(tmp_path_factory.mktemp("world"))


def test_the_rows_are_those_that_are_promised():
    assert list(PRESETS) == ["exact", "balanced", "live", "low_vram", "low_vram_12", "low_vram_16"]
    for name, row in PRESETS.items():
        assert row.name == name and row.about
        check_names(row.tunings)
    steps = [PRESETS[name].steps_in(RELEASE) for name in ("exact", "balanced", "live", "low_vram")]
    assert steps == [50, 24, 12, 50]
    budgets = [PRESETS[name].stream_gib for name in ("low_vram", "low_vram_12", "low_vram_16")]
    assert budgets[0] <= 7.0 and budgets == sorted(budgets) and budgets[2] < 16


@pytest.mark.parametrize("name", ["exact", "low_vram", "low_vram_12", "low_vram_16"])
def test_all_steps_are_those_that_the_profile_asks_for(name):
    row = PRESETS[name]
    assert row.steps is None and not any(TUNINGS[way].approximates for way in row.tunings)
    for profile in PROFILES.values():
        skip = 0.0 if name == "exact" else profile.skip_guidance_below  # exact leaves no half out
        assert row.profile_of(profile) == replace(profile, skip_guidance_below=skip)
        assert row.guidance_in(profile) == profile.guidance


def test_steps_are_never_more_than_the_worlds_own():
    assert PRESETS["live"].steps_in(SPECS["tiny"]) == 4
    assert PRESETS["balanced"].steps_in(SPECS["toybox"]) == 20


def test_an_unknown_name_lists_the_names():
    with pytest.raises(ValueError, match="unknown preset 'faster'; choose one of exact, balanced, live"):
        get_preset("faster")


def test_the_address_names_what_changes_more_than_rounding():
    assert PRESETS["exact"].drawn(PAPER) == "+skip0" and PRESETS["exact"].drawn(PROFILES["reference"]) == ""
    assert PRESETS["low_vram"].drawn(PAPER) == "+tiled"
    row = Preset("x", "", 12, "cosine", 1.3, ("fused", "first_block", "fp8"))
    assert row.drawn(PAPER) == "+fp8+first_block+skip1.3"
    same = replace(row, skip_guidance_below=PAPER.skip_guidance_below, tunings=("fused",))
    assert same.drawn(PAPER) == "" and same.drawn(PROFILES["reference"]) == "+skip1.05"


def test_a_small_device_decodes_in_tiles_which_the_address_says():
    spec, told = SPECS["toybox"], []
    decoder = ShotDecoder(spec)
    needed = sum(tensor.nbytes for tensor in decoder.state_dict().values()) + decoder.working_bytes
    exact = PRESETS["exact"]
    assert in_room(exact, spec, torch.float32, needed, told.append) is exact and not told
    small = in_room(exact, spec, torch.float32, needed - 1, told.append)
    assert small.tiled and small.drawn(PAPER) == "+skip0+tiled"
    assert small.tunings == tuple(name for name in exact.tunings if name != "vae")
    assert len(told) == 2 and "tiles" in told[0] and told[1].startswith("preset exact: vae left out")
    assert not in_room(exact, spec, torch.bfloat16, needed - 1).tiled
    prepare(decoder, replace(small, tunings=()))
    assert decoder.tiled


def test_a_device_leaves_out_what_is_for_another_and_says_so(monkeypatch):
    told = []
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setenv("CC", "cc")
    row = preset_on(PRESETS["exact"], "cpu", told.append)
    assert row.tunings == ("fused", "layout", "onednn")
    assert told == ["preset exact: flash3, gelu, blocks, vae left out, of no use on cpu"]
    assert preset_on(PRESETS["exact"], "cuda:1", told.append).tunings == ("fused", "layout", "gelu", "blocks", "vae")
    why = {"onednn": "of no use on cuda:1", "flash3": "since cuda:1 is no Hopper GPU"}
    assert told[1:] == [f"preset exact: {name} left out, {reason}" for name, reason in why.items()]
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert preset_on(PRESETS["exact"], "cuda", told.append).tunings == ("fused", "gelu")
    assert "preset exact: blocks, vae left out, since triton is not installed" in told
    assert "preset exact: layout left out, which slows a GPU down unless the VAE is compiled" in told
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert preset_on(PRESETS["exact"], "cpu", told.append).tunings == ("fused", "layout")
    assert "preset exact: onednn left out, since this torch was built without oneDNN" in told


def test_streaming_needs_a_gpu():
    with pytest.raises(ValueError, match="the device is cpu; choose exact"):
        preset_on(PRESETS["low_vram"], "cpu")


def test_a_prepared_decoder_draws_the_exact_shot():
    plain, ready = decoder(), decoder()
    plain.profile = replace(plain.profile, skip_guidance_below=0.0)
    prepare(ready, preset_on(PRESETS["exact"], "cpu"))
    assert hasattr(ready.transformer.transformer_blocks[0].attn1, "to_qkv")
    torch.testing.assert_close(shot(ready), shot(plain), rtol=0, atol=5e-5)


def test_a_prepared_decoder_skips_as_the_preset_says():
    calls, model = [], decoder()
    prepare(model, Preset("bold", "", skip_guidance_below=99.0))
    model.transformer.register_forward_hook(lambda module, given, output: calls.append(len(output[0])))
    shot(model)
    assert calls == [1, 1, 1, 1] and model.profile.guidance == PAPER.guidance


def test_what_is_given_wins_over_the_preset_and_is_told(world):
    settings = settings_by(PRESETS["live"], PlaySettings(steps=3), world)
    assert (settings.steps, settings.guidance, settings.drawn) == (3, "cosine", "")
    assert settings_by(PRESETS["live"], PlaySettings(), world).steps == 4
    assert overridden(PRESETS["live"], steps=3, guidance=None) == ("steps 3, in place of the preset's 12",)
    assert overridden(PRESETS["exact"], tunings=("fused",), steps=9) == (
        "tunings fused, in place of the preset's fused, layout, onednn, flash3, gelu, blocks, vae",
        "steps 9, in place of the preset's none of its own",
    )


def test_one_device_at_a_time_where_weights_stream(world):
    with pytest.raises(ValueError, match="leave the halves' second one out"):
        PresetModels(world, PlaySettings(halves="cuda:1"), PRESETS["low_vram"])


def test_models_of_a_preset_are_the_worlds_own_made_ready(world):
    models = PresetModels(world, PlaySettings(), preset_on(PRESETS["exact"], "cpu"))
    assert hasattr(models.decoder().transformer.transformer_blocks[0].attn1, "to_qkv")
    assert models.decoder() is models.decoder() and models.engine() is models.engine()
    stored = world.load_engine().state_dict()
    assert all(torch.equal(value, stored[name]) for name, value in models.engine().state_dict().items())


class CpuCard:
    """Stands in for a GPU's memory: what it is given to stream, it remembers and leaves where it is."""

    def __init__(self):
        self.streamed = []

    def stream(self, model):
        self.streamed.append((type(model).__name__, next(model.parameters()).dtype))
        return (SimpleNamespace(text=f"share of {type(model).__name__}"),)


def test_a_slow_start_is_told(world, monkeypatch):
    monkeypatch.setattr("animegamer_core.presets.tune", lambda decoder, names: None)
    for tunings, told in ((("fused", "blocks"), 1), (("fused",), 0)):
        said = []
        prepare(world.load_decoder(), Preset("mine", "", tunings=tunings), say=said.append)
        assert said == ["preset mine: the first shot compiles, which takes a minute or two"] * told


def test_models_that_stream_are_loaded_on_the_host_in_the_type_of_the_card(world, monkeypatch):
    card = CpuCard()
    monkeypatch.setattr("animegamer_core.presets.card_of", lambda preset, device: card)
    models = PresetModels(world, PlaySettings(device="cuda"), replace(PRESETS["low_vram"], tunings=("fused",)))
    assert models.decoder().tiled and hasattr(models.decoder().transformer.transformer_blocks[0].attn1, "to_qkv")
    kind = world.stored_dtype("decoder")
    assert models.engine() and card.streamed == [("ShotDecoder", kind), ("GameEngine", kind)]
    assert kind != torch.float32  # which the CPU would have got


def test_an_engine_with_a_device_of_its_own_does_not_stream(world, monkeypatch):
    card = CpuCard()
    monkeypatch.setattr("animegamer_core.presets.card_of", lambda preset, device: card)
    settings = PlaySettings(device="cuda", engine_device="cpu")
    assert PresetModels(world, settings, PRESETS["low_vram"]).engine() and card.streamed == []


def test_the_bench_streams_both_models_through_one_card(monkeypatch):
    card, told = CpuCard(), []
    monkeypatch.setattr(bench_run, "card_of", lambda preset, device: card)
    bench = run_bench(bench_plan(preset=Preset("small", "", 1, tunings=("fused",), stream_gib=1.0)), told.append)
    assert [name for name, _ in card.streamed] == ["GameEngine", "ShotDecoder"]
    assert "share of GameEngine" in told and "share of ShotDecoder" in told
    assert bench.facts["stream_gib"] == 1.0 and all(row.ours.flop > 0 for row in bench.rows)


def play(world, folder, *words):
    game = folder / "game.txt"
    game.write_text("Character: girl; Motion: quickly run; Background: day forest.\n", encoding="utf-8")
    return main(["play", str(game), "--world", str(world.folder), "--out", str(folder), "--device", "cpu", *words])


def shots_of(folder, world):
    story = Story.open(folder, "game", world.spec.name, world.fingerprint)
    return [json.loads(path.read_text())["key"] for path in sorted(story.shots.folder.glob("*.json"))]


def test_a_preset_that_only_rounds_finds_the_shots_that_were_there(world, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(PRESETS, "tuned", Preset("tuned", "", tunings=("fused", "layout")))
    assert play(world, tmp_path) == 0
    first = shots_of(tmp_path, world)
    assert play(world, tmp_path, "--preset", "tuned") == 0
    assert shots_of(tmp_path, world) == first and "(known)" in capsys.readouterr().out


def test_a_preset_that_approximates_has_shots_of_its_own(world, tmp_path, monkeypatch, capsys):
    row = Preset("sketch", "", 2, "constant", tunings=("fused", "first_block"))
    monkeypatch.setitem(PRESETS, "sketch", row)
    assert play(world, tmp_path) == 0
    assert play(world, tmp_path, "--preset", "sketch", "--steps", "3") == 0
    exact, sketch = sorted(shots_of(tmp_path, world), key=lambda key: key["precision"])
    assert (exact["precision"], sketch["precision"]) == ("float32", "float32+first_block")
    assert (sketch["steps"], sketch["guidance"]) == (3, "constant") and exact["state"] == sketch["state"]
    assert "preset sketch: steps 3, in place of the preset's 2" in capsys.readouterr().err


@pytest.fixture(autouse=True)
def no_matmul(monkeypatch):
    """What this machine can reach at best takes longer to measure than a tiny turn."""
    monkeypatch.setattr(bench_run, "matmul_tflops", lambda device, dtype: 1.0)


def bench_plan(**changes):
    return Plan(**{"spec": SPECS["tiny"], "device": CPU, "dtype": torch.float32, "repeats": 1, **changes})


def operations(name, spec):
    """The sampler's arithmetic as a share of the stock sampler's, by counting."""
    plan = bench_plan(spec=spec, preset=preset_on(PRESETS[name], "cpu"))
    turn = bench_run._ours(plan)
    prepare(turn.decoder, plan.made)
    stock = PlainTurn.of(spec, CPU, torch.float32, plan.stock_steps)
    return counted(turn.parts()["sampler"]) / counted(stock.parts()["sampler"])


@pytest.mark.parametrize(("name", "share"), [("exact", 1.0), ("balanced", 0.34), ("live", 0.17)])
def test_arithmetic_saved_against_the_stock_sampler_stays_saved(name, share):
    """Of the released worlds' 50 steps, at a tiny size: a ratio of counts, so it holds on any machine."""
    spec = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, steps=50, guidance_scale=6.0))
    assert operations(name, spec) == pytest.approx(share, abs=0.01)


def test_the_bench_runs_ours_by_the_preset_beside_the_worlds_own_steps():
    quick = Preset("quick", "", 2, "constant", tunings=("fused", "layout"))
    bench = run_bench(bench_plan(preset=quick))
    sampler = next(row for row in bench.rows if row.part == "sampler")
    assert (sampler.steps, sampler.our_steps) == (4, 2) and sampler.values()["our_steps"] == 2
    assert sampler.ours.flop / sampler.stock.flop == pytest.approx(0.5, rel=0.1)
    facts = bench.facts
    assert (facts["preset"], facts["tuned"], facts["guidance"]) == ("quick", ["fused", "layout"], "constant")
    assert facts["in_place_of_the_presets"] == []
    drift = bench.values()["drift"]
    assert 0 <= drift["latents"] < 1e-5 and 0 < drift["frames"] < 1e-5 and drift["format_latents"] is None
    assert "latents drift by" in bench.text and "the first time: sampler" in bench.text


def test_drift_is_told_beside_that_of_the_number_format():
    model = decoder().bfloat16()
    meter = DriftMeter(model)
    same = meter.of(model)
    assert (same.latents, same.frames) == (0, 0) and 1e-4 < same.format_frames < 0.5 > same.format_latents > 1e-4
    prepare(model, Preset("other", "", skip_guidance_below=99.0, tunings=("half_vae",)))
    tuned = meter.of(model)
    assert tuned.latents > 0 and 0 < tuned.frames < 2 * same.format_frames
    assert f"format itself by {same.format_latents:.2e}" in tuned.text


def test_ways_are_not_tried_one_by_one_while_weights_stream():
    with pytest.raises(ValueError, match="without such a preset"):
        run_bench(bench_plan(preset=PRESETS["low_vram"], alone=("fused",)))


def test_arithmetic_that_a_cache_leaves_out_is_counted(monkeypatch):
    monkeypatch.setattr("animegamer_core.tuning.caches.FIRST_BLOCK_THRESHOLD", 1e9)
    turn = bench_run._ours(bench_plan(preset=Preset("four", "", 4, "constant")))
    counts = [
        counted(bench_run._skipping(turn, names).parts()["sampler"]) for names in (["fused"], ["fused", "first_block"])
    ]
    assert counts[1] < 0.8 * counts[0]  # of two blocks, the second is asked at the first step only
    assert not turn.decoder.transformer.is_cache_enabled


def test_the_bench_tells_what_won_over_the_preset(capsys):
    words = ["--spec", "tiny", "--preset", "live", "--steps", "1", "--with", "layout", "--repeats", "1"]
    assert main(["bench", *words]) == 0
    printed = capsys.readouterr()
    assert "preset live: about a quarter of the steps" in printed.out
    assert "steps 1, in place of the preset's 12" in printed.out and "ours is tuned: layout" in printed.out
    assert "blocks, vae left out" in printed.err


def test_models_that_wait_on_the_host_are_of_the_same_sizes_and_run(tiny_engine, tiny_decoder):
    engine, model = resting_models(SPECS["tiny"], PAPER, torch.bfloat16)
    for made, like in ((engine, tiny_engine), (model, tiny_decoder)):
        assert {name: value.shape for name, value in made.state_dict().items()} == {
            name: value.shape for name, value in like.state_dict().items()
        }
        assert all(value.dtype == torch.bfloat16 and value.device.type == "cpu" for value in made.parameters())
    state = engine.predict(past_turns(SPECS["tiny"]), "Character: girl; Motion: quickly run; Background: day forest.")
    frames = model.shoot(state.representation, 2.5, seed=1, steps=1)
    assert bool(frames.isfinite().all())


def test_the_first_run_counts_what_a_way_takes_to_begin(monkeypatch):
    """As compiling does: the first shot that is drawn in the new way waits."""

    def slow(decoder):
        plain, waited = decoder.transformer.forward, []

        def forward(*given, **named):
            if not waited:
                waited.append(time.sleep(0.4))
            return plain(*given, **named)

        decoder.transformer.forward = forward

    monkeypatch.setitem(TUNINGS, "slow", Tuning("waits once", slow))
    bench = run_bench(bench_plan(preset=Preset("slow", "", tunings=("slow",)), alone=("slow",)))
    sampler = next(row for row in bench.rows if row.part == "sampler")
    assert sampler.ours.first > 0.4 > sampler.ours.median
    assert bench.trials.rows[0].first > 0.4


def test_a_preset_that_streams_refuses_ways_whose_weights_must_stay():
    for name in ("whole", "graph", "int8"):
        with pytest.raises(ValueError, match=f"tuning {name} needs weights that stay"):
            check_streaming(replace(PRESETS["low_vram"], tunings=(name,)))
    for row in PRESETS.values():
        check_streaming(row)


def test_models_that_could_not_be_made_ready_are_not_kept(world):
    models = PresetModels(world, PlaySettings(), Preset("odd", "", tunings=("fused", "cudnn")))
    for _ in range(2):
        with pytest.raises(ValueError, match="tuning cudnn is a GPU's attention"):
            models.decoder()
