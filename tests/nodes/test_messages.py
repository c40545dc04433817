"""What a node can say to its user names no flag of the command line, which ComfyUI's users do not type."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*|hf auth login")
ELSEWHERE = "on the command line"  # a text with these words says itself that nodes have no such input
ALLOWED = {  # (module, flag), each with the reason why it may stay
    # The whole command of a download, for those who prefer it to the node that does the same.
    ("nodes/worlds.py", "--base"),
    ("nodes/worlds.py", "--out"),
    ("nodes/worlds.py", "--towers"),
    ("animegamer_core/checkpoint/published.py", "--out"),
    ("animegamer_core/checkpoint/published.py", "--towers"),
    # A gated repository takes a token from outside ComfyUI only: HF_TOKEN or this program's.
    ("animegamer_core/checkpoint/hub.py", "hf auth login"),
    # Flags of other programs: ComfyUI's own, pip's, and accelerate's launcher, which never starts ComfyUI.
    ("nodes/routes.py", "--enable-cors-header"),
    ("animegamer_core/media/film_writer.py", "--upgrade"),
    ("animegamer_core/train/distributed.py", "--fsdp"),
    # A shipped file that is missing is built by this command, and by nothing in ComfyUI.
    ("animegamer_core/toybox/scoring_models.py", "--work"),
    ("animegamer_core/toybox/scoring_models.py", "--stages"),
    # The parser of a command of its own, in a module that nodes import for its values.
    ("animegamer_core/toybox/benchmark.py", "--workers"),
    # Train LoRA Stage refuses a run that is there in its widgets' words (nodes/run_checks.py) before this one can.
    ("animegamer_core/train/run.py", "--out"),
    ("animegamer_core/train/run.py", "--resume"),
    # It compiles nothing.
    ("animegamer_core/train/trainer.py", "--compile"),
    ("animegamer_core/train/trainer.py", "--per-card"),
    # Load AnimeGamer takes files and strengths as values, not as a text to parse, and plays on one device.
    ("animegamer_core/checkpoint/adapters.py", "--lora"),
    ("animegamer_core/runtime/presets.py", "--cfg-parallel"),
    # Evaluate Game always uses the Toybox's own scoring models, measures no speed, chooses the size of its plan itself,
    ("animegamer_core/evaluate/similarity/choose.py", "--towers"),
    ("animegamer_core/evaluate/toybox/rows.py", "--lora"),
    ("animegamer_core/evaluate/toybox/run.py", "--seed"),
    # plays no baseline, gives neither borders of motion nor a folder of pictures, and neither reads other runs
    ("animegamer_core/evaluate/world/job.py", "--baseline-take"),
    ("animegamer_core/evaluate/world/motion.py", "--motion-edges"),
    ("animegamer_core/evaluate/world/references.py", "--characters"),
    ("animegamer_core/evaluate/world/records.py", "--out"),
    ("animegamer_core/evaluate/world/report.py", "--limit"),
    # nor another text than one with `on the command line`, of which this is a part.
    ("animegamer_core/evaluate/world/motion.py", "--flow-python"),
}


def imported(path):
    """The pack's own modules that a module imports, also within functions, and the packages that they are in."""
    for item in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(item, ast.ImportFrom) and item.level:
            package = path.parents[item.level - 1]
            base = package.joinpath(*(item.module or "").split("."))
            for place in (base, *(base / alias.name for alias in item.names)):
                packages = [above / "__init__.py" for above in place.parents if above.is_relative_to(ROOT)]
                yield from filter(Path.is_file, (place.with_suffix(".py"), place / "__init__.py", *packages[:-1]))


def texts(path):
    """The string literals of a module but its docstrings, each f-string as one text with * for its values."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    passed = {id(item.value) for item in ast.walk(tree) if isinstance(item, ast.Expr)}
    for item in ast.walk(tree):
        if isinstance(item, ast.JoinedStr):
            passed |= {id(part) for part in item.values}
            yield "".join(part.value if isinstance(part, ast.Constant) else "*" for part in item.values)
        elif isinstance(item, ast.Constant) and isinstance(item.value, str) and id(item) not in passed:
            yield item.value


def test_no_message_of_a_node_names_a_flag_without_a_reason():
    reached, waiting = set(), sorted((ROOT / "nodes").glob("*.py"))
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            waiting += imported(path)
    assert ROOT / "animegamer_core" / "train" / "run.py" in reached, "imported in a function"
    assert not [path for path in reached if path.parent.name == "cli"]
    found = {
        (path.relative_to(ROOT).as_posix(), flag)
        for path in reached
        for text in texts(path)
        if ELSEWHERE not in text
        for flag in FLAG.findall(text)
    }
    assert sorted(found - ALLOWED) == [], "say it in words that a node's user knows"
    assert sorted(ALLOWED - found) == [], "these are gone: take them off the list"
