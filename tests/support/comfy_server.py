"""A real ComfyUI server on the CPU with this pack in it, for tests/comfyui and tests/browser.

Nothing is written into the ComfyUI checkout: a throw-away base directory holds models, input, output and user data, and
the pack as a link. `python tests/support/comfy_server.py REPORT.xml` checks that a test run used the ComfyUI
that is there.
"""

import base64
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import xml.etree.ElementTree
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("tests.comfyui.", "tests.browser.")
SKIPPED = "no ComfyUI found; `make comfyui` gets one, or set COMFYUI_DIR"
OLDER = "this ComfyUI is too old: it has no "  # the one reason to skip a test where a ComfyUI is


def find_comfyui():
    """(its folder, its interpreter): COMFYUI_DIR, the one this pack lies in, ours, or ~/comfy/ComfyUI; else None."""
    given = os.environ.get("COMFYUI_DIR")
    around = ROOT.parent.parent if ROOT.parent.name == "custom_nodes" else None
    for folder in [Path(given)] if given else [around, ROOT / ".comfyui", Path.home() / "comfy" / "ComfyUI"]:
        if folder is None or not (folder / "main.py").is_file():
            continue
        python = Path(os.environ.get("COMFYUI_PYTHON", folder / ".venv" / "bin" / "python"))
        if python.is_file():
            return folder, python
    return None


class ComfyServer:
    """One server process. `url` is its address; output_dir, input_dir and models_dir are its own."""

    def __init__(self, base, arguments=()):
        self.arguments = arguments
        self.base = base
        self.comfy, self.python = find_comfyui()
        self.output_dir, self.input_dir, self.models_dir = base / "output", base / "input", base / "models"
        for folder in (self.output_dir, self.input_dir, self.models_dir, base / "custom_nodes"):
            folder.mkdir(parents=True)
        (base / "custom_nodes" / "ComfyUI-AnimeGamer").symlink_to(ROOT)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self, timeout=180, **environment):
        """Start it, with further variables in its environment, and wait until it answers."""
        command = [self.python, "main.py", "--cpu", "--listen", "127.0.0.1", "--port", str(self.port), *self.arguments]
        command += ["--disable-auto-launch", "--base-directory", self.base]
        command += ["--database-url", f"sqlite:///{self.base / 'comfy.db'}"]
        if "COMFYUI_FRONTEND" in os.environ:  # the folder `static` of another comfyui-frontend-package
            command += ["--front-end-root", os.environ["COMFYUI_FRONTEND"]]
        with (self.base / "server.log").open("w") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.comfy,
                stdout=log,
                stderr=subprocess.STDOUT,
                # One thread: beside other tests, two wait for one another more than they work.
                env={
                    "OMP_NUM_THREADS": "1",
                    "OMP_DISPLAY_ENV": "TRUE",
                    **os.environ,
                    "HF_HUB_OFFLINE": "1",
                    **environment,
                },
            )
        begun = time.monotonic()
        while time.monotonic() < begun + timeout and self.process.poll() is None:
            with contextlib.suppress(OSError):
                self.get("/system_stats")
                return
            time.sleep(0.2)
        self.stop()
        raise AssertionError(f"ComfyUI did not start:\n{self.log_text()[-4000:]}")

    def stop(self):
        """End the process that `start` began."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    @contextlib.contextmanager
    def paused(self):
        """The process stands still meanwhile: what it computes cannot end, and requests wait."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def log_text(self):
        """All that the server has printed so far."""
        return (self.base / "server.log").read_text(errors="replace")

    def get(self, path):
        """The JSON that an address answers with."""
        return json.loads(self.get_bytes(path))

    def get_bytes(self, path):
        """What an address answers with."""
        with urllib.request.urlopen(self.url + path, timeout=60) as answer:
            return answer.read()

    def post(self, path, body):
        """(status, JSON or None) of a POST, also of one that was refused."""
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read() or b"null")

    def queue(self, prompt, **extra):
        """Queue a prompt in API form; its id. AssertionError with ComfyUI's words if it is refused."""
        status, answer = self.post("/prompt", {"prompt": prompt, **extra})
        assert status == 200, json.dumps(answer, indent=1)
        return answer["prompt_id"]

    def wait(self, prompt_id, timeout=180):
        """The history entry of a queued prompt, once it has ended in whatever way."""
        self.wait_until(lambda: prompt_id in self.get(f"/history/{prompt_id}"), timeout)
        return self.get(f"/history/{prompt_id}")[prompt_id]

    def run(self, prompt, timeout=180):
        """Queue a prompt and wait; the history entry of a run that succeeded."""
        entry = self.wait(self.queue(prompt), timeout)
        assert entry["status"]["status_str"] == "success", json.dumps(entry["status"], indent=1)
        return entry

    def refusal(self, prompt, timeout=180):
        """The one sentence that a prompt fails with; None if the server compares choices with their lists itself.

        Newer versions do; older ones leave it to the node.
        """
        status, answer = self.post("/prompt", {"prompt": prompt})
        if status == 400:
            assert "Value not in list" in json.dumps(answer), answer
            return None
        failed = message(self.wait(answer["prompt_id"], timeout), "execution_error")
        assert failed is not None
        sentence = failed["exception_message"].strip()
        assert len(sentence.splitlines()) == 1 and "Traceback" not in sentence, sentence
        return sentence

    def wait_until(self, reached, timeout=180):
        """Wait until a condition holds."""
        end = time.monotonic() + timeout
        while not reached():
            assert time.monotonic() < end, f"not reached in {timeout} s:\n{self.log_text()[-2000:]}"
            time.sleep(0.02)

    def listen(self, prompt):
        """Run a prompt; yields each message to the page meanwhile: (event, data) pairs, and bytes for pictures."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=180) as line:
            key = base64.b64encode(os.urandom(16)).decode()
            line.sendall(
                f"GET /ws?clientId=listener HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
            )
            stream = line.makefile("rb")
            while stream.readline().strip():
                pass
            able = b'{"type": "feature_flags", "data": {"supports_preview_metadata": true}}'  # as ComfyUI's page
            line.sendall(bytes([0x81, 0x80 | len(able)]) + bytes(4) + able)  # masked by zeros
            self.queue(prompt, client_id="listener")
            event = ""
            while event not in ("execution_success", "execution_error", "execution_interrupted"):
                event, data = _frame(stream)
                yield event, data

    def resident_bytes(self):
        """The memory that the process holds now (Linux)."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def _frame(stream):
    """One message of a web socket: (event, data), or ("picture", bytes) for a binary one."""
    kind, size = stream.read(2)
    if size > 125:
        size = int.from_bytes(stream.read(2 if size == 126 else 8), "big")
    body = stream.read(size)
    if kind & 15 == 2:
        return "picture", body
    values = json.loads(body)
    return values["type"], values["data"]


