"""Tests against a real ComfyUI server. Without one they are skipped, and a line at the end says so."""

from comfy_server import SKIPPED, find_comfyui, server  # noqa: F401  a fixture


def pytest_terminal_summary(terminalreporter):
    if find_comfyui() is None:
        terminalreporter.write_line(f"SKIPPED the tests with a real ComfyUI: {SKIPPED}", red=True, bold=True)
