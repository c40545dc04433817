"""Plays in the Play tab of a real ComfyUI, in a real Chromium, and measures what drawing turns ahead saves and costs.

    python tests/measure/ahead.py --turns 30

Click to first frame of turns that were drawn ahead and of others; how often a player who thinks for 2, 6 or 12 seconds
chooses one that is there; how much later a typed turn begins while one is drawn ahead; and what is left at the end.
It finds ComfyUI as the tests do (COMFYUI_DIR).
"""
# ruff: noqa: T201

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parents[1] / "support")]

from chromium import FLAGS, find_chromium
from comfy_server import ComfyServer
from play_tab import TAB
from playwright.sync_api import sync_playwright
from tiny_world import save_tiny_world

from animegamer_core.story.ahead_store import LARGEST_AHEAD, OLDEST_AHEAD, ahead_bytes

READY = ".ag-proposals .ag-ready:not([hidden])"
CHOICES = (0.5, 0.25, 0.15, 0.1)  # of the first, second and third proposal, and of writing something else
# From a click on a proposal, or Enter, to the first frame of the turn's clip, and to the turn in its story, in ms.
PLAYED = """
([chosen]) => new Promise((resolve) => {
  const stage = document.querySelector(".ag-stage");
  const number = () => stage.querySelector(".ag-number").textContent;
  const wanted = String(Number(number()) + 1);
  const begun = performance.now();
  let frame = 0;
  const look = () => {
    const video = stage.querySelector(".ag-screen video");
    if (!frame && number() === wanted && video?.readyState >= 2) frame = performance.now() - begun;
    const saved = frame && document.querySelector(".ag-stop-button").hidden;
    if (saved) resolve([frame, performance.now() - begun]);
    else requestAnimationFrame(look);
  };
  if (chosen === null) document.querySelector(".ag-form .ag-main").click();
  else document.querySelectorAll(".ag-proposals .ag-story")[chosen].click();
  look();
})
"""
LISTEN = "() => app.api.addEventListener('execution_start', () => { window.measuredStart = performance.now(); })"


class Game:
    """A page with an open story."""

    def __init__(self, page, comfy, world, steps):
        self.page, self.comfy = page, comfy
        page.goto(comfy.url, wait_until="domcontentloaded")
        page.wait_for_function("() => Boolean(window.app?.extensionManager && app.graph)", timeout=120_000)
        page.wait_for_timeout(2000)
        page.keyboard.press("Escape")
        self.set("Mode", "off")
        self.set("Seconds", 60)
        page.evaluate(LISTEN)
        page.locator(TAB).click()
        page.wait_for_selector(".ag-play[aria-busy=false]")
        page.fill(".ag-new input", f"measured {time.time():.0f}")
        page.select_option(".ag-new select", world)
        page.locator(".ag-new .ag-main").click()
        page.wait_for_selector(".ag-game:visible")
        page.locator(".ag-fold summary").nth(1).click()
        page.fill("input[name=steps]", str(steps))
        page.locator(".ag-fold summary").nth(1).click()
        self.type("Character: Miko; Motion: gently wave hello with a red scarf; Background: day beach.")
        page.wait_for_selector(".ag-proposals .ag-story")

    def set(self, name, value):
        """Change one of the settings of turns that are drawn ahead."""
        key = f"AnimeGamer.Ahead.{name}"
        self.page.evaluate("([key, value]) => app.extensionManager.setting.set(key, value)", [key, value])

    def type(self, text):
        """Play a typed turn; (ms to its first frame, ms until it is saved)."""
        self.page.fill(".ag-text", text)
        return self.page.evaluate(PLAYED, [None])

    def choose(self, number):
        """Play a proposal; (whether it was drawn ahead, ms to its first frame, ms until it is saved)."""
        ready = bool(self.page.locator(".ag-proposal").nth(number).locator(".ag-ready:not([hidden])").count())
        return ready, *self.page.evaluate(PLAYED, [number])

    def proposals(self):
        """Wait for the proposals of this turn."""
        self.page.wait_for_selector(".ag-proposals .ag-story")

    def wait_for_ready(self):
        """Wait until all proposals are drawn."""
        found = "(ready) => document.querySelectorAll(ready).length === 3"
        self.page.wait_for_function(found, arg=READY, timeout=240_000)

    def queue(self):
        """The prompts that run or wait."""
        found = self.comfy.get("/queue")
        return [str(entry[2]) for entry in found["queue_running"] + found["queue_pending"]]

    def typed_start(self, text):
        """Milliseconds from Enter to the start of the turn's prompt, which is then stopped."""
        self.page.fill(".ag-text", text)
        self.page.evaluate("() => { window.measuredStart = 0; window.measuredEnter = performance.now(); }")
        self.page.press(".ag-text", "Enter")
        ours = "() => app.api && window.measuredStart > 0 && document.querySelector('.ag-stop-button:not([hidden])')"
        self.page.wait_for_function(ours, polling=10)
        self.comfy.wait_until(lambda: any(text in prompt for prompt in self.queue()) or not self.queue(), 60)
        found = self.page.evaluate("() => window.measuredStart - window.measuredEnter")
        self.page.click(".ag-stop-button")
        self.page.wait_for_function("() => document.querySelector('.ag-doing').hidden", timeout=60_000)
        return found


