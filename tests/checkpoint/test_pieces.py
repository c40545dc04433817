"""What a download consists of and what of it is missing, without asking a hub."""

import shutil

import pytest
import stock_files

from animegamer_core.checkpoint.pieces import base_pieces, missing_text, world_pieces


def missing(pieces):
    return [piece.path for piece in pieces if not piece.there]


def test_an_empty_folder_lacks_everything_with_sizes(tmp_path):
    for folder in (tmp_path, tmp_path / "not there"):
        text = missing_text(world_pieces(folder, "qiqi"))
        assert "MLLM-Qiqi/ (the game engine, about 15.0 GB)" in text and "VDM_Decoder-Qiqi/" in text
        assert "Mistral-7B-Instruct-v0.1/" in text and text.endswith("; 19.4 GB in all")
        assert len(missing(world_pieces(folder, "sosuke", encoders=True))) == 6
        assert len(missing(base_pieces(folder))) == 6


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        ("MLLM-Qiqi", "MLLM-Qiqi/"),
        ("VDM_Decoder-Qiqi", "VDM_Decoder-Qiqi/"),
        ("Mistral-7B-Instruct-v0.1/config.json", "Mistral-7B-Instruct-v0.1/"),
        ("3d-vae.pt", "CogVideoX-2b/vae/"),
    ],
)
def test_each_missing_piece_is_named(download, tmp_path, gone, named):
    folder = tmp_path / "downloads"
    shutil.copytree(download, folder)
    there = missing(world_pieces(folder, "qiqi"))
    assert named not in there and missing(world_pieces(tmp_path, "qiqi")) == there, "one folder deeper is found too"
    path = folder / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert named in missing(world_pieces(folder, "qiqi"))
    assert missing(world_pieces(folder, "sosuke"))[:2] == ["MLLM-Sosuke/", "VDM_Decoder-Sosuke/"]


def test_whole_base_models_lack_nothing(tmp_path):
    src = stock_files.write_base(tmp_path)
    assert missing_text(base_pieces(src)) == ""
    shutil.rmtree(src / "CogVideoX-2b" / "transformer")
    assert missing(base_pieces(src)) == ["CogVideoX-2b/transformer/"]
