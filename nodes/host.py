"""The only door to ComfyUI itself: its folders, devices, model management, progress, interrupt and server."""

from __future__ import annotations

import importlib.util
import json
import sys
import typing
from collections.abc import Callable, Collection
from pathlib import Path

from ..animegamer_core.checkpoint import CheckpointError, open_world
from ..animegamer_core.checkpoint.downloads import (
    ANIMEGAMER,
    COGVIDEO,
    DECODER,
    ENGINE,
    MISTRAL,
    PAIR,
    find_downloads,
    published_worlds,
)
from ..animegamer_core.checkpoint.parts import PLAY_PARTS
from ..animegamer_core.checkpoint.world import MANIFEST

if typing.TYPE_CHECKING:
    import torch
    from PIL import Image
    from torch import nn

    from ..animegamer_core.checkpoint import World

PACK = Path(__file__).parent.parent
FOLDER = "animegamer"  # below models/, input/ and output/, and the key in extra_model_paths.yaml
LORAS = "loras"
RUNS, DATASETS, EVALUATIONS = "runs", "datasets", "evaluations"  # below output/animegamer, beside the stories
NONE = "none"
TOYBOX = "toybox"
EXTRA = {  # not in requirements.txt: another pack's OpenCV serves as well, and few cut films
    "cv2": "opencv-python-headless",
    "scenedetect": "scenedetect-headless",
    "openai": "openai",
    "av": "av",
}
PUBLISHED = ("qiqi", "sosuke")  # listed whether they are installed or not


def register_folders() -> None:
    """Make models/animegamer known to ComfyUI, in front of what extra_model_paths.yaml adds under the same name."""
    import folder_paths

    folder_paths.add_model_folder_path(FOLDER, str(Path(folder_paths.models_dir) / FOLDER), is_default=True)


def model_folders() -> list[Path]:
    """The folders that hold worlds: models/animegamer and those of extra_model_paths.yaml; they may not exist."""
    import folder_paths

    return [Path(path) for path in folder_paths.get_folder_paths(FOLDER)]


def output_folder() -> Path:
    """Where stories, runs and datasets are written: output/animegamer."""
    import folder_paths

    return Path(folder_paths.get_output_directory()) / FOLDER


def input_folder() -> Path:
    """Where players put their own datasets: input/animegamer."""
    import folder_paths

    return Path(folder_paths.get_input_directory()) / FOLDER


def world_names() -> list[str]:
    """toybox, qiqi and sosuke always; then what else lies below the model folders, ours or published."""
    return [TOYBOX, *PUBLISHED, *sorted(set(_worlds()) - {TOYBOX, *PUBLISHED})]


def find_world(name: str) -> World:
    """The opened world of that name; nothing of its weights is read.

    ValueError says in one sentence what is missing, where it is published and where to put it.
    """
    if name == TOYBOX:
        return open_world(TOYBOX)
    # A name is only ever compared with what is there, so that no text becomes a path.
    folder = _worlds().get(name)
    if folder is None:
        raise ValueError(_absent(name))
    try:
        world = open_world(folder)
        missing = world.missing(PLAY_PARTS)
    except CheckpointError as error:
        missing = (str(error),)
    if missing:
        published = f"; it is published at {_addresses(name)}" if name in PUBLISHED else ""
        raise ValueError(f"world {name!r} cannot be played: {missing[0]}{published}")
    return world


def output_item(path: Path) -> dict[str, str]:
    """A file below ComfyUI's output folder, as the page asks for it."""
    import folder_paths

    subfolder = path.parent.relative_to(folder_paths.get_output_directory()).as_posix()
    return {"filename": path.name, "subfolder": subfolder, "type": "output"}


def lora_names() -> list[str]:
    """`none`, then the stage files below models/animegamer/loras, with slashes."""
    return [NONE, *sorted(_loras())]


def find_lora(name: str) -> Path:
    """The file of a listed stage file; ValueError if it is gone."""
    found = _loras()
    if name not in found:
        raise ValueError(
            f"stage file {name!r} is not in {model_folders()[0] / LORAS}; put it there and press R, or choose another"
        )
    return found[name]


def age_of_world(name: str) -> str:
    """Changes when the named world is built, converted or downloaded anew; empty for one that is not there."""
    folder = _worlds().get(name)
    if folder is None:
        return ""
    if (folder / MANIFEST).is_file():
        return age_of_file(folder / MANIFEST)
    return age_of_downloads(*((folder, None) if published_worlds(folder) else (folder.parent, folder.name)))


