"""Plays thousands of turns through the queue of one real ComfyUI and watches what its process takes.

    python tests/measure/comfyui_soak.py --turns 10000 --every 500 --log soak.txt

Turns go through the queue as the Play tab sends them. Worlds, presets and stories change as with a restless player,
branches begin at earlier turns, runs are interrupted, and a browser opens, plays in, reloads and closes the Play tab.
One sampling step a turn: what is watched does not depend on it. A line per `--every` turns; `--log` keeps them.
"""

import argparse
import contextlib
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

from chromium import FLAGS, find_chromium
from comfy_server import ComfyServer, message
from long_game import long_game
from play_tab import TAB
from tiny_world import save_tiny_world

MB = 1 << 20
VISIT = 50  # turns in one world with one preset
STORY = 1_000  # turns after which a new story begins
# A quarter of the turns is of the Toybox's size; the others, of random weights, are quick.
WORLDS = ("toybox", "tiny", "tiny", "tiny", "other", "tiny", "tiny", "tiny")
PRESETS = ("world", "exact", "balanced", "live")
HEADER = ("turns", "minutes", "s a turn", "RSS MB", "files", "threads", "temp files", "MB a 1,000 turns", "page MB")


class Soak:
    """One server and its player. counts: what has happened so far."""

    def __init__(self, comfy, turns, seed):
        self.comfy, self.turns, self.random = comfy, turns, random.Random(seed)
        self.lines = long_game(turns)
        self.counts = dict.fromkeys(("interrupted", "branches", "page loads", "turns from the page"), 0)
        self.length = {}  # story -> its turns
        self.began = time.monotonic()

    def prompt(self, number):
        """Turn `number` as the Play tab sends it, with its story."""
        visit = number // VISIT
        world = WORLDS[visit % len(WORLDS)]
        story = f"{world} {number // STORY}"
        after = -1
        if self.length.get(story, 0) > 10 and self.random.random() < 0.02:
            after = self.length[story] - self.random.randint(1, 5)
            self.counts["branches"] += 1
        game = {"model": ["1", 0], "instructions": self.lines[number], "story": story, "after": after, "branch": ""}
        game |= {"window": -1, "seed": number, "motion": "predicted", "motion_value": 0.0, "steps": 1}
        game |= {"guidance": "world", "export": False}
        preset = PRESETS[visit // len(WORLDS) % len(PRESETS)]
        loader = {"world": world, "precision": "auto", "placement": "auto", "preset": preset}
        return (
            story,
            after,
            {
                "1": {"class_type": "LoadAnimeGamer", "inputs": self.defaults("LoadAnimeGamer") | loader},
                "2": {"class_type": "PlayGameStory", "inputs": self.defaults("PlayGameStory") | game},
            },
        )

    def defaults(self, node):
        """The default values of a node's widgets, as the server states them."""
        if not hasattr(self, "info"):
            self.info = self.comfy.get("/object_info")
        inputs = self.info[node]["input"]
        found = {}
        for name, (_, *options) in {**inputs["required"], **inputs.get("optional", {})}.items():
            if options and "default" in options[0]:
                found[name] = options[0]["default"]
        return found

    def step(self, number):
        """Play one turn; some are interrupted at a random moment."""
        story, after, prompt = self.prompt(number)
        interrupted = self.random.random() < 0.01
        prompt_id = self.comfy.queue(prompt)
        if interrupted:
            time.sleep(self.random.uniform(0, 0.5))
            self.comfy.post("/interrupt", {})
        entry = self.comfy.wait(prompt_id)
        if entry["status"]["status_str"] == "success":
            self.length[story] = (self.length.get(story, 0) if after < 0 else after) + 1
        else:
            assert interrupted and message(entry, "execution_interrupted"), json.dumps(entry["status"])
            self.counts["interrupted"] += 1

    def measure(self, number, page):
        """The values of one line, in the order of HEADER."""
        self.comfy.post("/history", {"clear": True})  # ComfyUI keeps the results of 10,000 runs; a player clears them
        self.comfy.post("/free", {"free_memory": True, "unload_models": True})
        time.sleep(3)
        process = psutil.Process(self.comfy.process.pid)
        minutes = (time.monotonic() - self.began) / 60
        temp = sum(path.is_file() for path in (self.comfy.base / "temp").rglob("*"))
        stored = sum(path.stat().st_size for path in self.comfy.output_dir.rglob("*") if path.is_file()) / MB
        return (
            number,
            round(minutes, 1),
            round(minutes * 60 / number, 2),
            round(process.memory_info().rss / MB),
            process.num_fds(),
            process.num_threads(),
            temp,
            round(1000 * stored / number, 1),
            page,
        )


class Visitor:
    """A person with a browser, who opens the Play tab, plays a turn, reloads, and leaves."""

    def __init__(self, browser, soak):
        self.browser, self.soak = browser, soak

    def visit(self, story):
        """One visit; the MB of JavaScript's heap at its end."""
        page = self.browser.new_page(viewport={"width": 1400, "height": 1000})
        try:
            for _ in range(2):  # the second time is a reload
                page.goto(self.soak.comfy.url, wait_until="domcontentloaded")
                page.wait_for_function("() => Boolean(window.app?.extensionManager && app.graph)", timeout=120_000)
                page.wait_for_timeout(1000)
                page.keyboard.press("Escape")
                self.soak.counts["page loads"] += 1
            if not page.locator(".ag-play").count():
                page.locator(TAB).click()
            page.wait_for_selector(".ag-play")
            self._play(page, story)
            return round(page.evaluate("() => performance.memory.usedJSHeapSize") / MB)
        finally:
            page.close()

    def _play(self, page, story):
        if page.locator(".ag-game:visible").count():
            page.locator(".ag-top button").first.click()
        page.fill(".ag-new input", story)
        page.select_option(".ag-new select", "tiny")
        page.locator(".ag-new .ag-main").click()
        page.wait_for_selector(".ag-game:visible")
        page.fill(".ag-text", "Character: Miko; Motion: gently wave hello; Background: day beach.")
        page.press(".ag-text", "Enter")
        page.wait_for_function("() => document.querySelector('.ag-doing').hidden === false", timeout=60_000)
        page.wait_for_function("() => document.querySelector('.ag-doing').hidden", timeout=120_000)
        self.soak.counts["turns from the page"] += 1


@contextlib.contextmanager
def browser_or_none():
    """A Chromium, or None if there is none."""
    if find_chromium() is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=find_chromium(), headless=True, args=list(FLAGS))
        yield browser
        browser.close()