def line(values, unit="ms"):
    """Median, 95th percentile and largest of some values."""
    values = sorted(values)
    at95 = values[min(len(values) - 1, round(0.95 * len(values)))]
    return f"median {statistics.median(values):.0f}, 95 % {at95:.0f}, most {values[-1]:.0f} {unit} (n = {len(values)})"


def measure_hits(game, turns):
    """Turns that were all drawn ahead, beside some that were not."""
    plain = [game.choose(0)[1:] for _ in range(6) if not game.proposals()]
    print(f"not drawn ahead: first frame {line([first for first, _ in plain])}", flush=True)
    game.set("Mode", "on")
    found = []
    for number in range(turns):
        game.proposals()
        game.wait_for_ready()
        found.append(game.choose(number % 3))
    assert all(ready for ready, *_ in found)
    print(f"drawn ahead: first frame {line([first for _, first, _ in found])}")
    print(f"  until it is in the story {line([saved for *_, saved in found])}", flush=True)


def measure_rate(game, turns, seconds, ahead):
    """How often the turn of a scripted player is there who chooses after so many seconds."""
    game.set("Turns", ahead)
    rng, hits, offered, waits = random.Random(f"{seconds} {ahead}"), 0, 0, []
    for _ in range(turns):
        game.proposals()
        game.page.wait_for_timeout(1000 * seconds)
        chosen = rng.choices(range(4), CHOICES)[0]
        if chosen < 3:
            ready, first, _ = game.choose(chosen)
            hits, offered = hits + ready, offered + 1
        else:
            first, _ = game.type(
                f"Character: Taro; Motion: quickly run; Background: {rng.choice(('day', 'night'))} street."
            )
        waits.append(first)
    print(
        f"thinks {seconds} s, {ahead} ahead: {hits} of {turns} turns were there, {hits} of {offered} chosen proposals; "
        f"first frame {line(waits)}",
        flush=True,
    )


def measure_delay(game, times):
    """How much later a typed turn starts while another is drawn ahead."""
    game.set("Turns", 1)
    found = {}
    for mode in ("off", "on"):
        game.set("Mode", mode)
        found[mode] = []
        for number in range(times):
            game.proposals()
            text = f"Character: Yuzu; Motion: softly dance; Background: night castle. {mode} {number}"
            if mode == "on":
                game.comfy.wait_until(lambda: any("DrawTurnsAhead" in prompt for prompt in game.queue()), 60)
                game.page.wait_for_timeout(100 + 37 * number)  # anywhere in a state or a shot
            found[mode].append(game.typed_start(text))
    print(f"Enter to start, nothing drawn ahead: {line(found['off'])}")
    print(f"Enter to start, while drawing ahead: {line(found['on'])}")
    print(f"  delay {statistics.median(found['on']) - statistics.median(found['off']):.0f} ms", flush=True)


def measure_rest(game, root):
    """What is left over."""
    game.set("Mode", "off")
    game.comfy.wait_until(lambda: not game.queue(), 60)
    game.page.wait_for_timeout(1000)
    history = sum("DrawTurnsAhead" in str(entry["prompt"][2]) for entry in game.comfy.get("/history").values())
    parts = [path for path in root.rglob("part-*")]
    print(
        f"left over: {len(game.queue())} prompts in the queue, {history} in the history, {len(parts)} unfinished files"
    )
    limit = f"{LARGEST_AHEAD / 1e6:.0f} MB, {OLDEST_AHEAD // 3600} h"
    print(f"cache: {ahead_bytes(root) / 1e6:.2f} MB (at most {limit}); stories: {len(list(root.glob('*/story.json')))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30, help="turns of each measurement")
    parser.add_argument("--world", choices=("toybox", "tiny"), default="toybox", help="tiny: random weights, quick")
    parser.add_argument("--steps", type=int, default=16, help="sampling steps of each shot")
    parser.add_argument("--thinks", type=float, nargs="*", default=[2, 6, 12], help="seconds before a choice")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        comfy = ComfyServer(Path(folder) / "comfy")
        save_tiny_world(comfy.models_dir / "animegamer" / "tiny")
        comfy.start()
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=list(FLAGS))
        try:
            version = comfy.get("/system_stats")["system"]["comfyui_version"]
            print(f"ComfyUI {version}, world {args.world}, {args.steps} steps", flush=True)
            page = browser.new_page(viewport={"width": 1400, "height": 1000})
            game = Game(page, comfy, args.world, args.steps)
            measure_hits(game, args.turns)
            for seconds in args.thinks:
                measure_rate(game, args.turns, seconds, 1)
            if args.thinks:
                measure_rate(game, args.turns, args.thinks[-1], 2)
            measure_delay(game, max(5, args.turns // 2))
            measure_rest(game, comfy.output_dir / "animegamer")
        finally:
            browser.close()
            comfy.stop()


if __name__ == "__main__":
    main()
