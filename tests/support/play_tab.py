"""The Play tab on the page of a real ComfyUI, as a player uses it."""

import urllib.parse

from pages import script

TURN = 240_000  # ms that a turn may take here
TAB = "button.animegamer\\.play-tab-button, [data-testid='animegamer.play-tab-button']"  # frontend 1.58: by its test id
MESSAGE = ":is(.p-toast-message, [data-testid=toast])"  # a message at the edge of the page


class PlayTab:
    """The tab as a player sees it."""

    def __init__(self, comfy, server, world):
        self.comfy, self.page, self.server, self.world = comfy, comfy.page, server, world

    def open(self):
        if not self.page.locator(".ag-play").count():
            self.page.locator(TAB).click()
        self.page.wait_for_selector(".ag-play[aria-busy=false]")

    def close_story(self):
        """Back to the list of stories."""
        self.open()
        if self.page.locator(".ag-game:visible").count():
            self.page.locator(".ag-top button").first.click()

    def begin(self, story, world=None):
        self.close_story()
        self.page.fill(".ag-new input", story)
        self.page.select_option(".ag-new select", world or self.world)
        self.page.locator(".ag-new .ag-main").click()
        self.page.wait_for_selector(":is(.ag-game, .ag-existing):visible")
        if self.page.locator(".ag-existing:visible").count():
            self.page.locator(".ag-existing button").click()
        self.page.wait_for_selector(".ag-game:visible")

    def sketch(self, steps=2):
        """Few sampling steps in place of the world's own number, for quick tests."""
        self.page.locator(".ag-fold summary").last.click()
        self.page.fill("input[name=steps]", str(steps))
        self.page.locator(".ag-fold summary").last.click()

    def tell(self, words, key="Enter"):
        self.page.fill(".ag-text", words)
        self.page.press(".ag-text", key)

    def play(self, words, number):
        self.tell(words)
        self.wait_for_turn(number)

    def wait_for_turn(self, number):
        """Until turn `number` is the one on the stage and nothing is on its way."""
        self.page.wait_for_function(script("turn_is_shown"), arg=str(number), timeout=TURN)

    def wait_until_idle(self):
        self.page.wait_for_function("() => document.querySelector('.ag-doing').hidden", timeout=TURN)

    def gauges(self):
        tracks = self.page.locator(".ag-play .ag-track")
        return {track.get_attribute("aria-label"): int(track.get_attribute("aria-valuenow")) for track in tracks.all()}

    def alert(self):
        return self.page.locator(".ag-form .ag-alert:visible").all_inner_texts()

    def saved(self, name):
        return self.server.get(f"/animegamer/story?{urllib.parse.urlencode({'name': name})}")

    def branches(self, name):
        """{branch: its instructions} as the server has them."""
        return {
            branch["name"]: [turn["instruction"] for turn in branch["turns"]] for branch in self.saved(name)["branches"]
        }
