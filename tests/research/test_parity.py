"""The parity verb: rows, exit status, and that it can tell right from wrong."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from animegamer_core.__main__ import main
from animegamer_core.research.parity import parity
from animegamer_core.research.parity.rows import Row, gap, row, table

KEPT = Path(__file__).parents[1] / "golden"
WHOLE = Path(__file__).parents[3] / "shared" / "golden"


def copy(folder, to, *parts):
    to.mkdir()
    for part in parts:
        for path in folder.glob(f"{part}*"):
            shutil.copyfile(path, to / path.name)
    return to


def change(path, edit):
    tensors = load_file(path)
    edit(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)


def test_the_kept_figures_agree():
    rows = {row.part: row for row in parity(KEPT)}
    agreeing = ("encoder projections", "transformer", "sampler tables", "sampler guidance", "sampler traces")
    agreeing += ("picture preprocessing", "picture tower", "reading of replies")
    assert {name for name, row in rows.items() if not row.absent} == set(agreeing)
    assert all(rows[name].ok for name in agreeing), table(rows.values())
    assert rows["transformer"].cases == 6 and rows["sampler traces"].cases == 5


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole set of golden figures is not beside this checkout")
def test_the_whole_set_agrees():
    rows = {row.part: row for row in parity(WHOLE)}
    assert all(row.ok and not row.absent for row in rows.values()), table(rows.values())
    counts = [rows[part].cases for part in ("representations as run", "chain")]
    assert counts == [9, 5], "turns 1 to 4 of windows 1, 2, 3 without those that are the same; the chain needs a past"
    assert rows["representations as run"].tolerance == rows["representations at full width"].tolerance == 5e-5


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole set of golden figures is not beside this checkout")
def test_without_a_tokenizer_only_the_row_of_ids_is_absent(tmp_path):
    folder = copy(WHOLE, tmp_path / "golden", "mllm_")
    facts = json.loads((folder / "mllm_io.json").read_text())
    facts["cases"] = {name: facts["cases"][name] for name in ("w1.turn1", "w2.turn2")}
    (folder / "mllm_io.json").write_text(json.dumps(facts))
    rows = {row.part: row for row in parity(folder)}
    assert rows["instruction tokens"].absent
    assert rows["prompts and masks"].cases == 2
    mine = [row for row in rows.values() if not row.absent]
    assert len(mine) == 9 and all(row.ok for row in mine), table(mine)


def test_another_set_of_cases_and_widths_of_numbers_is_read(tmp_path):
    folder = copy(KEPT, tmp_path / "golden", "dit_", "sampler")

    def fewer(tensors):
        for name in [name for name in tensors if name.startswith("ar.t")]:
            del tensors[name]

    change(folder / "dit_io.safetensors", fewer)
    facts = json.loads((folder / "sampler.json").read_text())
    facts["runs"] = {"run10_flownone": facts["runs"]["run10_flownone"]}
    facts["schedules"] = {"7": facts["schedules"]["7"]}
    (folder / "sampler.json").write_text(json.dumps(facts))
    rows = {row.part: row for row in parity(folder)}
    assert (rows["transformer"].cases, rows["sampler traces"].cases, rows["sampler guidance"].cases) == (4, 1, 1)
    assert all(row.ok for row in rows.values())


def spoil(folder, *places):
    """Add a thousandth to these tensors, each named FILE:TENSOR."""
    for place in places:
        file, _, name = place.partition(":")

        def edit(tensors, name=name):
            tensors[name] = tensors[name] + torch.tensor(1e-3, dtype=tensors[name].dtype)

        change(folder / f"{file}.safetensors", edit)


LAYER = "dit_state:model.diffusion_model.transformer.layers.1.attention.dense.matrix_A.0"
BLOCK = "clip_state:clip_img_encoder.model.visual.transformer.resblocks.1.attn.in_proj_bias"


@pytest.mark.parametrize(
    ("places", "wrong"),
    [
        (("dit_io:ar.mix_emb", "sampler:run10_flow2.5.final"), {"encoder projections", "sampler traces"}),
        ((LAYER, "sampler:s7.guidance", BLOCK), {"transformer", "sampler guidance", "picture tower"}),
        (("sampler:s25.sqrt_alphas_cumprod", "clip_io:pre_small"), {"sampler tables", "picture preprocessing"}),
    ],
)
def test_a_small_difference_is_found(tmp_path, capsys, places, wrong):
    folder = copy(KEPT, tmp_path / "golden", *{place.partition("_")[0].partition(":")[0] for place in places})
    spoil(folder, *places)
    assert main(["parity", str(folder)]) == 1
    found = {line.split("  ")[0] for line in capsys.readouterr().out.splitlines() if line.endswith("NOT OK")}
    assert found == wrong


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole set of golden figures is not beside this checkout")
def test_a_small_difference_in_the_whole_set_is_found(tmp_path):
    folder = copy(WHOLE, tmp_path / "golden", "mllm", "vae_")
    spoil(folder, "mllm_io:w1.turn1.hidden_tail", "mllm1920_io:w2.turn1.vid_output_rows")

    def chunked_for_full(tensors):
        tensors["decode.full"] = tensors["decode.chunked"].clone()

    change(folder / "vae_io.safetensors", chunked_for_full)
    rows = parity(folder)
    wrong = {"hidden states as run", "representations at full width", "VAE decode at once"}
    assert {row.part for row in rows if not row.ok} == wrong, table(rows)


def test_the_command_prints_a_row_for_every_part(tmp_path, capsys):
    folder = copy(KEPT, tmp_path / "golden", "sampler")
    assert main(["parity", str(folder)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["part", "cases", "max", "abs", "difference", "tolerance", "ok"]
    assert sum("absent" in line for line in lines) == len(lines) - 4
    assert sum(line.endswith("  ok") for line in lines[1:]) == 3


def test_an_empty_folder_is_no_parity(tmp_path, capsys):
    assert main(["parity", str(tmp_path)]) == 1
    assert "absent" in capsys.readouterr().out
    assert main(["parity", str(tmp_path / "nothing")]) == 2
    assert "no such folder" in capsys.readouterr().err


def test_rows_are_strict():
    assert row("x", 1e-5, [1e-6, float("nan")]).ok is False
    assert gap(torch.zeros(2), torch.zeros(3)) == float("inf")
    assert Row("x", 0).absent and Row("x", 0).ok
    assert not row("x", 0.0, [0.0, 1.0]).ok
