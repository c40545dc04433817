"""Training on a disk that is full: one sentence, and it goes on from its last checkpoint."""

import shutil

import pytest
from small_disk import resize, small_disk
from test_train import same_tensors, train

OPTIONS = "--steps 4 --batch 2 --log-every 1 --lr-warmup 1 --save-every 1 --accumulation 1"


def test_a_stage_goes_on_once_there_is_room(places, tmp_path):
    dataset, world = places
    whole, full = tmp_path / "whole", tmp_path / "full"
    for name in ("one", "other"):  # a stage without LoRA trains its world in place
        shutil.copytree(world, tmp_path / name)
    assert train("predict", dataset, tmp_path / "one", whole, OPTIONS) == 0
    size = sum(path.stat().st_size for path in whole.rglob("*") if path.is_file()) // 1024
    with small_disk(full, 64):
        for kilobytes in (64, size // 2):
            resize(full, kilobytes)
            with pytest.raises(OSError, match=r"MB free\); finished work is kept; free some space"):
                train("predict", dataset, tmp_path / "other", full / "run", f"{OPTIONS} --resume")
        resize(full, 4 * size + 10_000)
        assert train("predict", dataset, tmp_path / "other", full / "run", f"{OPTIONS} --resume") == 0
        assert same_tensors(whole / "predict.safetensors", full / "run" / "predict.safetensors")
