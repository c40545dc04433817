"""Backends of optical flow: RAFT from a weights file, and MemFlow in an environment of its own."""

from __future__ import annotations

import hashlib
import json
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
import torch

from animegamer_core.data.flow import DisFlow, FlowError, FlowSettings, motion_facts, open_flow
from animegamer_core.data.motion import motion_value

# A package that stands for ptlflow: its flow tells what it was given, and it talks too much, as ptlflow does.
FAKE_PTLFLOW = """
import pathlib
import torch

__version__ = "0.4.2"
print("WARNING: on stdout, where the answers go")


class Model:
    def __init__(self, name, weights):
        assert name == "memflow"
        self.weights = pathlib.Path(weights).read_text()
        if self.weights == "torn":
            raise RuntimeError("PytorchStreamReader failed finding central directory")

    def eval(self):
        return self

    def to(self, device):
        assert device == "cpu"
        return self

    def __call__(self, inputs):
        print("WARNING: again")
        if self.weights == "hungry":
            raise RuntimeError("CUDA out of memory")
        images, meta = inputs["images"], inputs["meta"]
        batch, frames, channels, height, width = images.shape
        assert (batch, frames, channels) == (1, 2, 3) and images.dtype == torch.float32
        flow = torch.zeros(1, 1, 2, height, width)
        flow[:, :, 0] = 255 * images[0, 1, 0].mean()  # blue of the second frame
        flow[:, :, 1] = 10 * meta["is_seq_start"] + 20 * meta["is_seq_end"]
        return {"flows": flow[..., 1:] if self.weights == "short" else flow}


def get_model(name, weights):
    return Model(name, weights)
"""


def clip(frames: int, height: int = 96, width: int = 144) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (frames, height, width, 3)).astype(np.uint8)


def refusal(settings: FlowSettings) -> str:
    with pytest.raises(FlowError) as caught, open_flow(settings):
        pass
    return str(caught.value)


# --- any backend ------------------------------------------------------------------------------------------------------


def test_dis_is_the_backend_that_needs_nothing():
    with open_flow(FlowSettings()) as flow:
        assert isinstance(flow, DisFlow)
        assert motion_value(clip(3), backend=flow) == motion_value(clip(3))
        facts = motion_facts(flow, 0.2)
    assert facts == {"backend": "dis", "preset": "ultrafast", "threshold": 0.2, "height": 480}


def test_a_backend_sees_frames_of_480_px_and_its_flow_is_averaged_above_the_threshold():
    def flow(frames):
        assert [frame.shape for frame in frames] == [(480, 720, 3)] * 3
        for length in (3.0, 5.0):
            field = np.zeros((480, 720, 2))
            field[:240, :, 0], field[240:, :, 1] = length, 0.1
            yield field

    assert motion_value(clip(3), backend=flow) == pytest.approx(4.0)
    assert motion_value(clip(3), backend=flow, threshold=4.0) == pytest.approx(2.5)
    with pytest.raises(ValueError, match="not finite"):
        motion_value(clip(2), backend=lambda frames: [np.full((480, 720, 2), np.nan)])


def test_what_a_backend_needs_is_said(tmp_path):
    assert "choose one of dis, raft, memflow" in refusal(FlowSettings(backend="farneback"))
    assert "needs a file of weights" in refusal(FlowSettings(backend="raft"))
    assert "no such file" in refusal(FlowSettings(backend="raft", weights=tmp_path / "raft.pth"))
    assert "its own environment" in refusal(FlowSettings(backend="memflow"))


# --- RAFT -------------------------------------------------------------------------------------------------------------


def raft_file(folder: Path, name: str = "raft_small") -> Path:
    """Weights at random, in torchvision's own layout."""
    optical_flow = pytest.importorskip("torchvision.models.optical_flow")
    torch.manual_seed(0)
    path = folder / f"{name}.pth"
    torch.save(getattr(optical_flow, name)(weights=None).state_dict(), path)
    return path


def test_raft_without_torchvision_is_refused_in_words(tmp_path, monkeypatch):
    torch.save({"a": torch.zeros(1)}, tmp_path / "raft.pth")
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models", None)
    assert "needs torchvision" in refusal(FlowSettings(backend="raft", weights=tmp_path / "raft.pth"))


@pytest.mark.parametrize("name", ["raft_small", "raft_large"])
def test_raft_gives_the_flow_that_torchvision_gives(name, tmp_path):
    optical_flow = pytest.importorskip("torchvision.models.optical_flow")
    weights = raft_file(tmp_path, name)
    frames = clip(2, 128, 136)
    model = getattr(optical_flow, name)(weights=None)
    model.load_state_dict(torch.load(weights, weights_only=True))
    images = torch.from_numpy(frames).permute(0, 3, 1, 2)
    first, second = optical_flow.Raft_Small_Weights.DEFAULT.transforms()(images[:1], images[1:])
    with torch.no_grad():
        expected = model.eval()(first, second)[-1][0].permute(1, 2, 0)
    with open_flow(FlowSettings(backend="raft", weights=weights)) as flow:
        (measured,) = flow(list(frames))
        facts = motion_facts(flow, 0.3)
    assert np.allclose(measured, expected, atol=1e-3) and np.abs(measured).max() > 0.1
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    expected = {"backend": "raft", "model": name, "weights": f"{name}.pth", "sha256": digest}
    assert facts == {**expected, "threshold": 0.3, "height": 480}


