"""World folders, their tensors, and the key tables."""

import json
import math
import os
import re
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_world import save_tiny_world

from animegamer_core.game.life import PUBLISHED_RULES, Life
from animegamer_core.game.state import MotionTable
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.engine import GameEngine
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.train.stages import stage_config
from animegamer_core.weights import CheckpointError, open_world, save_part, save_world, storage
from animegamer_core.weights.adapter_files import read_adapter, save_adapter
from animegamer_core.weights.save import writing

TABLE = MotionTable("measured", (0.1, 0.5, 1.0, 2.0, 4.0), (0.2, 0.7, 1.5, 3.0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory, tiny_encoder):
    """A whole tiny world, to be read only."""
    return save_part(save_tiny_world(tmp_path_factory.mktemp("saved") / "tiny"), tiny_encoder)


@pytest.fixture
def world(saved, tmp_path):
    """A copy of it."""
    shutil.copytree(saved.folder, tmp_path / "tiny")
    return open_world(tmp_path / "tiny")


def file_of(world, part, kind="model*"):
    """The only file of a kind in a part's folder."""
    (path,) = (world.folder / part).glob(kind)
    return path


def same(ours, theirs):
    expected = theirs.state_dict()
    return all(torch.equal(value, expected[name]) for name, value in ours.state_dict().items())


# ---- save, open, load


def test_a_world_comes_back_as_it_was(tmp_path, tiny_engine, tiny_decoder, tiny_encoder):
    facts = {"motion_table": TABLE, "provenance": {"made_by": "test"}, "licence": "ours", "trained_window": 0}
    saved = save_world(tmp_path / "w", SPECS["tiny"], **facts)
    for model in (tiny_engine, tiny_decoder, tiny_encoder):
        saved = save_part(saved, model)
    world = open_world(tmp_path / "w")
    assert world == saved and world.motion_table == TABLE and world.licence == "ours"
    assert not world.missing() and world.window == 0
    world.verify()
    assert same(world.load_engine(), tiny_engine) and same(world.load_decoder(), tiny_decoder)
    assert same(world.load_encoder(), tiny_encoder)
    instruction = "Character: Momo; Motion: run; Background: day park."
    ours, theirs = world.load_engine().predict((), instruction), tiny_engine.predict((), instruction)
    assert ours.change == theirs.change and torch.equal(ours.representation, theirs.representation)
    picture = torch.zeros(1, 3, 20, 30)
    assert torch.equal(world.load_encoder()(["run"], picture), tiny_encoder(["run"], picture))
    life = Life(replace(PUBLISHED_RULES, stats=PUBLISHED_RULES.stats[:2]))
    save_world(world.folder, world.spec, life=life)
    assert save_world(world.folder, world.spec).life == open_world(world.folder).life == life, "it is kept"


def test_no_file_passes_the_shard_size(tmp_path, tiny_engine):
    world = save_part(save_world(tmp_path / "w", SPECS["tiny"]), tiny_engine, max_shard_bytes=70_000)
    shards = [note for path, note in world.files.items() if path.endswith(".safetensors")]
    assert len(shards) > 2 and all(note.bytes < 70_000 + 10_000 for note in shards)
    assert same(world.load_engine(), tiny_engine)
    whole = save_part(world, tiny_engine)
    assert file_of(whole, "engine").is_file(), "the old shards are gone"
    assert same(whole.load_engine(), tiny_engine)


@pytest.mark.parametrize(("stored", "native"), [(torch.float32, True), (torch.bfloat16, False), (torch.bfloat16, True)])
def test_precision_of_files_and_models(tmp_path, tiny_decoder, monkeypatch, stored, native):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx512_bf16": native}, raising=False)
    world = save_part(save_world(tmp_path / "w", SPECS["tiny"]), tiny_decoder, dtype=stored)
    assert {value.dtype for value in load_file(file_of(world, "vae")).values()} == {stored}
    assert world.stored_dtype("decoder") == torch.bfloat16
    with pytest.raises(CheckpointError, match="engine"):
        world.stored_dtype("engine")
    computed = torch.bfloat16 if native and stored == torch.bfloat16 else torch.float32
    assert {p.dtype for p in world.load_decoder().parameters()} == {computed}
    assert {p.dtype for p in world.load_decoder(dtype=torch.float16).parameters()} == {torch.float16}


def test_weights_in_8_bits(tmp_path, tiny_tokenizer, tiny_decoder):
    model, matrix = GameEngine(SPECS["tiny"], tiny_tokenizer, PROFILES["paper"]), "project_in.0.weight"
    model.state_dict()[matrix][:2] = torch.tensor([[0.0], [1e-5]])
    world = save_part(save_world(tmp_path / "w", SPECS["tiny"]), model, dtype=torch.int8)
    stored = load_file(path := file_of(world, "engine"))
    assert path.stat().st_size < 1.2 * sum(value.numel() for value in model.state_dict().values())
    assert stored[f"{matrix}.scale"].shape == (len(stored[matrix]), 1), "small rows keep their digits"
    assert world.source("engine").dtype(matrix) == world.stored_dtype("engine") == torch.float16
    loaded = world.load_engine(dtype=torch.float32)
    for name, value in model.state_dict().items():
        step = stored.get(f"{name}.scale", torch.tensor(0)).float()
        error = (loaded.state_dict()[name] - value).abs()
        assert (error <= 0.501 * step + 5e-4 * value.abs() + 1e-7).all(), name  # the last two: rounding to fp16
    loaded.predict((), "Character: Momo; Motion: run; Background: day park.")
    kernels = load_file(file_of(save_part(world, tiny_decoder, dtype=torch.int8), "vae"))
    assert {value.dtype for value in kernels.values() if value.dim() == 4} == {torch.float16}, "their errors are seen"
    del stored[f"{matrix}.scale"]
    save_file(stored, foreign := tmp_path / "foreign.safetensors")
    with pytest.raises(CheckpointError, match=f"foreign.safetensors: '{matrix}' is int8 without {matrix}.scale"):
        storage.SafetensorsSource(foreign)


def test_a_value_too_large_for_the_file_is_refused(tmp_path, tiny_decoder):
    model = ShotDecoder(SPECS["tiny"])
    model.transformer.proj_out.bias.data[0] = 1e6
    world = save_world(tmp_path / "w", SPECS["tiny"])
    with pytest.raises(CheckpointError, match="transformer.proj_out.bias: a value of 1e.06 does not fit"):
        save_part(world, model, dtype=torch.float16)


def test_the_fingerprint_tells_worlds_apart(world, tiny_encoder):
    assert open_world(world.folder).fingerprint == world.fingerprint
    others = (save_tiny_world(world.folder.parent / "other", seed=1), replace(world, motion_table=TABLE))
    fewer = replace(world, spec=replace(world.spec, decoder=replace(world.spec.decoder, steps=3)))
    assert len({one.fingerprint for one in (world, world.with_profile("as_run"), fewer, *others)}) == 5
    assert save_part(world, tiny_encoder, dtype=torch.float16).fingerprint == world.fingerprint, "it plays the same"


# ---- what goes wrong


def edit(world, **changes):
    path = world.folder / "world.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"format": 2}, "format is 2, this program reads 1; update"),
        ({"profile": "free"}, "field profile: invalid enum value 'free'"),
        ({"motion_table": {"name": "x", "values": [1, 2], "edges": None}}, "field motion_table.values: .*length >= 5"),
        ({"spec": {"name": "x", "engine": {"heads": 0}}}, "field spec.engine.heads"),
    ],
)
def test_a_manifest_that_cannot_be_used(world, changes, match):
    edit(world, **changes)
    with pytest.raises(CheckpointError, match=match) as caught:
        open_world(world.folder)
    assert "world.json" in str(caught.value) and "\n" not in str(caught.value)


