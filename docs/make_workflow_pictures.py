"""Run examples in a real ComfyUI and save their pictures: `python docs/make_workflow_pictures.py 1-one-turn 5-story`.

`play-tab` is the picture of the Play tab, with the story of example 5. Without names it makes every picture but those
of the published film, whose weights nobody here has. ComfyUI is found as the tests find it (`make comfyui`). Each
example keeps its own steps, so all of them take about a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import io
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]

from chromium import FLAGS, NEEDED, find_chromium  # noqa: E402
from comfy_server import running  # noqa: E402
from pages import READY, script  # noqa: E402
from play_tab import TAB  # noqa: E402

WORKFLOWS = ROOT / "workflows"
WIDTH = 960  # pixels of a picture
PLAY_TAB = "play-tab"
PAGE_OF_TAB = {"width": 1440, "height": 960}
WIDER, BESIDE_TAB = 110, [460, 60]  # page pixels that the tab is made wider; the graph's offset
LEFT, TOP, MARGIN = 110, 100, 16  # where the graph begins on the page, beside its menus; page pixels around the graph
LONGEST = 1_800_000  # milliseconds that an example may take
SHARPER = 2  # the page is drawn so many times larger, and the picture made smaller again
SETTINGS = {"LiteGraph.Canvas.LowQualityRenderingZoomThreshold": 0.1, "Comfy.Minimap.Visible": False}
LOAD = "async (text) => { await app.loadGraphData(JSON.parse(text)); }"
# Puts the graph into the corner of the page; returns the size that it has there. Nodes have grown by what a run shows.
PLACE = """([width, left, top, margin]) => {
  app.canvas.ds.scale = 1;
  const boxes = [...app.graph._groups, ...app.graph._nodes].map((part) => part.boundingRect ?? part._bounding);
  const low = [0, 1].map((axis) => Math.min(...boxes.map((box) => box[axis])));
  const high = [0, 1].map((axis) => Math.max(...boxes.map((box) => box[axis] + box[axis + 2])));
  const scale = (width - 2 * margin) / (high[0] - low[0]);
  const canvas = app.canvas.canvas.getBoundingClientRect();
  const corner = [left + margin - canvas.left, top + margin - canvas.top];
  Object.assign(app.canvas.ds, { scale, offset: corner.map((place, axis) => place / scale - low[axis]) });
  app.canvas.setDirty(true, true);
  return [width, Math.ceil((high[1] - low[1]) * scale) + 2 * margin];
}"""
# Stops every clip in its middle, so that pictures of the same weights are alike.
HALT = """() => Promise.all([...document.querySelectorAll("video")].map((video) => {
  video.pause();
  video.controls = false;
  if (Number.isFinite(video.duration)) video.currentTime = video.duration / 2;
}))"""


def main(names: list[str], out: Path) -> None:
    """Make the pictures. ValueError for an example that does not exist, RuntimeError for one that fails."""
    known = [*sorted(path.stem for path in WORKFLOWS.glob("*.json")), PLAY_TAB]
    for name in names:
        if name not in known:
            raise ValueError(f"no example {name!r}; choose from {', '.join(known)}")
    if (chromium := find_chromium()) is None:
        raise ValueError(NEEDED.replace("tests/browser need", "pictures need"))
    from playwright.sync_api import sync_playwright

    out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as base,
        running(Path(base) / "server") as server,
        sync_playwright() as playwright,
    ):
        for given in (WORKFLOWS / "input").iterdir():
            shutil.copy(given, server.input_dir)
        browser = playwright.chromium.launch(executable_path=chromium, headless=True, args=list(FLAGS))
        page = browser.new_page(viewport={"width": 1600, "height": 1400}, device_scale_factor=SHARPER)
        opened(page, server.url)
        for setting in SETTINGS.items():  # the page reads them as it opens again
            page.evaluate("([key, value]) => app.extensionManager.setting.set(key, value)", setting)
        for name in names or [name for name in known if not name.startswith("8-")]:
            make = play_tab if name == PLAY_TAB else picture
            make(page, server.url, name).save(out / f"{name}.jpg", quality=78, optimize=True)
            print(out / f"{name}.jpg", flush=True)  # noqa: T201


def opened(page: Any, url: str) -> None:
    """ComfyUI's page, without the templates of a first start."""
    page.goto(url, wait_until="domcontentloaded")
    page.wait_for_function(READY, timeout=120_000)
    page.wait_for_timeout(2000)
    page.keyboard.press("Escape")


def picture(page: Any, url: str, name: str) -> Image.Image:
    """An example after its run, as the page shows it."""
    run(page, url, name)
    width, height = page.evaluate(PLACE, [WIDTH, LEFT, TOP, MARGIN])
    return shown(page, (LEFT, TOP, width, height), (width, height))


def play_tab(page: Any, url: str, name: str) -> Image.Image:
    """The Play tab with the story of example 5, beside its graph."""
    page.set_viewport_size(PAGE_OF_TAB)
    run(page, url, "5-story")
    page.locator(TAB).click()
    page.locator(".ag-story:visible", has_text="yuzu-day").click()
    page.wait_for_selector(".ag-proposals .ag-story", timeout=LONGEST)  # they come last
    edge = page.locator(".p-splitter-gutter:visible").first.bounding_box()
    page.mouse.move(edge["x"] + edge["width"] / 2, edge["y"] + 300)
    page.mouse.down()
    page.mouse.move(edge["x"] + WIDER, edge["y"] + 300, steps=8)
    page.mouse.up()
    # the edge is drawn in another colour below the mouse, and tabs of the page show their names
    page.mouse.move(PAGE_OF_TAB["width"] - LEFT, PAGE_OF_TAB["height"] / 2)
    page.evaluate("(offset) => Object.assign(app.canvas.ds, { scale: 0.6, offset })", BESIDE_TAB)
    page.evaluate("() => app.canvas.setDirty(true, true)")
    width, height = PAGE_OF_TAB["width"], PAGE_OF_TAB["height"]
    return shown(page, (0, 0, width, height), (WIDTH, WIDTH * height // width))


def run(page: Any, url: str, name: str) -> None:
    """Open an example and run it. RuntimeError if it fails."""
    opened(page, url)
    page.evaluate(LOAD, (WORKFLOWS / f"{name}.json").read_text(encoding="utf-8"))
    page.evaluate(script("run"))
    page.wait_for_function("() => window.ended", timeout=LONGEST)
    ended, why = page.evaluate("() => window.ended")
    if ended != "execution_success":
        raise RuntimeError(f"{name}: {ended}: {why}")


def shown(page: Any, place: tuple[int, int, int, int], size: tuple[int, int]) -> Image.Image:
    """What the page shows at x, y, width, height, with its clips stopped."""
    page.wait_for_timeout(3000)  # until the clips are loaded
    page.evaluate(HALT)
    page.wait_for_timeout(1000)
    taken = page.screenshot(clip=dict(zip(("x", "y", "width", "height"), place, strict=True)))
    with Image.open(io.BytesIO(taken)) as large:
        return large.convert("RGB").resize(size, Image.Resampling.LANCZOS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="make the pictures of the examples")
    parser.add_argument("names", nargs="*", help="examples, such as 1-one-turn (default: all that can run here)")
    parser.add_argument("--out", type=Path, default=WORKFLOWS, help="for the pictures (default: workflows/)")
    arguments = parser.parse_args()
    main(arguments.names, arguments.out)