def age_of_downloads(folder: Path, name: str | None = None) -> str:
    """Changes when a file of a published world, which is read in place, does; empty where there is no such world."""
    try:
        found = find_downloads(folder, name)
    except CheckpointError:
        return ""
    parts = (found.engine, found.mistral, found.decoder, found.vae, found.text_tower, found.image_tower)
    files = (sorted(part.rglob("*")) if part.is_dir() else [part] for part in parts if part is not None)
    return " ".join(age_of_file(path) for part in files for path in part)


def age_of_folders(folders: Collection[Path]) -> str:
    """Changes when a file in one of these folders does."""
    return " ".join(age_of_file(path) for folder in folders for path in sorted(folder.rglob("*")))


def age_of_lora(name: str) -> str:
    """Changes when the named stage file is written anew; empty for one that is not there."""
    found = _loras().get(name)
    return "" if found is None else age_of_file(found)


def age_of_file(path: Path) -> str:
    """Changes when a file is written anew, or taken away."""
    try:
        stat = path.stat()
    except OSError:
        return str(path)
    return f"{path}:{stat.st_mtime_ns}:{stat.st_size}"


def require(*packages: str) -> None:
    """ValueError in one sentence if a package that the next step imports is not installed."""
    for package in packages:
        if importlib.util.find_spec(package) is None:
            wanted = EXTRA.get(package, f"-r custom_nodes/{PACK.name}/requirements.txt")
            raise ValueError(
                f"AnimeGamer needs the Python package {EXTRA.get(package, package)}, which this ComfyUI lacks; "
                f"install it with `pip install {wanted}` in ComfyUI's own Python"
            )


def stop_if_interrupted(*_: object) -> None:
    """Raise ComfyUI's interrupt exception if the user asked to stop; to be called within every loop."""
    import comfy.model_management

    comfy.model_management.throw_exception_if_processing_interrupted()


def make_interruptible(model: nn.Module, compiled: Collection[nn.Module] = ()) -> None:
    """Let every layer of a model's stacks look for the interrupt first, so that it takes effect within one pass; and
    every convolution over time, since a stack of the VAE may take seconds.

    compiled: modules that torch compiles as one. They look before they begin: no look from inside could be compiled.
    """
    from torch import compiler, nn

    inside = {layer for module in compiled for layer in module.modules()}
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    slow = [module for module in model.modules() if isinstance(module, nn.Conv3d)]
    for layer in dict.fromkeys([*(layer for stack in stacks for layer in stack), *slow]):
        if layer not in inside:
            layer.register_forward_pre_hook(stop_if_interrupted)
    for module in compiled:  # torch may compile a module's hooks with it, all but those that it is told to leave alone
        module.register_forward_pre_hook(compiler.disable(stop_if_interrupted))


def progress(total: int) -> Callable[..., None]:
    """`report(done, picture=None)` for the bar on the running node; it also looks for the interrupt."""
    from comfy.utils import ProgressBar

    bar = ProgressBar(total)

    def report(done: int, picture: Image.Image | None = None) -> None:
        stop_if_interrupted()
        bar.update_absolute(done, total, None if picture is None else ("JPEG", picture, None))

    return report


def send(event: str, data: dict[str, typing.Any]) -> None:
    """Tell every open page; nothing happens where no server runs."""
    server = _server()
    if server is not None:
        server.send_sync(event, data)


def routes() -> typing.Any:
    """The table to which the server adds the pack's addresses; None where no server runs."""
    return getattr(_server(), "routes", None)


async def queue_prompt(prompt: dict[str, typing.Any]) -> tuple[int, dict[str, typing.Any]]:
    """(status, answer) of queueing a prompt in API form through the server's own POST /prompt, with all its checks."""

    class Request:
        """All that the server reads of a request of this kind."""

        headers: typing.ClassVar[dict[str, str]] = {}

        async def json(self) -> dict[str, typing.Any]:
            return {"prompt": prompt}

    post = next(route.handler for route in routes() if (route.method, route.path) == ("POST", "/prompt"))
    answer = await post(Request())
    return answer.status, json.loads(answer.text)


