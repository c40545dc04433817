"""Previews of a shot that is being drawn."""

import queue

import numpy as np
import torch

from animegamer_core.runtime.previews import MovingPreview


def test_frames_move_in_a_loop_until_they_are_replaced(tiny_decoder):
    shown, latents = queue.Queue(), torch.randn(1, *tiny_decoder.spec.decoder.latent_shape)
    with MovingPreview(lambda frame: shown.put(int(frame.flat[0])), fps=200) as preview:
        preview.play(np.arange(3, dtype=np.uint8)[:, None, None, None])
        assert [shown.get(timeout=20) for _ in range(5)] == [0, 1, 2, 0, 1]
        preview.play()
        shown.queue.clear()
        preview.step(tiny_decoder, 1, 3, latents)  # no tiny decoder: a still
        preview.step(tiny_decoder, 2, 3, latents)  # at once after the first: it would take too long
        preview.step(tiny_decoder, 3, 3, latents)  # the shot itself comes next
    assert shown.qsize() == 1
