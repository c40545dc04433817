"""As much of ComfyUI as the pack needs to load: what its nodes declare is recorded, and its routes answer.

No node runs here, and neither ComfyUI nor aiohttp need be installed. tests/comfyui asks a real server.
"""

import asyncio
import contextlib
import importlib.util
import json
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).parents[2]
PACK = "pack_in_comfy_stub"
Record = types.SimpleNamespace  # what a declaration was given


class Socket:
    """A type of inputs and outputs, such as `io.Float`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def Input(self, id: str, **facts: Any) -> Record:  # noqa: N802 as ComfyUI spells it
        return Record(id=id, type=self.name, facts=facts, extra_dict={})

    def Output(self, id: str | None = None, display_name: str | None = None, **facts: Any) -> Record:  # noqa: N802
        return Record(id=id, type=self.name, display_name=display_name, facts=facts)


class Io:
    """`comfy_api.v0_0_2.io`: every name that is not known here is a socket type."""

    ComfyNode = type("ComfyNode", (), {})
    Schema = Record
    Hidden = Record(unique_id="unique_id", prompt="prompt", extra_pnginfo="extra_pnginfo")
    UploadType = Record(image="image_upload", video="video_upload", audio="audio_upload")
    Custom = Socket

    def __getattr__(self, name: str) -> Socket:
        return Socket(name.upper())


class Routes(list[Record]):
    """The server's table of routes."""

    def __getattr__(self, method: str) -> Any:
        if method not in ("get", "post", "put", "delete", "patch", "head"):
            raise AttributeError(method)
        return lambda path: lambda handler: self.append(Record(method=method.upper(), path=path, handler=handler))


class ComfyStub:
    """Empty models, input and output folders below `base`, and what the pack registers."""

    def __init__(self, base: Path) -> None:
        self.routes = Routes()
        self.arguments = Record(listen="127.0.0.1", enable_cors_header=None)
        self.folders = {name: base / name for name in ("models", "input", "output")}
        for folder in self.folders.values():
            folder.mkdir(parents=True)

    @contextlib.contextmanager
    def serving(self) -> Iterator[Callable[..., tuple[int, Any]]]:
        """Load the pack; within the block its routes answer: ask(method, path, query, body, headers) -> (status, what).

        What: the JSON, or the text of another answer. A queued prompt is accepted, and never runs.
        """
        with self._modules():
            self._load()
            self.routes.post("/prompt")(_accept)
            yield self._ask

    def schemas(self) -> list[Record]:
        """The schemas of the pack's nodes."""
        with self._modules():
            return self._load()

    def _load(self) -> list[Record]:
        """Import the pack as ComfyUI's loader does."""
        options: Any = {"submodule_search_locations": [str(ROOT)]}
        spec = importlib.util.spec_from_file_location(PACK, ROOT / "__init__.py", **options)
        pack = sys.modules[PACK] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(pack)
        nodes = asyncio.run(asyncio.run(pack.comfy_entrypoint()).get_node_list())
        return [node.define_schema() for node in nodes]

    def _ask(self, method: str, path: str, query: dict, body: bytes, headers: dict) -> tuple[int, Any]:
        async def read() -> bytes:
            return body

        handler = next(at.handler for at in self.routes if (at.method, at.path) == (method, path))
        sent = {"Host": "127.0.0.1:8188", **headers}
        request = Record(headers=sent, query=query, content_type="application/json", read=read)
        answer = asyncio.run(handler(request))
        return answer.status, json.loads(answer.json, parse_constant=_refuse) if answer.json else answer.text

    @contextlib.contextmanager
    def _modules(self) -> Iterator[None]:
        """ComfyUI's modules, within the block. Others that the pack imports stay, since torch loads only once."""
        models = self.folders["models"]
        api = {"io": Io(), "ComfyExtension": type("ComfyExtension", (), {})}
        api |= {name: MagicMock() for name in ("ui", "InputImpl", "Types")}
        modules = {
            "comfy_api": {},
            "comfy_api.v0_0_2": api,
            "comfy_api.latest": api,
            "folder_paths": {
                "models_dir": str(models),
                "add_model_folder_path": lambda name, path, is_default=False: None,
                "get_folder_paths": lambda name: [str(models / name)],
                "get_filename_list": lambda name: [],
                "get_input_directory": lambda: str(self.folders["input"]),
                "get_output_directory": lambda: str(self.folders["output"]),
            },
            "server": {"PromptServer": Record(instance=Record(routes=self.routes, send_sync=lambda *_: None))},
            "comfy": {},
            "comfy.cli_args": {"args": self.arguments},
            "aiohttp": {"web": Record(Response=partial(Record, status=200, json=""), json_response=_json_answer)},
        }
        before = {name: sys.modules.get(name) for name in modules}
        for name, values in modules.items():
            sys.modules[name] = types.ModuleType(name)
            vars(sys.modules[name]).update(values)
        try:
            yield
        finally:
            for name in [name for name in sys.modules if name.partition(".")[0] == PACK or name in modules]:
                del sys.modules[name]
            sys.modules.update({name: module for name, module in before.items() if module is not None})


def _json_answer(values: Any, status: int = 200) -> Record:
    return Record(status=status, text=json.dumps(values), json=json.dumps(values))


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


async def _accept(request: Any) -> Record:
    return _json_answer({"prompt_id": str(len((await request.json())["prompt"]))})