def prompt_result(prompt_id: str) -> tuple[bool, dict[str, typing.Any] | None]:
    """(whether a queued prompt still waits or runs, its history entry once it has ended)."""
    queue = _server().prompt_queue
    running, waiting = queue.get_current_queue_volatile()
    ahead = any(item[1] == prompt_id for item in (*running, *waiting))
    return ahead, queue.get_history(prompt_id=prompt_id).get(prompt_id)


def blocked(sentence: str) -> typing.Any:
    """An output that is not there: a node that is linked to it ends with this sentence."""
    from comfy_execution.graph_utils import ExecutionBlocker

    return ExecutionBlocker(sentence)


def device_for(kind: str, on_cpu: bool) -> tuple[torch.device, torch.device]:
    """(where a model of this kind computes, where it waits): ComfyUI's choice for text encoders or for diffusion."""
    import comfy.model_management as management
    import torch

    if on_cpu:
        return torch.device("cpu"), torch.device("cpu")
    if kind == "decoder":
        return management.get_torch_device(), management.unet_offload_device()
    return management.text_encoder_device(), management.text_encoder_offload_device()


def wrap(model: nn.Module, devices: tuple[torch.device, torch.device]) -> typing.Any:
    """A model under ComfyUI's management, which moves it whole."""
    from comfy.model_patcher import ModelPatcher

    # Not the dynamic one of newer versions: it streams ComfyUI's own layers only. Plain layers it would copy to the
    # device anew before every use, and never take away from there for the sake of another model.
    return ModelPatcher(model, load_device=devices[0], offload_device=devices[1])


def place(patcher: typing.Any, working_bytes: int) -> nn.Module:
    """The model on its device, others moved away as far as its weights and `working_bytes` need room."""
    import comfy.model_management as management

    # Plain torch layers cannot be used from two devices: the whole model or nothing.
    management.load_models_gpu([patcher], memory_required=working_bytes, force_full_load=True)
    return patcher.model


def memory_bytes(device: torch.device) -> int:
    """All of a device's memory, whatever is free of it."""
    import comfy.model_management as management

    return int(management.get_total_memory(device))


def clear_device() -> torch.device:
    """ComfyUI's own device, with every other model moved away: for training and evaluation, which load their own."""
    import comfy.model_management as management

    management.unload_all_models()
    management.soft_empty_cache()
    return management.get_torch_device()


def result_device() -> torch.device:
    """Where ComfyUI wants IMAGE batches."""
    import comfy.model_management

    return comfy.model_management.intermediate_device()


def _server() -> typing.Any:
    """The running PromptServer, or None. The module is looked up only: to import it would start half a server."""
    return getattr(getattr(sys.modules.get("server"), "PromptServer", None), "instance", None)


def _worlds() -> dict[str, Path]:
    """World name -> what `open_world` takes, for all model folders; the first folder wins where names are equal."""
    found: dict[str, Path] = {}
    for root in reversed(model_folders()):
        found.update({name: root / name for name in published_worlds(root)})
        folders = sorted(root.iterdir()) if root.is_dir() else []
        found.update({folder.name: folder for folder in folders if _holds_world(folder)})
    return found


def _holds_world(folder: Path) -> bool:
    if folder.name.startswith(PAIR):  # half of a published pair, not a folder of pairs
        return False
    return (folder / MANIFEST).is_file() or bool(published_worlds(folder))


def _loras() -> dict[str, Path]:
    roots = [root / LORAS for root in reversed(model_folders())]  # the first folder wins where names are equal
    return {path.relative_to(root).as_posix(): path for root in roots for path in root.rglob("*.safetensors")}


def _absent(name: str) -> str:
    root = model_folders()[0]
    if name not in PUBLISHED:
        return f"world {name!r} is not in {root}; put its folder there and press R, or choose toybox"
    return (
        f"world {name!r} is not installed: put what you download from {_addresses(name)} "
        f"into {root}, or choose toybox, which needs no download"
    )


def _addresses(name: str) -> str:
    hub, film = "https://huggingface.co", name.capitalize()
    return (
        f"{hub}/{ANIMEGAMER} ({ENGINE}{film} and {DECODER}{film}), {hub}/{MISTRAL} (config, tokenizer, and the "
        f"weights if the engine's file lacks them) and "
        f"{hub}/{COGVIDEO} (its vae folder)"
    )
