"""Backends of optical flow: DIS, and MemFlow from a weights file."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from animegamer_core.data.motion import FlowError, FlowSettings, motion_facts, motion_value, open_flow


def clip(frames: int, height: int = 96, width: int = 144) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (frames, height, width, 3)).astype(np.uint8)


def refusal(settings: FlowSettings) -> str:
    with pytest.raises(FlowError) as caught:
        open_flow(settings)
    return str(caught.value)


def test_dis_is_the_backend_that_needs_nothing():
    flow = open_flow(FlowSettings())
    assert motion_value(clip(3), backend=flow) == motion_value(clip(3))
    assert motion_facts(flow, 0.2).items() >= {"backend": "dis", "threshold": 0.2, "height": 480}.items()


def test_flow_is_scaled_to_480_px_and_averaged_above_the_threshold():
    def flow(frames):
        assert [frame.shape for frame in frames] == [(96, 144, 3)] * 3  # larger ones are reduced, small ones stay
        for length in (3.0, 5.0):
            field = np.zeros((96, 144, 2))
            field[:48, :, 0], field[48:, :, 1] = length / 5, 0.02
            yield field

    assert motion_value(clip(3), backend=flow) == pytest.approx(4.0)
    assert motion_value(clip(3), backend=flow, threshold=4.0) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="not finite"):
        motion_value(clip(2), backend=lambda frames: [np.full((96, 144, 2), np.nan)])


def test_what_a_backend_needs_is_said(tmp_path):
    assert "choose one of dis, steady, memflow" in refusal(FlowSettings(backend="farneback"))
    assert "needs a file of weights" in refusal(FlowSettings(backend="memflow", weights=tmp_path / "none.ckpt"))


class FakeMemFlow(torch.nn.Module):
    """Its flow says what it was given: the blue of the second frame, and whether the clip begins and ends."""

    def forward(self, inputs):
        images, meta = inputs["images"], inputs["meta"]
        assert images.shape[:3] == (1, 2, 3) and images.dtype == torch.float32
        flow = torch.zeros(1, 1, 2, *images.shape[3:])
        flow[:, :, 0] = 255 * images[0, 1, 0].mean()
        flow[:, :, 1] = 10 * meta["is_seq_start"] + 20 * meta["is_seq_end"]
        return {"flows": flow}


def fake_ptlflow(name, weights):
    assert name == "memflow"
    torch.load(weights, weights_only=True)
    return FakeMemFlow()


def test_memflow_answers_clip_after_clip(tmp_path, monkeypatch):
    settings = FlowSettings(backend="memflow", weights=tmp_path / "memflow.ckpt")
    torch.save({}, settings.weights)
    monkeypatch.setitem(sys.modules, "ptlflow", None)
    assert "pip install ptlflow" in refusal(settings)
    monkeypatch.setitem(sys.modules, "ptlflow", SimpleNamespace(get_model=fake_ptlflow, __version__="0.4.2"))
    flow = open_flow(settings)
    blue = np.zeros((4, 32, 48, 3), np.uint8)
    blue[..., 2] = np.array([0, 50, 100, 200])[:, None, None]
    fields, again = list(flow(list(blue))), list(flow(list(blue[:2])))
    assert [field.shape for field in fields] == [(32, 48, 2)] * 3 and fields[0].dtype == np.float32
    assert [field[0, 0, 0] for field in fields] == pytest.approx([50, 100, 200], abs=0.01)  # blue first
    assert [field[0, 0, 1] for field in fields] == [10, 0, 20] and again[0][0, 0, 1] == 30  # memory from clip to clip
    facts = motion_facts(flow, 0.2)
    assert facts["ptlflow"] == "0.4.2" and facts["backend"] == "memflow" and facts["weights"] == "memflow.ckpt"
    assert json.loads(json.dumps(facts)) == facts and str(tmp_path) not in json.dumps(facts)
    settings.weights.write_bytes(b"torn")
    assert "cannot be used as ptlflow's weights" in refusal(settings)
