"""HTML pages in one file, which a browser opens from disk without a server or network.

A page consists of a folder of parts (page.html, style.css, scripts) and data, which may hold untrusted text.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files import write_text

# The page may load clips and pictures from its folder, and run its own script only.
_POLICY = (
    "default-src 'none'; media-src 'self' file:; img-src 'self' file:; style-src {style}; script-src {script}; "
    "base-uri 'none'; form-action 'none'"
)
_STRICT = '"use strict";\n'
_SHARED = Path(__file__).with_name("page_parts") / "dom.js"  # in front of every page's own scripts


def write_page(path: Path, parts: Path, scripts: Sequence[str], data: Any) -> Path:
    """Write a page atomically; returns its path.

    parts: the folder of page.html, style.css and the scripts, which are joined in their order. page.html has the marks
    __POLICY__, __STYLE__, __SCRIPT__ and __DATA__, each once. data: JSON values without infinities.
    """
    style, page = ((parts / name).read_text(encoding="utf-8") for name in ("style.css", "page.html"))
    files = (_SHARED, *(parts / name for name in scripts))
    script = _STRICT + "\n".join(file.read_text(encoding="utf-8") for file in files).replace(_STRICT, "")
    for mark, part in (
        ("__POLICY__", _POLICY.format(style=_hash(style), script=_hash(script))),
        ("__STYLE__", style),
        ("__SCRIPT__", script),
        ("__DATA__", script_safe(data)),  # last: untrusted text may contain a mark
    ):
        assert page.count(mark) == 1, f"{parts}/page.html has {mark} {page.count(mark)} times"
        page = page.replace(mark, part)
    write_text(path, page)
    return path


def script_safe(value: Any) -> str:
    """JSON that cannot end its script block, or begin a comment or a tag in it."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _hash(text: str) -> str:
    """The source of a part in the page's content security policy."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
