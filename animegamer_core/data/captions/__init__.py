"""Captions of clips: who does what, where and how, from a vision model or a sidecar file."""

from .captioner import Captioner
from .choose import CAPTIONERS, open_captioner
from .pictures import Reference, read_references
from .run import CaptionReport, caption_clips, read_set_aside
from .script import sidecar_of

__all__ = [
    "CAPTIONERS",
    "CaptionReport",
    "Captioner",
    "Reference",
    "caption_clips",
    "open_captioner",
    "read_references",
    "read_set_aside",
    "sidecar_of",
]
