"""As much of ComfyUI as the pack needs to load: what its nodes and its server declare is recorded and can be compared.

No node runs here, but the routes answer, also where neither ComfyUI nor aiohttp is installed. The real loader is tested
in `test_nodes_load.py`, and the routes on a real server in tests/comfyui, where a ComfyUI is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import sys
import types
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

ROOT = Path(__file__).parents[2]
PACK = "pack_in_comfy_stub"


class Record(types.SimpleNamespace):
    """What a declaration was given, with a name or type of its own."""


class Socket:
    """A type of inputs and outputs, such as `io.Float`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def Input(self, id: str, **facts: Any) -> Record:  # noqa: N802 as ComfyUI spells it
        """An input of this type."""
        return Record(id=id, type=self.name, facts=facts, extra_dict={})

    def Output(self, id: str | None = None, **facts: Any) -> Record:  # noqa: N802
        """An output of this type."""
        return Record(id=id, type=self.name, facts=facts)


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
        self.model_folders: dict[str, str] = {}
        self.arguments = Record(listen="127.0.0.1", enable_cors_header=None)
        self._base = base
        for name in ("models", "input", "output"):
            (base / name).mkdir(parents=True)

    def load_pack(self) -> tuple[types.ModuleType, list[Record]]:
        """The pack as ComfyUI's loader imports it, and the schemas of its nodes."""
        with self._modules():
            return self._load_pack()

    def _load_pack(self) -> tuple[types.ModuleType, list[Record]]:
        options: Any = {"submodule_search_locations": [str(ROOT)]}
        spec = importlib.util.spec_from_file_location(PACK, ROOT / "__init__.py", **options)
        assert spec is not None and spec.loader is not None
        pack = sys.modules[PACK] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(pack)
        return pack, [node.define_schema() for node in asyncio.run(_nodes_of(pack))]

    @contextlib.contextmanager
    def serving(self) -> Iterator[Callable[..., tuple[int, Any]]]:
        """Load the pack; within the block its routes answer: ask(method, path, query, body, headers) -> (status, what).

        What: the JSON, or the text of another answer. A queued prompt is accepted, and never runs.
        """
        with self._modules():
            self._load_pack()
            self.routes.post("/prompt")(_accept)
            yield self._ask

    def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = types.MappingProxyType({}),
        body: bytes = b"",
        headers: Mapping[str, str] = types.MappingProxyType({}),
    ) -> tuple[int, Any]:
        handler = next(at.handler for at in self.routes if (at.method, at.path) == (method, path))
        sent = {"Host": "127.0.0.1:8188", **headers}
        content = Record(iter_chunked=partial(_chunks, body))
        request = Record(headers=sent, query=query, content_type="application/json", content=content)
        answer = asyncio.run(handler(request))
        return answer.status, json.loads(answer.json, parse_constant=_refuse) if answer.json else answer.text

    @contextlib.contextmanager
    def _modules(self) -> Iterator[None]:
        """ComfyUI's modules, within the block. Others that the pack imports stay, since torch loads only once."""
        api = {"io": Io(), "ComfyExtension": type("ComfyExtension", (), {})}
        api |= {name: MagicMock() for name in ("ui", "InputImpl", "Types")}
        instance = Record(routes=self.routes, send_sync=lambda *_: None)
        modules = {
            "comfy_api": {},
            "comfy_api.v0_0_2": api,
            "comfy_api.latest": api,
            "folder_paths": self._folders(),
            "server": {"PromptServer": Record(instance=instance)},
            "comfy": {},
            "comfy.cli_args": {"args": self.arguments},
            "aiohttp": {"web": Record(Response=_text_answer, json_response=_json_answer)},
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

    def _folders(self) -> dict[str, Any]:
        """The content of ComfyUI's module `folder_paths`."""
        return {
            "models_dir": str(self._base / "models"),
            "add_model_folder_path": self._add_model_folder,
            "get_folder_paths": lambda name: [self.model_folders[name]],
            "get_filename_list": lambda name: [],
            "get_input_directory": lambda: str(self._base / "input"),
            "get_output_directory": lambda: str(self._base / "output"),
        }

    def _add_model_folder(self, name: str, path: str, is_default: bool = False) -> None:
        self.model_folders[name] = path


def _text_answer(text: str) -> Record:
    return Record(status=200, text=text, json="")


def _json_answer(values: Any, status: int = 200) -> Record:
    return Record(status=status, text=json.dumps(values), json=json.dumps(values))


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


async def _accept(request: Any) -> Record:
    return _json_answer({"prompt_id": str(len((await request.json())["prompt"]))})


async def _chunks(body: bytes, size: int) -> AsyncIterator[bytes]:
    for start in range(0, len(body), size):
        yield body[start : start + size]


async def _nodes_of(pack: types.ModuleType) -> list[Any]:
    return await (await pack.comfy_entrypoint()).get_node_list()