def run(options, folder):
    """Play, and yield a line for each measurement, then one with what has happened."""
    comfy = ComfyServer(folder / "base")
    worlds = comfy.models_dir / "animegamer"
    save_tiny_world(worlds / "tiny")
    shutil.copytree(Path(__file__).parents[2] / "animegamer_core/toybox/weights", worlds / "other")
    comfy.start()
    try:
        with browser_or_none() as browser:
            soak = Soak(comfy, options.turns, options.seed)
            visitor = Visitor(browser, soak) if browser else None
            page = "-"
            for number in range(1, options.turns + 1):
                soak.step(number - 1)
                if visitor and number % options.visits == 0:
                    page = visitor.visit(f"visit {number}")
                if number % options.every == 0 or number == options.turns:
                    yield soak.measure(number, page)
            yield tuple(f"{name} {count}" for name, count in soak.counts.items())
    finally:
        comfy.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=500, help="turns between two measurements")
    parser.add_argument("--visits", type=int, default=250, help="turns between two visits of the browser")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("comfyui_soak.txt"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, options.log.open("w") as log:
        for line in _lines(options, Path(folder)):
            print(line, flush=True)  # noqa: T201
            print(line, file=log, flush=True)


def _lines(options, folder):
    yield " | ".join(HEADER)
    for values in run(options, folder):
        yield " | ".join(map(str, values))


if __name__ == "__main__":
    main()
