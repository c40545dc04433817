"""What the HTTP routes answer when files or requests are not as they should be: a sentence and a status, always.

The handlers are the real ones, below a stand-in of ComfyUI's server; tests/comfyui asks a real one.
"""

import json
import shutil

import pytest
from comfy_stub import ComfyStub
from hostile import any_bytes, json_text, json_value
from hypothesis import given, settings
from hypothesis import strategies as st
from saved_story import copy_story
from small_disk import small_disk


class Server:
    """The routes of a ComfyUI whose output folder has one saved story."""

    def __init__(self, comfy, ask, base):
        self.comfy, self.base, self._ask = comfy, base, ask
        self.stories = base / "output" / "animegamer"

    def reset(self):
        """One whole story, and nothing else."""
        shutil.rmtree(self.stories, ignore_errors=True)
        copy_story(self.stories / "game")
        return self

    def ask(self, method, path, query=None, body=b"", headers=None):
        """(status, answer). An error is one sentence; that of a sentence that shows nothing is a note as well."""
        status, answer = self._ask(method, f"/animegamer/{path}", query or {}, body, headers or {})
        if status >= 400:
            assert set(answer) - {"note"} == {"error"} and status < 600
            said = answer["error"]
            assert 0 < len(said) <= 1000 and said.isprintable() and "Traceback" not in said, said
        return status, answer

    def story(self):
        return self.ask("GET", "story", {"name": "game"})


@pytest.fixture(scope="module")
def comfy(tmp_path_factory):
    base = tmp_path_factory.mktemp("comfy")
    comfy = ComfyStub(base)
    with comfy.serving() as ask:
        yield Server(comfy, ask, base)


@pytest.fixture
def server(comfy):
    return comfy.reset()


DUPLICATE = json.dumps({"do": "duplicate", "name": "game", "to": "copy"}).encode()


def test_a_whole_story_is_answered(server):
    status, answer = server.story()
    assert (status, [len(line["turns"]) for line in answer["branches"]]) == (200, [1, 2])
    assert server.ask("POST", "stories", body=DUPLICATE) == (200, {"name": "copy"})
    assert {one["name"] for one in server.ask("GET", "stories")[1]["stories"]} == {"game", "copy"}


def test_a_full_disk_is_507(server):
    size = sum(path.stat().st_size for path in server.reset().stories.rglob("*") if path.is_file())
    shutil.rmtree(server.stories)
    with small_disk(server.stories, size // 1024 * 3 // 2 + 60):
        copy_story(server.stories / "game")
        status, answer = server.ask("POST", "stories", body=DUPLICATE)
        assert status == 507
        assert answer["error"].startswith(f"{server.stories / 'copy'}: No space left on device (")
        assert answer["error"].endswith("free some space and duplicate the story again")
        assert server.story()[0] == 200, "the story is still there"
    shutil.rmtree(server.stories)


FOREIGN, OWN = ("evil.example.com", "127.0.0.1.nip.io", "EVIL.example.com."), ("localhost:8188", "[::1]:8188", "my.lan")


@pytest.mark.parametrize(
    ("listen", "cors", "anyone"),
    [("127.0.0.1", None, False), ("127.0.0.1", "https://evil.example.com", True), ("0.0.0.0", None, True)],
)
def test_a_foreign_name_is_answered_only_where_comfyui_listens_for_it(server, monkeypatch, listen, cors, anyone):
    monkeypatch.setattr(server.comfy.arguments, "listen", listen)
    monkeypatch.setattr(server.comfy.arguments, "enable_cors_header", cors)
    for host in (*OWN, *FOREIGN):
        for method, path, body in (("GET", "stories", b""), ("POST", "stories", b'{"do": "restore", "ticket": "1 x"}')):
            status, _ = server.ask(method, path, body=body, headers={"Host": host, "Origin": f"http://{host}"})
            assert (status != 403) == (anyone or host in OWN), (host, method)


PLAIN = {
    "world": "toybox", "story": "game", "name": "game", "instruction": "Miko runs", "seed": 7, "motion": "fast",
    "after": 1, "branch": "main", "do": "duplicate", "to": "copy", "ticket": "1 game", "past": [], "steps": 0,
}  # fmt: skip
BODIES = {
    "turn": ("world", "story", "instruction", "seed", "motion", "after", "branch"),
    "stories": ("do", "name", "to", "ticket"),
    "check": ("world", "instruction", "past", "steps"),
}
QUERIES = ("stories", "story", "words", "docs", "training", "suggestions", "weights")
REFUSALS = {200, 202, 400, 403, 404, 409, 413}  # none of them 500


def test_every_route_that_takes_something_is_in_these_tables(comfy):
    there = {(route.method, route.path.removeprefix("/animegamer/")) for route in comfy.comfy.routes}
    asked = {*(("POST", path) for path in BODIES), *(("GET", path) for path in QUERIES)}
    review = {("GET", "datasets/{name}/{path:.+}"), ("POST", "datasets/{name}/corrections")}  # tests/comfyui asks them
    assert there - asked == {("GET", "about"), ("POST", "/prompt"), *review} and asked <= there


def below(folder):
    """What is in a folder, besides the stories."""
    return sorted(path for path in folder.rglob("*") if "animegamer" not in path.parts)


@settings(max_examples=settings().max_examples // 2)  # 50, or 1,000 in profile hunt
@given(rng=st.randoms(), path=st.sampled_from(sorted(BODIES)))
def test_any_body_is_answered(comfy, rng, path):
    plain = {name: PLAIN[name] for name in BODIES[path]}
    how = rng.choice((json_value, json_value, json_value, json_text, any_bytes))
    body, what = how(json.dumps(plain).encode(), rng)
    before = below(comfy.reset().base)
    status, _ = comfy.ask("POST", path, body=body)
    assert status in REFUSALS and below(comfy.base) == before, what


def test_only_a_turn_that_differs_from_the_last_one_says_what_training_never_showed(server):
    runs, dances = (f"Character: Miko; Motion: {act}; Background: day street." for act in ("run", "dance"))
    for past, untried in (([], [["Miko", "street"], ["run", "street"]]), ([dances], [["run", "street"]]), ([runs], [])):
        asked = {"world": "toybox", "instruction": runs, "past": past, "steps": 0}
        assert server.ask("POST", "check", body=json.dumps(asked).encode())[1]["untried"] == untried, past
