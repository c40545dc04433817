"""Files that were damaged or crafted: every reader reads them or says in one sentence what is wrong, soon, and writes
nothing outside their folder. Sixty cases in every run, 600 with `-m soak`; `HOSTILE_SEEDS=5000-9000` runs others.
"""

import contextlib
import functools
import json
import math
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest
import torch
from hostile import damage, wrong_texts, wrong_types
from hypothesis import given, settings, strategies
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_world import save_tiny_world

from animegamer_core.checkpoint import open_world
from animegamer_core.checkpoint.adapter_files import adapter_facts
from animegamer_core.checkpoint.apply_adapter import apply_adapter
from animegamer_core.data.benchmark import read_benchmark
from animegamer_core.data.cache import FeatureStore, write_feature
from animegamer_core.data.check import check
from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.data.films.film_index import check_same_settings, read_film_index, read_scenes
from animegamer_core.data.stats import DatasetFacts
from animegamer_core.evaluate.world.records import GameRecord, TurnRecord, begin_run, read_run
from animegamer_core.model.decoder import ShotDecoder
from animegamer_core.model.prompt import GameTokenizer
from animegamer_core.spec import PROFILES, SPECS
from animegamer_core.state import StateChange, scope_name
from animegamer_core.story.story import Story
from animegamer_core.train.checkpoints import RunState, list_checkpoints, load_checkpoint, save_checkpoint
from animegamer_core.train.checkpoints import read_state as read_run_state
from animegamer_core.train.log import RunLog, read_log
from animegamer_core.train.stages import stage_config
from animegamer_core.train.training_data import TrainingData

OLD = Path(__file__).with_name("frozen")
SECONDS, MEMORY, LONGEST = 15, 400 << 20, 4000  # of one case; characters of what it says


def load_world(folder, name="world"):
    world = open_world(folder / name)
    world.tokenizer().encode_text("Miko runs")
    for model in (world.load_engine(), world.load_decoder()):
        assert all(tensor.isfinite().all() for tensor in model.parameters()), "weights that are no numbers"


def read_words(folder):
    tokenizer = GameTokenizer.from_file(folder / "tokenizer.json")
    for text in ("Miko runs to the beach, café", "a" * 500, "\u2581\U0001f600 <s> x"):
        assert tokenizer.decode_with_tags(tokenizer.encode_text(text)) is not None
        tokenizer.unknown_words(text)


def read_story(folder):
    story = Story.read(folder, "game")
    for branch in story.branches():
        story.use(branch)
        session = story.load_session(story.session(len(story.entries), 2))
        for turn in session.turns:
            scope_name(turn.state.motion)
            assert 0 <= turn.character.stamina <= 100 and all(abs(level) < 100 for level in turn.state.levels)
    [story.shots.record(entry.shot) for entry in story.entries if entry.shot]


def read_all_of_a_dataset(folder):
    problems = check(folder / "dataset", deep=True)
    for name in read_film_index(folder / "dataset"):
        read_scenes(folder / "dataset", name)
    if not any(problem.serious for problem in problems):
        DatasetFacts.of(opened := DatasetFolder.open(folder / "dataset"))
        assert len(opened.motion_table.values) == 5 if opened.has_motion_table else True
        assert opened.digest(captions=True)
    for problem in problems:
        assert str(problem).isprintable() and len(str(problem)) < LONGEST


