"""A real Chromium on the page of a real ComfyUI server, shared by the tests of this folder."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from chromium import FLAGS, NEEDED, find_chromium
from comfy_server import server  # noqa: F401  (the fixture)
from pages import ComfyPage
from play_tab import PlayTab


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
    from tiny_world import SPECS, save_tiny_world

    if not (server.models_dir / "animegamer" / "tiny").exists():
        save_tiny_world(server.models_dir / "animegamer" / "tiny", encoder=True)
        many = replace(SPECS["tiny"], decoder=replace(SPECS["tiny"].decoder, layers=40))
        save_tiny_world(server.models_dir / "animegamer" / "slow", spec=many)  # before the page lists worlds
    return "tiny"


@pytest.fixture(scope="session")
def slow(world):
    """A world whose 1,000 steps last longer than a page takes to load."""
    return "slow" if world == "tiny" else world


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
