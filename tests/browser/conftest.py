"""A real Chromium on the page of a real ComfyUI server, shared by the tests of this folder."""

import os
from pathlib import Path

import pytest
from chromium import FLAGS, NEEDED, find_chromium
from comfy_server import server  # noqa: F401  (the fixture)
from pages import READY, script
from play_tab import PlayTab


class ComfyPage:
    """ComfyUI's page. `errors`: exceptions of our own scripts. `shot`: a picture for people to look at."""

    def __init__(self, page, url, folder):
        self.page, self.url, self.folder, self.errors, self.first = page, url, folder, [], True
        page.on("pageerror", self._on_error)

    def _on_error(self, error):
        stack = getattr(error, "stack", None) or str(error)
        if "/extensions/ComfyUI-AnimeGamer/" in stack:  # offline, ComfyUI's own page has errors too
            self.errors.append(stack)

    def open(self):
        """Load the page, or load it again, and wait for the nodes.

        The page itself opens the last graph again, unless it was left before that was saved. A test that loads another
        meanwhile would lose it.
        """
        had_graph = not self.first and self.page.evaluate("() => app.graph.nodes.length > 0")
        self.page.goto(self.url, wait_until="domcontentloaded")
        self.page.wait_for_function(READY, timeout=120_000)
        for _ in range(50 if had_graph else 0):
            self.page.wait_for_timeout(100)
            if self.page.evaluate("() => app.graph.nodes.length > 0"):
                self.page.wait_for_timeout(500)
                break
        if self.first:
            self.page.wait_for_timeout(1500)
            self.page.keyboard.press("Escape")  # the template dialog of a first start
        self.first = False

    def set(self, key, value):
        """Change a setting of ComfyUI; most need `open` again."""
        self.page.evaluate("([key, value]) => app.extensionManager.setting.set(key, value)", [key, value])

    def run_script(self, name, argument=None):
        """What a function of scripts/ returns on the page."""
        return self.page.evaluate(script(name), argument)

    def load_prompt(self, prompt):
        """Put a prompt in API form on the canvas, its nodes in rows and in view."""
        self.run_script("load", prompt)
        self.page.wait_for_timeout(500)

    def run_graph(self, timeout=120):
        """Queue what is on the canvas, and wait for its good end."""
        self.run_script("run")
        self.page.wait_for_function("() => window.ended", timeout=timeout * 1000)
        assert self.page.evaluate("() => window.ended")[0] == "execution_success", self.page.evaluate("() => ended")

    def shot(self, name):
        """Save a picture of the page, if ANIMEGAMER_SHOTS names a folder for pictures."""
        if "ANIMEGAMER_SHOTS" in os.environ:
            self.page.wait_for_timeout(700)  # the bars are animated
            self.page.screenshot(path=str(self.folder / f"{name}.png"))


@pytest.fixture(scope="session")
def shots(tmp_path_factory):
    """The folder for pictures: ANIMEGAMER_SHOTS, or pytest's own folder."""
    folder = Path(os.environ.get("ANIMEGAMER_SHOTS") or tmp_path_factory.mktemp("shots"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def world(server):  # noqa: F811
    """The world of these tests: random weights at the tiny size, or the Toybox if pictures are saved."""
    if "ANIMEGAMER_SHOTS" in os.environ:
        return "toybox"
    from tiny_world import save_tiny_world

    from animegamer_core.model.encoder import ShotEncoder
    from animegamer_core.weights import save_part

    if not (server.models_dir / "animegamer" / "tiny").exists():
        tiny = save_tiny_world(server.models_dir / "animegamer" / "tiny")
        save_part(tiny, ShotEncoder(tiny.spec, tiny.tokenizer().backend))
    return "tiny"


@pytest.fixture(scope="session")
def browser():
    """The one Chromium of a test run: two of Playwright's loops cannot run in one process."""
    playwright = pytest.importorskip("playwright.sync_api", reason=NEEDED)
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(NEEDED)
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def comfy(request, browser, shots):
    """ComfyUI's page, loaded."""
    server = request.getfixturevalue("server")  # noqa: F811
    page = ComfyPage(browser.new_page(viewport={"width": 1400, "height": 1000}), server.url, shots)
    page.open()
    return page


@pytest.fixture(scope="module")
def tab(comfy, server, world):  # noqa: F811
    """The Play tab."""
    return PlayTab(comfy, server, world)


@pytest.fixture(autouse=True)
def no_errors_of_ours(request):
    """Every test also sees that none of our scripts threw."""
    yield
    if "comfy" in request.fixturenames:
        comfy = request.getfixturevalue("comfy")
        errors, comfy.errors = comfy.errors, []
        assert not errors