def linear_run(seed=0):
    """A run of one small layer, one step old."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    layer(torch.ones(1, 4)).sum().backward()
    optimizer.step()
    return RunState("joint", stage_config("joint"), dict(layer.named_parameters()), optimizer, {}, step=1)


def resume_run(folder):
    read_log(folder / "run" / "log.jsonl")
    for path in list_checkpoints(folder / "run" / "checkpoints"):
        load_checkpoint(path, linear_run(seed=1))


def read_features(folder):
    store = FeatureStore.open(folder / "features", ("text",))
    assert store.gather(("text",), torch.tensor([0, len(store) - 1]), "cpu")["text"].shape == (2, 4)


def read_played_run(folder):
    for game in read_run(folder / "played").games:
        assert 1 <= len(game.turns) and game.character
        assert json.dumps(game.turns[0].to_json(), allow_nan=False)


READERS = {
    "run": resume_run,
    "features": read_features,
    "played": read_played_run,
    "world": load_world,
    "tokenizer.json": read_words,
    "game": read_story,
    "dataset": read_all_of_a_dataset,
    "adapter.safetensors": lambda folder: adapter_facts(folder / "adapter.safetensors"),
}


def played_turn(number, line):
    scores = {"clip_i": 0.5, "dreamsim": None}
    names = f"turn-{number:02d}.mp4", f"turn-{number:02d}.webp"
    return TurnRecord(number, line, 3, StateChange(1, 0, -1), 2.5, 3, scores, 1.0, number == 1, *names)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """One whole example of everything that is read."""
    folder = tmp_path_factory.mktemp("whole")
    tokenizer = save_tiny_world(folder / "world").tokenizer()
    (folder / "tokenizer.json").write_text(tokenizer.to_str())
    shutil.copytree(OLD / "stories" / "game", folder / "game")
    shutil.copytree(OLD / "dataset", folder / "dataset")
    shutil.copy(OLD / "distill.safetensors", folder / "adapter.safetensors")
    save_checkpoint(folder / "run" / "checkpoints", linear_run())
    for step in (0, 1):
        RunLog(folder / "run" / "log.jsonl", step).write(step, {"loss": 0.5})
    write_feature(folder / "features", "text", 6, lambda rows: torch.ones(len(rows), 4), digest="d", shard_bytes=64)
    benchmark = read_benchmark(OLD / "benchmark.txt")
    asked = {"benchmark": {"games": [game.name for game in benchmark]}, "player": {"name": "random"}, "seed": 0}
    begin_run(folder / "played", asked, {"device": "cpu"})
    for game in benchmark:
        turns = tuple(played_turn(number, turn.line) for number, turn in enumerate(game.turns, start=1))
        GameRecord(game.name, "random", 0, 8.0, {"device": "cpu"}, turns).save(folder / "played")
    return folder


@functools.cache
def one_decoder():
    return ShotDecoder(SPECS["tiny"], PROFILES["paper"])


def adapter_with(field):
    """A reader of an adapter file whose note `field` is a text. Its stage trained one tensor of the VAE."""

    def read(text, path):
        with safe_open(path, "pt") as file:
            notes = {**file.metadata(), field: text.decode("utf-8", "replace")}
        name = "vae.encoder.conv_in.conv.bias"
        save_file({f"decoder.{name}": one_decoder().state_dict()[name]}, path, notes)
        adapter_facts(path)
        apply_adapter(path, {"decoder": one_decoder()})

    return read


def written(read):
    """A reader of a file with this content."""

    def read_content(data, path):
        path.write_bytes(data)
        read(path)

    return read_content


def resume_log(path):
    assert all(math.isfinite(float(number)) for line in read_log(path) for number in line.values())
    RunLog(path, 5)


def film_notes(path):
    films = read_film_index(path.parents[1])
    with contextlib.suppress(ValueError):  # it names each setting that differs; here all do
        check_same_settings(path.parents[1], films, {}, {"scenes": {}})
    for film in films.values():
        film.provenance({"scenes": {}})
        film.most_text(0.5)


def cached_latents(path):
    data = TrainingData(SimpleNamespace(turns=()), FeatureStore(), cache=path.parent)
    assert isinstance(data.stored_digest(path.stem), str) and not data.is_cached(path.stem, 6, "another")
    FeatureStore.open(path.parent, (path.stem,))


def film_scenes(path):
    read_scenes(path.parents[1], path.stem)


def read_checkpoint(path):
    read_run_state(path.parent)


class Note(NamedTuple):
    """JSON that this program keeps or takes. path: its file in `whole`. read(content, path). free: what may also be
    there, besides values of the example's types."""

    path: str
    read: Callable[[bytes, Path], None]
    free: str = "nothing"
    lines: bool = False


TORN = "empty|cut|(lists|objects) 100,000 deep|not UTF-8|NaN|1e999|5,000 digits"
BROKEN = r'survey\.broken: "x"'
NOTES = {
    "adapter: config": Note("adapter.safetensors", adapter_with("config"), "(?!lora_rank|lora_alpha).+: .*"),
    "adapter: about": Note("adapter.safetensors", adapter_with("about")),
    "checkpoint": Note("run/checkpoints/step-0000001/state.json", written(read_checkpoint), r"config\..*"),
    "log": Note("run/log.jsonl", written(resume_log), "loss: null|NaN|1e999", lines=True),
    "cache": Note("features/text.json", written(cached_latents)),
    "film": Note("dataset/films/film.json", written(film_notes), rf"(settings|survey\.facts)\..*|{BROKEN}|not UTF-8"),
    "scenes": Note("dataset/films/film.jsonl", written(film_scenes), TORN, lines=True),
}


def damaged_notes(whole, name):
    """(what, what its error names, content) for each damage of a note; in a table, always of its second line."""
    note = NOTES[name]
    path, field = whole / note.path, name.partition(": ")[2]
    if path.suffix == ".safetensors":
        with safe_open(path, "pt") as file:
            lines = [file.metadata()[field]]
    else:
        lines = path.read_text().splitlines()[:2] if note.lines else [path.read_text()]
    *before, text = (json.dumps(json.loads(line)).encode() for line in lines)
    after = before  # the first line once more
    for what, value in wrong_types(json.loads(text)):
        top = what.partition(":")[0].split(".")[0]
        yield what, [":2:"] if note.lines else [top], b"\n".join([*before, json.dumps(value).encode(), *after, b""])
    for what, data in wrong_texts(text).items():
        yield what, [":2:"] if note.lines else [""], b"\n".join([*before, data, *after, b""])


