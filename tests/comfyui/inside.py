"""Checks that need ComfyUI's modules in the same process. Run by ComfyUI's own Python.

python inside.py COMFYUI PACK BASE prints a JSON object: the name of each check -> its traceback, empty if it passed.
"""

import asyncio
import gc
import importlib.util
import json
import logging
import shutil
import sys
import traceback
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
    nodes = asyncio.run(asyncio.run(sys.modules[name].comfy_entrypoint()).get_node_list())
    for node in nodes:
        node.GET_SCHEMA()
    return nodes


def check_that_models_live_as_long_as_a_value_that_uses_them():
    one, two = GameModel(worlds.find_world("toybox")), GameModel(worlds.find_world("toybox"))
    assert len(models._SHARED) == 0, "nothing is loaded before it is used"
    engine = weakref.ref(one.engine())
    assert two.engine() is engine(), "equal values share it"
    management.unload_all_models()
    assert two.engine().predict((), TEXT).motion in range(1, 6)
    assert GameModel(worlds.find_world("toybox").with_profile("reference")).engine() is not engine()
    del one, two
    gc.collect()
    assert engine() is None


def check_that_models_are_placed_whole_before_every_use():
    """By the patcher that can, and not moved while they are at work."""
    import comfy.model_patcher

    comfy.model_patcher.CoreModelPatcher = None  # what newer versions put here streams only ComfyUI's own layers
    model = GameModel(worlds.find_world("toybox"))
    assert model.patcher is None
    decoder = model.decoder()
    patcher, size = model.patcher, model.patcher.model_size()
    assert type(patcher).__name__ == "ModelPatcher" and patcher.loaded_size() == size
    patcher.partially_unload(patcher.offload_device, size // 2)  # what ComfyUI does to make room for another model
    assert patcher.loaded_size() < size
    assert model.decoder_at_work() is decoder and patcher.loaded_size() < size, "at work it stays as it is"
    assert model.decoder() is decoder and patcher.loaded_size() == size


def check_that_a_small_device_decodes_in_tiles():
    """And addresses say so."""
    world, memory = worlds.find_world("toybox"), comfyui.memory_bytes
    plain = GameModel(world)
    weights = sum(tensor.nbytes for tensor in plain.decoder().state_dict().values())
    needed = weights + plain.decoder().working_bytes
    tiled, suffixes = [], []
    for room in (needed + 10**6, needed - 10**6):
        comfyui.memory_bytes = lambda device, room=room: room / models.MEMORY_FRACTION
        try:
            model = GameModel(world, preset=models.OFFERED["exact"])
            suffixes.append(model.usual.precision_suffix)
            tiled.append(model.decoder().tiled)
        finally:
            comfyui.memory_bytes = memory
    assert tiled == [False, True]
    assert suffixes == ["+skip0+full", "+skip0+tiled+full"], "another shot beyond rounding has an address of its own"


def check_that_a_missing_package_is_named():
    find = importlib.util.find_spec
    build = next(node for node in classes if node.__name__ == "BuildGameDataset")
    names = ("film", "dataset", "url", "model_name", "model_folder", "characters")
    inputs = dict.fromkeys(names, "none") | {"size": "toybox", "held_out": 0.1, "captioner": "none"}
    for package, call, named in (
        ("cv2", lambda: build.execute(**inputs), "pip install opencv-python-headless`"),
        ("diffusers", lambda: GameModel(worlds.find_world("toybox")).usual, "needs the Python package diffusers"),
    ):
        importlib.util.find_spec = lambda name, *rest, gone=package: None if name == gone else find(name, *rest)
        try:
            assert named in _error(call)
        finally:
            importlib.util.find_spec = find


def check_that_an_interrupt_stops_within_one_pass():
    import torch

    model = GameModel(worlds.find_world("toybox"), preset=models.OFFERED["exact"])  # with the stock VAE
    state = model.engine().predict((), TEXT).representation
    latents = torch.zeros(1, *model.world.spec.decoder.latent_shape)
    for load, call in (
        (model.engine, lambda: model.engine().predict((), TEXT)),
        (model.decoder, lambda: model.decoder().shoot(state, 5.0, seed=0)),
        (model.decoder, lambda: model.decoder().decode_latents(latents)),
        (model.encoder, lambda: model.encoder().represent(TEXT, torch.zeros(3, 20, 30))),
    ):
        assert _layers_after_interrupt(load(), call) == 0, "layers that began after the user asked to stop"


def _layers_after_interrupt(model, call):
    from torch import nn

    begun = []

    def count(*_):
        begun.append(1)
        if len(begun) == 3:
            management.interrupt_current_processing(True)

    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
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


def check_that_lora_files_change_only_their_model():
    """By their strength, and with it the fingerprint."""
    import torch
    from animegamer_pack.animegamer_core.train.stages import StageConfig
    from animegamer_pack.animegamer_core.weights.adapter_files import save_adapter
    from animegamer_pack.animegamer_core.weights.adapters import with_adapters

    path = BASE / "models" / "animegamer" / "loras" / "mine" / "brighter.sft"
    path.parent.mkdir(parents=True, exist_ok=True)
    world = worlds.find_world("toybox")
    plain = GameModel(world)
    weight = plain.engine().project_in[0].bias.detach().clone()
    config = StageConfig(trainable=(r"engine\.project_in\..+",))
    save_adapter(path, "predict", config, {"engine.project_in.0.bias": weight + 1}, {})
    assert worlds.lora_names() == ["none", "mine/brighter.sft"]
    found = worlds.find_lora("mine/brighter.sft")
    whole, half = (GameModel(with_adapters(world, ((str(found), strength),))) for strength in (1.0, 0.5))
    prints = {value.world.fingerprint for value in (plain, whole, half)}
    moved = [float((value.engine().project_in[0].bias - weight).detach().mean()) for value in (whole, half)]
    assert [round(value, 4) for value in moved] == [1.0, 0.5]
    assert whole.engine() is half.engine() is plain.engine(), "another strength loads no world again"
    assert torch.equal(plain.engine().project_in[0].bias, weight)
    assert torch.equal(whole.decoder().unconditional_ND, plain.decoder().unconditional_ND)
    save_adapter(path, "predict", config, {"engine.project_in.0.bias": weight + 2}, {})
    prints.add(with_adapters(world, ((str(found), 1.0),)).fingerprint)
    assert len(prints) == 4, "plain, whole, half, and the file written anew"


def check_that_lora_files_of_comfyuis_own_folder_change_the_decoder():
    """The list has the files for CogVideoX, and a name is never a path."""
    import torch
    from animegamer_pack.animegamer_core.weights.adapters import with_adapters
    from safetensors.torch import save_file

    folder = BASE / "models" / "loras"
    (folder / "anime").mkdir(parents=True, exist_ok=True)
    world = worlds.find_world("toybox")
    layer = GameModel(world).decoder().transformer.transformer_blocks[0].attn1.to_q
    (rows, columns), every = layer.weight.shape, torch.eye(layer.in_features).to(layer.weight)
    before = layer(every).detach()
    for name, outputs, inputs in (("anime/line.sft", rows, columns), ("of 5B.safetensors", 3072, 3072)):
        halves = {"A": torch.ones(1, inputs), "B": torch.ones(outputs, 1)}
        target = "transformer.transformer_blocks.0.attn1.to_q"
        save_file({f"{target}.lora_{half}.weight": value for half, value in halves.items()}, folder / name)
    name = "loras/anime/line.sft"
    listed = [item for item in worlds.lora_names() if item.startswith("loras/")]
    assert listed == [name, "loras/of 5B.safetensors"] and worlds.lora_version(name)
    model = GameModel(with_adapters(world, ((str(worlds.find_lora(name)), 0.5),)))
    changed = model.decoder().transformer.transformer_blocks[0].attn1.to_q(every)
    assert torch.allclose(changed, before + 0.5, atol=5e-3), "beside weights in 16 bits, into others"
    file = worlds.find_lora("loras/of 5B.safetensors")
    assert "3072" in _error(lambda: with_adapters(world, ((str(file), 1.0),)))
    outside = _error(lambda: worlds.find_lora("loras/../loras/of 5B.safetensors"))
    assert "nor in ComfyUI's folder loras" in outside


def check_that_worlds_of_all_model_folders_are_listed():
    """And errors say what is missing."""
    import folder_paths

    own, extra = BASE / "models" / "animegamer", BASE / "elsewhere"
    toybox = PACK / "animegamer_core" / "toybox" / "weights"
    shutil.copytree(toybox, own / "mine")
    shutil.copytree(toybox, extra / "theirs", symlinks=True)
    next((extra / "theirs" / "engine").glob("tokenizer*")).unlink()
    (own / "no world").mkdir()
    (own / "films" / "MLLM-Qiqi").mkdir(parents=True)
    (own / "MLLM-Ponyo").mkdir()
    folder_paths.add_model_folder_path("animegamer", str(extra))
    assert worlds.world_names() == ["toybox", "qiqi", "sosuke", "mine", "theirs"]
    assert worlds.find_world("mine").spec.name == "toybox"
    for name, *words in (
        ("qiqi", "Mistral-7B-Instruct-v0.1", "https://huggingface.co/TencentARC"),
        ("theirs", "engine is not complete", "theirs/engine"),
        *((name, f"world {name!r} is not in ") for name in ("no world", "../animegamer/mine", "mine/", "")),
    ):
        error = _error(lambda name=name: worlds.find_world(name))
        assert all(word in error for word in words), error


def _error(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def check_that_each_preset_has_its_own_decoder():
    """On a CPU: quicker ways that round otherwise, one decoder for each preset."""
    world, messages = worlds.find_world("toybox"), []
    exact = models.OFFERED["exact"]
    plain, same = GameModel(world), GameModel(world)
    tuned, untuned = (GameModel(world, preset=row) for row in (exact, replace(exact, optimizations=())))
    log, listener = logging.getLogger(), logging.Handler()
    listener.emit = lambda record: messages.append(record.getMessage())
    log.addHandler(listener)
    log.setLevel(logging.INFO)
    decoders = [model.decoder() for model in (plain, same, tuned, untuned, tuned)]
    log.setLevel(logging.WARNING)
    log.removeHandler(listener)
    assert decoders[0] is decoders[1] is not decoders[2] is decoders[4] and plain.engine() is tuned.engine()
    messages = [line for line in messages if "preset" in line]
    assert messages[-1] == "AnimeGamer: preset exact: skipped flash3, gelu, blocks, vae: no benefit on cpu"
    attention = decoders[2].transformer.transformer_blocks[0].attn1
    assert hasattr(attention, "to_qkv") and not hasattr(attention, "to_q")
    state = plain.engine().predict((), TEXT).representation
    shots = [decoder.shoot(state, 5.0, seed=0, steps=2) for decoder in decoders[2:4]]
    assert 0 < float((shots[0] - shots[1]).abs().mean()) < 2e-3, "another way to compute the same shot"
    steps = {
        name: [GameModel(world, preset=row).settings(n, "world").steps for n in (0, 7)]
        for name, row in models.OFFERED.items()
    }
    assert steps == dict.fromkeys(("world", "exact", "balanced", "live", "turbo"), [(800, 400), 7])


classes = start()

import comfy.model_management as management  # noqa: E402
from animegamer_pack.nodes import comfyui, models, worlds  # noqa: E402

GameModel = models.GameModel
found = {}
for name, check in list(globals().items()):
    if name.startswith("check_that_"):
        found[name.removeprefix("check_that_")] = ""
        try:
            check()
        except Exception:  # noqa: BLE001  any failure of a check is its result
            found[name.removeprefix("check_that_")] = traceback.format_exc()
print(json.dumps(found))  # noqa: T201