def test_changed_files_are_found(world):
    """Also a tokenizer that can still be read: another word's id would change what every prompt says."""
    path = file_of(world, "engine", "tokenizer*")
    path.write_text(path.read_text().replace("beach", "peach"))
    other = "this is not the file that the world was saved with"
    with pytest.raises(CheckpointError, match=f"engine/tokenizer-.*: {other}"):
        world.load_engine()
    path = file_of(world, "decoder")
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    world.verify(("vae",))
    with pytest.raises(CheckpointError, match=f"decoder.model-.*: {other}"):
        world.verify(("decoder",))


def test_a_part_that_is_not_whole_is_missing(world):
    shutil.rmtree(world.folder / "encoder")
    world.load_engine()
    assert len(world.missing()) == 3
    with pytest.raises(CheckpointError, match="text_tower is not complete in .*where files are missing .*t5-v1_1-xxl"):
        world.load_encoder(parts=("text_tower",))
    path = file_of(world, "vae")
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    assert world.missing()[0].startswith("vae ")
    with pytest.raises(CheckpointError, match="vae is not complete in .*vae, where files are missing or cut off"):
        world.load_decoder()


def reseal(world, path):
    """Make the manifest agree with a changed file, so that only the file's content can be found wrong."""
    changed = {path.relative_to(world.folder).as_posix(): vars(storage.note_of(path))}
    edit(world, files={**json.loads((world.folder / "world.json").read_text())["files"], **changed})
    return open_world(world.folder)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda t: t.pop("llm.lm_head.weight"), "1 missing tensor.s.: llm.lm_head.weight"),
        (lambda t: t.update(colour=torch.zeros(2)), "1 unknown tensor.s.: colour"),
        (lambda t: t.update({"project_in.0.bias": torch.zeros(3)}), "project_in.0.bias' has shape .3,., .*expects .32"),
    ],
)
def test_tensors_that_do_not_fit_the_spec(world, change, match):
    path = file_of(world, "engine")
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=match):
        reseal(world, path).load_engine()


