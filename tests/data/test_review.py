"""The review page as a file: what it holds, that nothing in it can break out, that it is whole by itself."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser

from tables import rows_of, write_rows

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.records import CAPTION_FIELDS
from animegamer_core.data.review import write_review


class Page(HTMLParser):
    """What a browser makes of the file: texts of script and style, and every address in it."""

    def __init__(self, path):
        super().__init__()
        self.scripts, self.styles, self.addresses, self.policy, self._into = {}, [], [], "", None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.addresses += [given[name] for name in ("src", "href", "action") if name in given]
        self._into = (tag, given.get("id"))
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]

    def handle_data(self, data):
        tag, name = self._into or (None, None)
        if tag == "script":
            self.scripts[name] = self.scripts.get(name, "") + data
        elif tag == "style":
            self.styles.append(data)

    def handle_endtag(self, tag):
        self._into = None

    @property
    def data(self):
        return json.loads(self.scripts["dataset"])


def test_the_page_is_whole_by_itself_and_tells_the_tables(folder):
    path = write_review(folder)
    page = Page(path)
    assert path == folder / "review.html"
    assert all(address.startswith("#i-") for address in page.addresses), "drawings of its own alone"
    opened = DatasetFolder.open(folder)
    data = page.data
    turns = [dict(zip(data["keys"], clip["values"], strict=True)) for clip in data["clips"]]
    assert turns == [{key: row[key] for key in data["keys"]} for row in rows_of(folder / "turns.jsonl")]
    assert (data["name"], data["digest"]) == ("dataset", opened.digest(captions=True))
    assert data["clips"][-1]["game"] == {"name": "heldout-00000", "at": 4, "of": 4, "held_out": True}
    text = path.read_text(encoding="utf-8")
    assert "http" not in re.sub(r"http-equiv|http://www\.w3\.org/2000/svg", "", text) and "__" not in text
    assert "innerHTML" not in text and "eval(" not in text
    sources = {name: rest for name, *rest in (part.split() for part in page.policy.split(";"))}
    for kind, text in (("script-src", page.scripts[None]), ("style-src", page.styles[0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert sources[kind] == [f"'sha256-{digest}'"]
    assert sources["default-src"] == ["'none'"] and sources["connect-src"] == ["'self'"]


def test_clips_that_were_set_aside_stand_in_their_place(folder):
    rows = rows_of(folder / "turns.jsonl")
    record = {**rows.pop(1), **dict.fromkeys(CAPTION_FIELDS)}
    write_rows(folder / "turns.jsonl", *rows)
    (folder / "games.jsonl").unlink()
    aside = {"clip": record["clip"], "reason": "no tag", "reply": "", "record": record}
    write_rows(folder / "set_aside.jsonl", aside, {"clip": "clips/x.mp4", "reason": "of another time"})
    data = Page(write_review(folder)).data
    at = data["keys"].index("clip")
    wanted = [row["clip"] for row in (rows[0], record, *rows[1:])]
    assert [clip["values"][at] for clip in data["clips"]] == wanted
    assert data["clips"][1]["aside"] == {"reason": "no tag", "reply": ""} and data["clips"][0]["aside"] is None


def test_what_a_person_dropped_can_be_brought_back_and_odd_lines_are_harmless(folder):
    row = rows_of(folder / "turns.jsonl")[0]
    dropped = {"film": row["film"], "start": 0.0, "end": 2.0, "reason": "dropped in review", "record": row}
    write_rows(folder / "dropped.jsonl", dropped, ["not", "an", "object"])
    [shown] = Page(write_review(folder)).data["dropped"]
    assert shown == [row["film"], 0.0, 2.0, "dropped in review", row["clip"]]
