"""The check that CI makes of the tests' report: where a ComfyUI is, no test of it may be skipped but for its age."""

import sys

import pytest
from comfy_server import OLDER, check_report

CASE = '<testsuite><testcase classname="tests.comfyui.test_x" name="one">{}</testcase></testsuite>'


@pytest.mark.parametrize(
    "skipped, status",
    [
        ("", 0),
        (f'<skipped message="{OLDER}Cut"/>', 0),
        ('<skipped message="no Chromium"/>', 1),
        ("<skipped/>", 1),
    ],
)
def test_only_an_old_comfyui_excuses_a_skipped_test(tmp_path, monkeypatch, capsys, skipped, status):
    (tmp_path / "main.py").touch()
    monkeypatch.setenv("COMFYUI_DIR", str(tmp_path))
    monkeypatch.setenv("COMFYUI_PYTHON", sys.executable)
    report = tmp_path / "tests.xml"
    report.write_text(CASE.format(skipped))
    assert check_report(report) == status
    assert ("test_x::one" in capsys.readouterr().out) == bool(status)