@pytest.mark.parametrize("name", NOTES)
def test_what_is_wrong_in_a_note_is_named_with_its_file_and_field(whole, tmp_path, name):
    note, wrong = NOTES[name], []
    path = tmp_path / note.path
    for what, fields, data in damaged_notes(whole, name):
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(whole / note.path, path)
        try:
            note.read(data, path)
        except ValueError as error:
            text = str(error)
            if str(path) not in text or not any(field in text for field in fields) or len(text) > LONGEST:
                wrong.append(f"{what}: {text[:300]}")
        except Exception as error:  # noqa: BLE001  whatever else is a defect
            wrong.append(f"{what}: {type(error).__name__}: {str(error)[:300]}")
        else:
            if not re.fullmatch(f"{note.free}|.*: huge", what):
                wrong.append(f"{what}: read")
    assert not wrong, "\n".join(wrong[:20])


def test_a_folder_in_the_place_of_a_films_note_is_named(tmp_path):
    (tmp_path / "films" / "film.json").mkdir(parents=True)
    with pytest.raises(ValueError, match=r"film\.json: cannot be read \(it is not a file\); delete it"):
        read_film_index(tmp_path)


def seeds():
    first, _, last = os.environ.get("HOSTILE_SEEDS", "0-60").partition("-")
    return range(int(first), int(last))


def too_slow(*_):
    raise AssertionError(f"not read in {SECONDS} s")


def run_case(whole, rng, tmp_path, seed="none"):
    """Damage one file of one example, and read it. A case that passes leaves no trace."""
    name = rng.choice(list(READERS))
    source, folder = whole / name, tmp_path / "given"
    folder.mkdir()
    copy = folder / name
    if source.is_dir():
        shutil.copytree(source, copy)
        files = sorted(path for path in copy.rglob("*") if path.is_file())
        suffix = rng.choice(sorted({path.suffix for path in files}))
        path = rng.choice([path for path in files if path.suffix == suffix])
    else:
        path = Path(shutil.copy(source, copy))
    what = damage(path, rng)
    process = psutil.Process()
    begun, before = time.monotonic(), process.memory_info().rss
    signal.signal(signal.SIGALRM, too_slow)
    signal.alarm(SECONDS)
    try:
        READERS[name](folder)
    except (ValueError, OSError) as error:
        text = str(error)
        assert 0 < len(text) < LONGEST, f"seed {seed}: {what}: a message of {len(text)} characters"
        assert all(line.isprintable() for line in text.split("\n")), f"seed {seed}: {what}: {text[:300]!r}"
    except Exception as error:  # noqa: BLE001  whatever else is a defect
        pytest.fail(f"seed {seed}: {what}: {type(error).__name__}: {str(error)[:300]}")
    finally:
        signal.alarm(0)
    grown = process.memory_info().rss - before
    assert grown < MEMORY, f"seed {seed}: {what}: {grown >> 20} MB, {time.monotonic() - begun:.1f} s"
    assert [path.name for path in tmp_path.iterdir()] == ["given"], f"seed {seed}: {what}: wrote outside its folder"
    shutil.rmtree(folder)


@pytest.mark.parametrize("name", READERS)
def test_what_is_whole_is_read(whole, name):
    READERS[name](whole)


def test_the_usual_sample_has_sixty_cases_and_every_reader_has_some(monkeypatch):
    monkeypatch.delenv("HOSTILE_SEEDS", raising=False)
    assert len(seeds()) == 60
    assert {random.Random(seed).choice(list(READERS)) for seed in seeds()} == READERS.keys()


def test_a_sample_of_damage_is_read_or_refused_in_a_sentence(whole, tmp_path):
    for seed in seeds():
        run_case(whole, random.Random(seed), tmp_path, seed)


@settings(max_examples=settings().max_examples // 2)  # 50, or 1,000 in profile hunt
@given(rng=strategies.randoms())
def test_any_damage_is_read_or_refused_in_a_sentence(whole, tmp_path_factory, rng):
    """The same, for hypothesis to search and to make small."""
    folder = tmp_path_factory.mktemp("damaged")
    try:
        run_case(whole, rng, folder)
    finally:
        shutil.rmtree(folder)


@pytest.mark.soak
def test_damage_is_read_or_refused_in_a_sentence(whole, tmp_path):
    for seed in range(1000, 1600):
        run_case(whole, random.Random(seed), tmp_path, seed)