@pytest.mark.parametrize("value", [math.nan, -math.inf])
def test_a_number_that_is_none_is_named_with_its_file(world, tmp_path, value):
    path, name = file_of(world, "vae"), "decoder.conv_in.conv.bias"
    tensors = load_file(path)
    tensors[name][0] = value
    save_file(tensors, path, {"format": "pt"})
    for dtype in (None, torch.bfloat16):
        with pytest.raises(CheckpointError, match=f"{re.escape(str(path))}: '{name}' holds NaN or infinity"):
            open_world(world.folder).load_decoder(dtype=dtype)
    spoilt = {"engine.x": tensors[name]}
    save_adapter(tmp_path / "spoilt.safetensors", "joint", stage_config("joint"), spoilt, {})
    with pytest.raises(ValueError, match=r"spoilt\.safetensors: .* holds NaN or infinity"):
        read_adapter(tmp_path / "spoilt.safetensors")


@pytest.mark.parametrize("crash_at", range(6))  # the last step replaces the manifest
def test_a_crash_while_saving_leaves_the_old_part(world, monkeypatch, crash_at):
    torch.manual_seed(9)
    other = GameEngine(SPECS["tiny"], world.tokenizer(), PROFILES["paper"])
    before, steps, real = world.load_engine(), iter(range(100)), os.replace

    def crash(source, target):
        if next(steps) == crash_at:
            raise KeyboardInterrupt
        real(source, target)

    monkeypatch.setattr("os.replace", crash)
    with pytest.raises(KeyboardInterrupt):
        save_part(world, other)
    monkeypatch.undo()
    after = open_world(world.folder)
    after.verify()
    assert same(after.load_engine(), before)
    with writing(world.folder):
        files = {path.relative_to(world.folder).as_posix() for path in (world.folder / "engine").glob("*")}
        assert files == set(after.notes("engine")), "what the crash left is removed"
    assert same(save_part(after, other).load_engine(), other)
