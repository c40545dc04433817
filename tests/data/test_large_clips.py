"""A clip of 8192 x 8192 among small ones: its size is compared before a frame of it is decoded."""

import json
import shutil
import subprocess
import sys

import av
import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of memory from /proc")

WORK = """
import contextlib, sys
from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.train.training_data import TrainingData

def use(folder):
    print(*check(folder), sep="\\n")
    opened = DatasetFolder.open(folder)
    if TrainingData(opened, ()).clip_shape == (17, 96, 144, 3):  # else training ends here
        with contextlib.suppress(ValueError):
            opened.frames(1)

def kilobytes(name):
    return int(next(line for line in open("/proc/self/status") if line.startswith(name)).split()[1])

use(sys.argv[1])
open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew: imports had a higher one
before = kilobytes("VmRSS")
use(sys.argv[2])
print(kilobytes("VmHWM") - before)
"""


def write_large(path):
    """One black frame whose planes take 100 MB; its file is small, so that reading that takes no memory."""
    black = av.VideoFrame.from_ndarray(np.zeros((8192 * 3 // 2, 8192), np.uint8), "yuv420p")
    with av.open(str(path), "w", format="mp4") as container:
        stream = container.add_stream("libx264", rate=8)
        stream.width = stream.height = 8192
        stream.pix_fmt = "yuv420p"
        container.mux(stream.encode(black))
        container.mux(stream.encode())


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("number", [0, 1])
def test_no_frame_of_a_clip_that_is_far_too_large_is_decoded(folder, tmp_path, stated, number):
    info = json.loads((folder / "dataset.json").read_text())
    info["settings"]["clips"] = {"width": 144, "height": 96} if stated else {}
    (folder / "dataset.json").write_text(json.dumps(info))
    shutil.copytree(folder, tmp_path / "large")
    clip = json.loads((folder / "turns.jsonl").read_text().splitlines()[number])["clip"]
    write_large(tmp_path / "large" / clip)
    command = [sys.executable, "-c", WORK, str(folder), str(tmp_path / "large")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    *said, grown = done.stdout.splitlines()
    assert sum(f"{clip} has size 8192 x 8192; the dataset's is 144 x 96" in line for line in said) == 2, said
    assert int(grown) < 80_000, "KB: a frame was decoded"
