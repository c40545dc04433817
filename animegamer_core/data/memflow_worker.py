"""Runs MemFlow in another environment: started by that environment's python, never imported by ours.

Arguments: file of weights, device. Each input line names a file of frames (F, H, W, 3) uint8 and one for the flows
(F - 1, H, W, 2) float32; each output line is an answer. Output of libraries goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
import typing

if typing.TYPE_CHECKING:
    import numpy
    import torch


def main(weights: str, device: str) -> None:
    """Load MemFlow once and serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def answer(**values: object) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    try:
        import numpy
        import ptlflow
        import torch
    except ModuleNotFoundError as error:
        answer(missing=error.name)
        return
    model = ptlflow.get_model("memflow", weights).eval().to(device)
    answer(ptlflow=str(getattr(ptlflow, "__version__", "unknown")))
    for line in sys.stdin:
        request = json.loads(line)
        frames = numpy.load(request["frames"])
        with torch.inference_mode():
            flows = [pair_flow(model, frames, first, device) for first in range(len(frames) - 1)]
        numpy.save(request["flows"], numpy.stack(flows).astype(numpy.float32))
        answer(done=len(flows))


def pair_flow(model: torch.nn.Module, frames: numpy.ndarray, first: int, device: str) -> numpy.ndarray:
    """Flow (H, W, 2) from frame `first` to the next; pairs come in order, since MemFlow keeps a memory."""
    import torch

    pair = torch.from_numpy(frames[first : first + 2].copy()).to(device)
    images = pair.permute(0, 3, 1, 2).flip(1)[None].float() / 255  # (1, 2, C, H, W), blue first as ptlflow reads files
    meta = {"is_seq_start": first == 0, "is_seq_end": first == len(frames) - 2}
    return model({"images": images, "meta": meta})["flows"][0, 0].permute(1, 2, 0).float().cpu().numpy()


if __name__ == "__main__":
    main(*sys.argv[1:])
