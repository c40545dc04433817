"""Captions of clips: who does what, where and how, from a vision model or a sidecar file."""

from .captioner import Captioner, ModelCaptioner
from .choose import CAPTIONERS, open_captioner
from .pictures import Reference, read_references
from .replies import Caption, ReplyError
from .run import CaptionReport, SetAside, caption_clips, read_set_aside
from .script import sidecar_of
from .vision_model import CaptionerError

__all__ = [
    "CAPTIONERS",
    "Caption",
    "CaptionReport",
    "Captioner",
    "CaptionerError",
    "ModelCaptioner",
    "Reference",
    "ReplyError",
    "SetAside",
    "caption_clips",
    "open_captioner",
    "read_references",
    "read_set_aside",
    "sidecar_of",
]