def message(entry, kind):
    """The first status message of a kind (execution_error, execution_cached, ...) in a history entry, or None."""
    return next((data for name, data in entry["status"]["messages"] if name == kind), None)


def nodes_run(entry):
    """The ids of the prompt's nodes that were computed, not taken from the cache."""
    return set(entry["prompt"][2]) - set(message(entry, "execution_cached")["nodes"])


@contextlib.contextmanager
def running(base, *arguments, **environment):
    """A server in the folder `base`, ended afterwards; without a ComfyUI the test is skipped."""
    if find_comfyui() is None:
        pytest.skip(SKIPPED)
    comfy = ComfyServer(base, arguments)
    comfy.start(**environment)
    try:
        yield comfy
    finally:
        comfy.stop()


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The server of this test run; without a ComfyUI the test is skipped."""
    with running(tmp_path_factory.mktemp("comfyui"), OPENAI_API_KEY="secret") as comfy:
        yield comfy


def check_report(path):
    """0 if no ComfyUI is there, or the tests that need it all ran; else 1, with a line that says which did not."""
    if find_comfyui() is None:
        print(f"SKIPPED: the tests with a real ComfyUI: {SKIPPED}")  # noqa: T201
        return 0
    cases = xml.etree.ElementTree.parse(path).iter("testcase")
    cases = [case for case in cases if case.get("classname").startswith(FOLDERS)]
    skips = ((case, found) for case in cases for found in case.findall("skipped"))
    skipped = [case.get("name") for case, found in skips if not found.get("message", "").startswith(OLDER)]
    if cases and not skipped:
        return 0
    print(f"FAILED: ComfyUI is at {find_comfyui()[0]}, but tests did not use it: {skipped or 'none ran'}")  # noqa: T201
    return 1


if __name__ == "__main__":
    sys.exit(check_report(sys.argv[1]))