def test_raft_takes_any_size_any_number_of_frames_and_safetensors(tmp_path):
    from safetensors.torch import save_file

    weights = raft_file(tmp_path)
    save_file(torch.load(weights, weights_only=True), tmp_path / "raft.safetensors")
    frames = list(clip(6, 130, 143))
    with open_flow(FlowSettings(backend="raft", weights=tmp_path / "raft.safetensors")) as flow:
        together = list(flow(frames))
    with open_flow(FlowSettings(backend="raft", weights=weights)) as flow:
        alone = [next(flow(pair)) for pair in zip(frames, frames[1:], strict=False)]
    assert [field.shape for field in together] == [(130, 143, 2)] * 5
    assert all(np.allclose(a, b, atol=1e-3) for a, b in zip(together, alone, strict=True))


def test_files_that_are_no_weights_of_raft_are_refused_and_run_no_code(tmp_path):
    import pickle

    weights, mark = tmp_path / "raft.pth", tmp_path / "mark"

    class Evil:
        def __reduce__(self):
            return Path.touch, (mark,)

    for content in (b"weights", b"", pickle.dumps(Evil(), protocol=2)):
        weights.write_bytes(content)
        message = refusal(FlowSettings(backend="raft", weights=weights))
        assert f"cannot be read as weights of RAFT: {weights}: " in message and "\n" not in message
    assert not mark.exists()
    torch.save([torch.zeros(1)], weights)
    assert "holds a list" in refusal(FlowSettings(backend="raft", weights=weights))


def test_weights_and_device_must_fit_raft(tmp_path):
    weights = raft_file(tmp_path)
    assert "device 'cuda:77'" in refusal(FlowSettings(backend="raft", weights=weights, device="cuda:77"))
    torch.save({"other": torch.zeros(1)}, weights)
    assert "not the weights of torchvision's raft_small" in refusal(FlowSettings(backend="raft", weights=weights))


# --- MemFlow ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def environments(tmp_path_factory) -> dict[str, Path]:
    """Pythons with our numpy and torch: one that has the package standing for ptlflow, one that has none."""
    pythons = {}
    for name in ("whole", "bare"):
        folder = tmp_path_factory.mktemp(name)
        venv.create(folder, with_pip=False, symlinks=sys.platform != "win32")
        paths = sysconfig.get_paths("venv", vars={"base": str(folder), "platbase": str(folder)})
        site = Path(paths["purelib"])
        (site / "ours.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
        if name == "whole":
            (site / "ptlflow").mkdir()
            (site / "ptlflow" / "__init__.py").write_text(FAKE_PTLFLOW)
        pythons[name] = Path(paths["scripts"]) / Path(sys.executable).name
    return pythons


def memflow(python: Path, folder: Path, weights: str = "fine") -> FlowSettings:
    path = folder / "memflow.ckpt"
    path.write_text(weights)
    return FlowSettings(backend="memflow", weights=path, python=python)


def test_memflow_answers_clip_after_clip_from_its_own_environment(environments, tmp_path):
    blue = np.zeros((4, 32, 48, 3), np.uint8)
    blue[..., 2] = np.array([0, 50, 100, 200])[:, None, None]
    with open_flow(memflow(environments["whole"], tmp_path)) as flow:
        fields = list(flow(list(blue)))
        again = list(flow(list(blue[:2])))
        value = motion_value(np.full((3, 480, 64, 3), 3, np.uint8), backend=flow)
        facts = motion_facts(flow, 0.2)
        process, folder = flow._process, Path(flow._folder.name)
        assert process.poll() is None and folder.is_dir()
    assert process.poll() is not None and not folder.exists()
    assert [field.shape for field in fields] == [(32, 48, 2)] * 3 and fields[0].dtype == np.float32
    assert [field[0, 0, 0] for field in fields] == pytest.approx([50, 100, 200], abs=0.01)  # blue first
    assert [field[0, 0, 1] for field in fields] == [10, 0, 20] and again[0][0, 0, 1] == 30  # memory from clip to clip
    assert value == pytest.approx((np.hypot(3, 10) + np.hypot(3, 20)) / 2, rel=1e-3)
    assert facts["ptlflow"] == "0.4.2" and facts["backend"] == "memflow" and facts["weights"] == "memflow.ckpt"
    assert json.loads(json.dumps(facts)) == facts and str(tmp_path) not in json.dumps(facts)


def test_an_environment_without_ptlflow_is_named(environments, tmp_path):
    message = refusal(memflow(environments["bare"], tmp_path))
    assert "has no ptlflow" in message and "-m pip install ptlflow" in message


def test_a_python_that_is_none_is_named(tmp_path):
    assert "cannot be run (No such file" in refusal(memflow(tmp_path / "python", tmp_path))
    (tmp_path / "plain").write_text("no program")
    assert "cannot be run (Permission denied" in refusal(memflow(tmp_path / "plain", tmp_path))


def test_a_crash_while_loading_or_working_ends_in_memflows_last_words(environments, tmp_path):
    message = refusal(memflow(environments["whole"], tmp_path, "torn"))
    assert "exit code 1" in message and message.endswith("PytorchStreamReader failed finding central directory")
    assert "\n" not in message
    with open_flow(memflow(environments["whole"], tmp_path, "hungry")) as flow:
        for _ in range(2):  # and so it stays
            with pytest.raises(FlowError, match="CUDA out of memory$"):
                list(flow(list(clip(2))))


def test_flow_of_a_wrong_shape_is_refused(environments, tmp_path):
    with open_flow(memflow(environments["whole"], tmp_path, "short")) as flow:
        with pytest.raises(FlowError, match=r"shape \(1, 96, 143, 2\); expected \(1, 96, 144, 2\)"):
            list(flow(list(clip(2))))
