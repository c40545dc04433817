"""Checks that need ComfyUI's modules in the same process. Run by ComfyUI's own Python; prints what it found as JSON.

python inside.py COMFYUI PACK BASE
"""

import asyncio
import gc
import importlib.util
import json
import logging
import shutil
import sys
import weakref
from dataclasses import replace
from pathlib import Path

COMFY, PACK, BASE = (Path(text) for text in sys.argv[1:])
TEXT = "Character: Miko; Motion: swiftly run; Background: day street."
sys.path.insert(0, str(COMFY))


def start():
    """ComfyUI's modules for the CPU, and the pack as ComfyUI would load it, under a name that pickles nothing."""
    from comfy.cli_args import args

    args.cpu, args.base_directory = True, str(BASE)
    import comfy.model_management
    import comfy_api.v0_0_2
    import folder_paths

    assert comfy.model_management and comfy_api and folder_paths
    name = "animegamer_pack"
    spec = importlib.util.spec_from_file_location(name, PACK / "__init__.py", submodule_search_locations=[str(PACK)])
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    extension = asyncio.run(sys.modules[name].comfy_entrypoint())
    nodes = asyncio.run(extension.get_node_list())
    for node in nodes:
        node.GET_SCHEMA()
    return nodes


def check_lives():
    """Loaded when used, shared between equal values, and gone with the last of them."""
    one, two = GameModel(worlds.find_world("toybox")), GameModel(worlds.find_world("toybox"))
    before = len(models._SHARED)
    engine = weakref.ref(one.engine())
    shared = two.engine() is engine()
    management.unload_all_models()
    again = two.engine().predict((), TEXT).motion in range(1, 6)
    other = GameModel(worlds.find_world("toybox").with_profile("reference")).engine() is not engine()
    del one, two
    gc.collect()
    return {"before": before, "shared": shared, "again": again, "other": other, "left": engine() is not None}


