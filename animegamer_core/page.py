"""Pages for people: one HTML file that a browser opens from the disk, without a server, a network or other scripts.

A page is made of a folder of parts (page.html, style.css, scripts) and of data, which may hold anybody's text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .files import write_text

# Nothing may be loaded but clips and pictures beside the page, and no script may run but the page's own.
_POLICY = (
    "default-src 'none'; media-src 'self' file:; img-src 'self' file:; style-src {style}; script-src {script}; "
    "base-uri 'none'; form-action 'none'"
)
_STRICT = '"use strict";\n'


def write_page(path: Path, parts: Path, scripts: Sequence[str], data: Any) -> Path:
    """Write a page, replaced at once; returns its path.

    parts: the folder of page.html, style.css and the scripts, which become one in their order. page.html has the marks
    __POLICY__, __STYLE__, __SCRIPT__ and __DATA__, each once. data: what json can hold, without infinities.
    """
    style = _text(parts / "style.css")
    script = _STRICT + "\n".join(_text(parts / name) for name in scripts).replace(_STRICT, "")
    page = _text(parts / "page.html")
    for mark, part in (
        ("__POLICY__", _POLICY.format(style=_hash(style), script=_hash(script))),
        ("__STYLE__", style),
        ("__SCRIPT__", script),
        ("__DATA__", script_safe(data)),  # last: its text is somebody else's
    ):
        assert page.count(mark) == 1, f"{parts}/page.html has {mark} {page.count(mark)} times"
        page = page.replace(mark, part)
    write_text(path, page)
    return path


def script_safe(value: Any) -> str:
    """Json that cannot end the script block that it stands in, nor begin a comment or a tag there."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """A part of the page as its policy allows it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
