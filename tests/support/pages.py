"""Pages in a real Chromium: those opened from the disk, and what can be asked of any page."""

import contextlib
import os
from pathlib import Path

# Whether ComfyUI's page has its nodes and ours.
READY = "() => Boolean(window.app?.extensionManager && app.graph && LiteGraph.registered_node_types.StateDisplay)"
SCRIPTS = Path(__file__).parents[1] / "browser" / "scripts"


def script(name):
    """A function of tests/browser/scripts, for a page to evaluate."""
    return (SCRIPTS / f"{name}.js").read_text("utf-8")


def is_older(page):
    """Whether a page of ComfyUI is one of those whose Nodes 2.0 are unfinished, and that have no App mode."""
    version = page.evaluate("() => window.__COMFYUI_FRONTEND_VERSION__")
    return tuple(map(int, version.split(".")[:2])) < (1, 48)


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


def faint_texts(page, within, apart):
    """[(contrast, element)] of the texts in a part of a page that miss WCAG's contrast of 4.5; apart: not looked at."""
    found = page.evaluate(script("contrast"), [within, apart])
    assert len(found) > 5
    return [(round(ratio, 2), what) for ratio, what in found if ratio < 4.5]


def overflow(page):
    """How many pixels a page is wider than its window."""
    return page.evaluate("() => Math.max(0, document.documentElement.scrollWidth - innerWidth)")


class DiskPage:
    """A page in a folder on the disk. wrong: what it did that it must not, such as requests that leave the disk."""

    entry: str  # the name of its file
    ready: str  # JavaScript: whether the page can be used

    def __init__(self, page, folder):
        self.page, self.folder, self.wrong = page, folder, []
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("console", lambda line: self.wrong.append(line.text) if line.type == "error" else None)
        page.on("request", lambda request: self.wrong.append(request.url) if "file:" not in request.url[:5] else None)

    def open(self):
        """Load the page."""
        self.page.goto((self.folder / self.entry).resolve().as_uri())
        self.page.wait_for_function(self.ready)

    def reopen(self, remembered):
        """Open the page again; on a busy machine Chromium hands what was kept to the new page a moment later."""
        for _ in range(50):
            self.open()
            if remembered():
                return
            self.page.wait_for_timeout(100)
        raise AssertionError("what was kept is not shown")

    def text(self, selector):
        """The words of the first element."""
        return self.page.locator(selector).first.inner_text()

    def shot(self, name):
        """Save a picture of the page, if ANIMEGAMER_SHOTS names a folder for pictures."""
        if "ANIMEGAMER_SHOTS" in os.environ:
            self.page.wait_for_timeout(700)  # some of it is animated
            self.page.screenshot(path=str(Path(os.environ["ANIMEGAMER_SHOTS"]) / f"{name}.png"))


@contextlib.contextmanager
def opened(browser, kind, folder, **options):
    """A DiskPage of this kind in a browser context of its own, which must have done nothing wrong at the end."""
    context = browser.new_context(viewport={"width": 1280, "height": 900}, accept_downloads=True, **options)
    page = kind(context.new_page(), folder)
    page.open()
    yield page
    context.close()
    assert not page.wrong, page.wrong