def check_placing():
    """Plain layers are placed whole, by the patcher that can, and not moved while they are at work."""
    import comfy.model_patcher

    comfy.model_patcher.CoreModelPatcher = None  # what newer versions put here streams only ComfyUI's own layers
    model = GameModel(worlds.find_world("toybox"))
    before = model.patcher
    decoder = model.decoder()
    patcher, size = model.patcher, model.patcher.model_size()
    loaded = [patcher.loaded_size()]
    patcher.partially_unload(patcher.offload_device, size // 2)  # what ComfyUI does to make room for another model
    loaded += [patcher.loaded_size()]
    same = model.decoder_at_work() is decoder
    loaded += [patcher.loaded_size()]
    same = same and model.decoder() is decoder
    loaded += [patcher.loaded_size()]
    return {
        "before": before,
        "kind": type(patcher).__name__,
        "same": same,
        "loaded": [part == size for part in loaded],
    }


def check_tiles():
    """On a small device shots are decoded in tiles, and their addresses say so: about the same picture."""
    import torch

    world, memory = worlds.find_world("toybox"), comfyui.memory_bytes
    plain = GameModel(world)
    state = plain.engine().predict((), TEXT).representation
    latents = plain.decoder().sample(state[None], torch.tensor([5.0]), [0], steps=2)
    needed = models._size_of(plain.decoder()) + plain.decoder().working_bytes
    decoded, tiled, drawn = [], [], []
    for room in (needed + 10**6, needed - 10**6):
        comfyui.memory_bytes = lambda device, room=room: room / models.MEMORY_FRACTION
        try:
            model = GameModel(world, preset=models.OFFERED["exact"])
            drawn.append(model.settings(0, "world").precision_suffix)
            decoder = model.decoder()
        finally:
            comfyui.memory_bytes = memory
        tiled.append(decoder.tiled)
        decoded.append(decoder.decode_latents(latents))
    off = float((decoded[0] - decoded[1]).square().mean())
    return {"tiled": tiled, "drawn": drawn, "same": off == 0, "off": off}


def check_packages():
    """What a film's node, and a loaded story's turn that is drawn, say where a package is missing."""
    find, said = importlib.util.find_spec, {}
    build = next(node for node in classes if node.__name__ == "BuildGameDataset")
    names = ("film", "dataset", "url", "model_name", "model_folder", "characters")
    inputs = dict.fromkeys(names, "none") | {"size": "toybox", "held_out": 0.1, "captioner": "none"}
    calls = {
        "cv2": lambda: build.execute(**inputs),
        "diffusers": lambda: GameModel(worlds.find_world("toybox")).settings(0, "world"),
    }
    for package, call in calls.items():
        importlib.util.find_spec = lambda name, *rest, gone=package: None if name == gone else find(name, *rest)
        try:
            said[package] = _error(call)
        finally:
            importlib.util.find_spec = find
    return said


def check_interrupt():
    """How many layers still begin after the user has asked to stop, for each kind of work."""
    model = GameModel(worlds.find_world("toybox"))
    import torch

    state = model.engine().predict((), TEXT).representation
    latents = torch.zeros(1, *model.world.spec.decoder.latent_shape)
    work = {
        "text": lambda: model.engine().predict((), TEXT),
        "sampling": lambda: model.decoder().shoot(state, 5.0, seed=0),
        "decoding": lambda: model.decoder().decode_latents(latents),
        "encoding": lambda: model.encoder().represent(TEXT, torch.zeros(3, 20, 30)),
    }
    return {name: _layers_after_interrupt(model, name, call) for name, call in work.items()}


def _layers_after_interrupt(model, name, call):
    from torch import nn

    kind = {"text": "engine", "encoding": "encoder"}.get(name, "decoder")
    begun = []

    def count(*_):
        begun.append(1)
        if len(begun) == 3:
            management.interrupt_current_processing(True)

    lists = [module for module in getattr(model, kind)().modules() if isinstance(module, nn.ModuleList)]
    hooks = [layer.register_forward_hook(count) for layers in lists for layer in layers]
    try:
        call()
    except management.InterruptProcessingException:
        return len(begun) - 3
    finally:
        management.interrupt_current_processing(False)
        for hook in hooks:
            hook.remove()
    return None


def check_stage_files():
    """A stage file changes the model that it is for, by its strength, and with it the fingerprint."""
    import torch
    from animegamer_pack.animegamer_core.train.stages import StageConfig
    from animegamer_pack.animegamer_core.weights.adapter_files import save_adapter
    from animegamer_pack.animegamer_core.weights.adapters import with_adapters

    path = BASE / "models" / "animegamer" / "loras" / "mine" / "brighter.safetensors"
    path.parent.mkdir(parents=True, exist_ok=True)
    world = worlds.find_world("toybox")
    plain = GameModel(world)
    weight = plain.engine().project_in[0].bias.detach().clone()
    config = StageConfig(trainable=(r"engine\.project_in\..+",))
    save_adapter(path, "predict", config, {"engine.project_in.0.bias": weight + 1}, {})
    found = worlds.find_lora("mine/brighter.safetensors")
    whole, half = (GameModel(with_adapters(world, ((str(found), strength),))) for strength in (1.0, 0.5))
    prints = {plain.world.fingerprint, whole.world.fingerprint, half.world.fingerprint}
    moved = [float((value.engine().project_in[0].bias - weight).detach().mean()) for value in (whole, half)]
    shared = whole.engine() is half.engine() is plain.engine()
    restored = torch.equal(plain.engine().project_in[0].bias, weight)
    unconditional = plain.decoder().unconditional_ND
    same = torch.equal(whole.decoder().unconditional_ND, unconditional)
    save_adapter(path, "predict", config, {"engine.project_in.0.bias": weight + 2}, {})
    return {
        "listed": worlds.lora_names(),
        "fingerprints": len(prints | {GameModel(with_adapters(world, ((str(found), 1.0),))).world.fingerprint}),
        "moved": [round(value, 4) for value in moved],
        "decoder is the same": same,
        "loaded once": shared and restored,
    }


def check_usual_loras():
    """Of ComfyUI's own folder `loras`, the list has the files for CogVideoX, and a name is never a path."""
    import torch
    from animegamer_pack.animegamer_core.weights.adapters import with_adapters
    from safetensors.torch import save_file

    folder = BASE / "models" / "loras"
    (folder / "anime").mkdir(parents=True, exist_ok=True)
    world = worlds.find_world("toybox")
    plain = GameModel(world)
    layer = plain.decoder().transformer.transformer_blocks[0].attn1.to_q
    (rows, columns), weight = layer.weight.shape, layer.weight.detach().clone()
    files = {
        "anime/line.safetensors": ("transformer_blocks.0.attn1.to_q", rows, columns),
        "of 5B.safetensors": ("transformer_blocks.0.attn1.to_q", 3072, 3072),
    }
    for name, (target, outputs, inputs) in files.items():
        halves = {"A": torch.ones(1, inputs), "B": torch.ones(outputs, 1)}
        save_file({f"transformer.{target}.lora_{half}.weight": value for half, value in halves.items()}, folder / name)
    name = "loras/anime/line.safetensors"
    model = GameModel(with_adapters(world, ((str(worlds.find_lora(name)), 0.5),)))
    changed = model.decoder().transformer.transformer_blocks[0].attn1.to_q.weight
    moved = torch.allclose(changed, weight + 0.5)
    errors = {}
    file = worlds.find_lora("loras/of 5B.safetensors")
    errors["of 5B"] = _error(lambda: with_adapters(world, ((str(file), 1.0),)))
    errors["outside"] = _error(lambda: worlds.find_lora("loras/../loras/of 5B.safetensors"))
    return {
        "listed": [item for item in worlds.lora_names() if item.startswith("loras/")],
        "moved": moved,
        "version": bool(worlds.lora_version(name)),
        "errors": errors,
    }


def check_worlds():
    """Worlds of all model folders are listed, and a name is never a path."""
    import folder_paths

    own, extra = BASE / "models" / "animegamer", BASE / "elsewhere"
    toybox = PACK / "animegamer_core" / "toybox" / "weights"
    shutil.copytree(toybox, own / "mine")
    shutil.copytree(toybox, extra / "theirs", symlinks=True)
    (extra / "theirs" / "engine" / "tokenizer.json").unlink()
    (own / "no world").mkdir()
    (own / "films" / "MLLM-Qiqi").mkdir(parents=True)
    (own / "MLLM-Ponyo").mkdir()
    folder_paths.add_model_folder_path("animegamer", str(extra))
    errors = {}
    for name in ("qiqi", "theirs", "no world", "../animegamer/mine", "mine/", ""):
        errors[name] = _error(lambda name=name: worlds.find_world(name))
    return {"names": worlds.world_names(), "mine": worlds.find_world("mine").spec.name, "errors": errors}


def _error(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def check_presets():
    """What a preset does to a decoder on a CPU: quicker ways that round otherwise, one decoder for each preset."""

    world, messages = worlds.find_world("toybox"), []
    exact = models.OFFERED["exact"]
    plain, same = GameModel(world), GameModel(world)
    tuned, untuned = (GameModel(world, preset=row) for row in (exact, replace(exact, optimizations=())))
    log = logging.getLogger()
    listener = type(
        "Listener", (logging.Handler,), {"emit": lambda self, record: messages.append(record.getMessage())}
    )()
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    decoders = [model.decoder() for model in (plain, same, tuned, untuned, tuned)]
    log.setLevel(logging.WARNING)
    log.removeHandler(listener)
    state = plain.engine().predict((), TEXT).representation
    shots = [decoder.shoot(state, 5.0, seed=0, steps=2) for decoder in decoders[2:4]]
    attention = decoders[2].transformer.transformer_blocks[0].attn1
    return {
        "shared": [decoders[0] is decoders[1], decoders[2] is decoders[4], decoders[0] is decoders[2]],
        "one engine": plain.engine() is tuned.engine(),
        "messages": [line for line in messages if "preset" in line],
        "fused": hasattr(attention, "to_qkv") and not hasattr(attention, "to_q"),
        "off": float((shots[0] - shots[1]).abs().max()),
        "steps": {
            name: [GameModel(world, preset=row).settings(n, "world").steps for n in (0, 7)]
            for name, row in models.OFFERED.items()
        },
    }


classes = start()
found = {}

import comfy.model_management as management  # noqa: E402
from animegamer_pack.nodes import comfyui, models, worlds  # noqa: E402

GameModel = models.GameModel
for check in (
    check_lives,
    check_placing,
    check_tiles,
    check_packages,
    check_interrupt,
    check_stage_files,
    check_usual_loras,
    check_worlds,
    check_presets,
):
    found[check.__name__.removeprefix("check_")] = check()
print(json.dumps(found))  # noqa: T201
