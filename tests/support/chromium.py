"""The Chromium that tests open pages in, if this machine has one."""

import os
import shutil

NEEDED = "tests/browser need `pip install playwright` and Chromium (`apt-get install chromium`, or CHROMIUM=path)"
FLAGS = ("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync")
FLAGS += ("--disable-component-update", "--disable-dev-shm-usage", "--disable-quic", "--mute-audio")


def find_chromium():
    """The browser's path, or None."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
