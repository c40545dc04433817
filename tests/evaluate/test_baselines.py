"""The paper's baselines, each through its real pipelines at a tiny random size, from folders that the tests save."""

import json
import math
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from baseline_folders import save_flux, save_image_to_video, save_lora, save_sdxl, save_text_to_video
from diffusers import CogVideoXPipeline, FluxPipeline
from safetensors.torch import load_file, save_file

from animegamer_core.data.benchmark import BenchmarkGame, BenchmarkTurn
from animegamer_core.evaluate.baselines import BaselineSettings, open_baseline
from animegamer_core.evaluate.baselines.folders import SDXL, open_folder
from animegamer_core.evaluate.baselines.players import ImageModel, frame_indices
from animegamer_core.evaluate.baselines.sharing import SharedAttention, shared_attention

QUICK = {"steps": 1, "picture_steps": 2, "picture_side": 32}


def game(name, *motions):
    turns = (
        BenchmarkTurn(("qiqi",), motion, "noon forest", 3, "quickly", {"social": 0, "entertainment": 0, "stamina": -1})
        for motion in motions
    )
    return BenchmarkGame(name, tuple(turns))


ONE = game("one", "runs")
TWO = game("two", "flies", "sits")


@pytest.fixture(autouse=True)
def shared_from_the_first_step(monkeypatch):
    monkeypatch.setattr("animegamer_core.evaluate.baselines.sharing.AFTER", 0)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """One folder of each kind, and LoRAs of those that take one."""
    at = tmp_path_factory.mktemp("models")
    found = SimpleNamespace(
        text=save_text_to_video(at / "text", frames=9),
        picture=save_image_to_video(at / "picture", frames=9),
        flux=save_flux(at / "flux"),
        sdxl=save_sdxl(at / "sdxl"),
    )
    found.text_lora = save_lora(at / "text-lora", CogVideoXPipeline, found.text)
    found.flux_lora = save_lora(at / "flux-lora", FluxPipeline, found.flux)
    return found


def settings(folders, name, **options):
    """Quick settings of a baseline, whose folders may be named anew."""
    video = folders.text if name == "gc" else folders.picture
    pictures = {"gc": None, "gfc": folders.flux, "gsc": folders.sdxl}[name]
    return BaselineSettings(**{"video": video, "pictures": pictures, **QUICK, **options})


def shots(player, played=ONE, seed=0):
    return np.stack([shot.frames for shot in player.play(played, seed)])


@pytest.mark.parametrize("name", ("gc", "gfc", "gsc"))
def test_a_game_and_a_seed_decide_the_shots_whatever_was_played_before(folders, name):
    first = open_baseline(name, settings(folders, name))
    played = list(first.play(TWO, 5))
    frames = np.stack([shot.frames for shot in played])
    assert frames.shape == (2, 9, 32, 48, 3) and frames.dtype == np.uint8
    assert {(shot.level, shot.change) for shot in played} == {(None, None)} and min(s.seconds for s in played) > 0
    assert first.name == name.upper() and first.fps == 8
    other = open_baseline(name, settings(folders, name))
    assert not np.array_equal(shots(other, TWO, 6), frames)
    np.testing.assert_array_equal(shots(other, TWO, 5), frames)
    if name != "gsc":  # which draws the first frames of a game together
        np.testing.assert_array_equal(shots(other, game("alone", "sits"), 6)[0], frames[1])


def test_first_frames_read_the_instruction_and_clips_its_motion(folders, monkeypatch):
    read = {"FluxPipeline": [], "CogVideoXImageToVideoPipeline": []}
    player = open_baseline("gfc", settings(folders, "gfc"))
    for model in (player._pictures, player._clips):
        kind = type(model.pipeline)

        def call(self, *args, prompt, _kind=kind, _call=kind.__call__, **options):
            read[_kind.__name__].append(prompt)
            return _call(self, *args, prompt=prompt, **options)

        monkeypatch.setattr(kind, "__call__", call)
    list(player.play(TWO, 0))
    instructions = [turn.instruction for turn in TWO.turns]
    assert instructions[0] == "Character: qiqi; Motion: quickly flies; Background: noon forest."
    assert read == {
        "FluxPipeline": [[text] for text in instructions],
        "CogVideoXImageToVideoPipeline": ["quickly flies", "quickly sits"],
    }


def test_the_facts_name_what_drew_and_change_with_the_weights(folders, tmp_path):
    facts = open_baseline("gsc", settings(folders, "gsc", style="anime style")).facts
    assert json.loads(json.dumps(facts)) == facts
    assert (facts["video"]["folder"], facts["pictures"]["folder"]) == ("picture", "sdxl")
    assert (facts["video"]["steps"], facts["style"]) == (1, "anime style")
    other = save_text_to_video(tmp_path / "text", frames=9, seed=9)
    one, two = (open_baseline("gc", settings(folders, "gc", video=video)).facts for video in (folders.text, other))
    assert one["video"]["fingerprint"] != two["video"]["fingerprint"]


def test_a_pipeline_is_sampled_as_usual_and_the_caller_overrules_its_steps(folders):
    stock = open_baseline("gc", settings(folders, "gc", steps=None)).facts["video"]
    assert (stock["steps"], stock["guidance_scale"]) == (50, 6.0)
    one, two = (open_baseline("gc", settings(folders, "gc", steps=steps)) for steps in (1, 2))
    assert (one.facts["video"]["steps"], two.facts["video"]["steps"]) == (1, 2)
    assert not np.array_equal(shots(one), shots(two))


def test_a_lora_changes_the_shots_of_its_baseline(folders):
    for name, lora in (("gc", folders.text_lora), ("gfc", folders.flux_lora)):
        tuned = open_baseline(name, settings(folders, name, lora=lora))
        assert not np.array_equal(shots(tuned), shots(open_baseline(name, settings(folders, name))))
        model = tuned.facts["video" if name == "gc" else "pictures"]
        assert model["lora"]["file"] == "pytorch_lora_weights.safetensors" and len(model["lora"]["sha256"]) == 64


def test_a_lora_that_is_none_or_another_models_is_refused(folders, tmp_path):
    for path in (tmp_path / "absent.safetensors", folders.text):
        with pytest.raises(ValueError, match=r"is not a LoRA file; give a \.safetensors file"):
            open_baseline("gc", settings(folders, "gc", lora=path))
    other = tmp_path / "other.safetensors"
    for names in (("unet.mid.to_q.lora_A.weight",), load_file(folders.text_lora)):
        save_file({name: torch.ones(3, 5) for name in names}, other)
        with pytest.raises(ValueError, match=r"other\.safetensors (has no weights for|does not fit) CogVideoXPipeline"):
            shots(open_baseline("gc", settings(folders, "gc", lora=other)))
    with pytest.raises(ValueError, match=r"GSC has no use for it"):
        open_baseline("gsc", settings(folders, "gsc", lora=folders.flux_lora))
    with pytest.raises(ValueError, match=r"GC has no use for it"):
        open_baseline("gc", settings(folders, "gc", pictures=folders.flux))


def test_a_wrong_or_unfinished_folder_is_one_sentence(folders, tmp_path):
    with pytest.raises(ValueError, match=r"absent has no model_index\.json, and GC needs .*fetch THUDM/CogVideoX-2b"):
        open_baseline("gc", settings(folders, "gc", video=tmp_path / "absent"))
    with pytest.raises(ValueError, match=r"holds 'CogVideoXImageToVideoPipeline', and GC needs CogVideoXPipeline"):
        open_baseline("gc", settings(folders, "gc", video=folders.picture))
    folder = shutil.copytree(folders.text, tmp_path / "cut")
    shutil.rmtree(folder / "transformer")
    with pytest.raises(ValueError, match=r"transformer is missing; fetch"):
        open_baseline("gc", settings(folders, "gc", video=folder))


def test_a_folder_with_code_of_its_own_or_of_a_second_generation_is_refused(folders, tmp_path):
    folder = shutil.copytree(folders.text, tmp_path / "coded")
    index = json.loads((folder / "model_index.json").read_text())
    (folder / "model_index.json").write_text(json.dumps({**index, "scheduler": ["mine", "MyScheduler"]}))
    with pytest.raises(ValueError, match=r"scheduler of 'mine' is no stock model"):
        open_baseline("gc", settings(folders, "gc", video=folder))
    folder = shutil.copytree(folders.picture, tmp_path / "later")
    config = json.loads((folder / "transformer" / "config.json").read_text())
    (folder / "transformer" / "config.json").write_text(json.dumps({**config, "patch_size_t": 2}))
    with pytest.raises(ValueError, match=r"CogVideoX 1\.5"):
        open_baseline("gfc", settings(folders, "gfc", video=folder))


def test_frames_are_taken_as_by_hand():
    assert frame_indices(49, 17) == [0, 3, 6, 9, 12, 15, 18, 21, 24, 27, 30, 33, 36, 39, 42, 45, 48]
    assert frame_indices(9, 17) == list(range(9)) and frame_indices(6, 3) == [0, 2, 5]


def test_shared_attention_on_two_tokens_by_hand():
    """Two pictures of two tokens; each shows one of them. Picture 0 reads its own tokens and token 1 of picture 1."""
    query = torch.tensor([[1.0, 0.0], [2.0, -1.0]]).reshape(1, 2, 1, 2, 1)
    key = torch.tensor([[0.0, 1.0], [3.0, 2.0]]).reshape(1, 2, 1, 2, 1)
    value = torch.tensor([[10.0, 20.0], [30.0, 40.0]]).reshape(1, 2, 1, 2, 1)

    def attended(asked, *pairs):
        weights = [math.exp(asked * one) for one, _ in pairs]
        return sum(weight * two for weight, (_, two) in zip(weights, pairs, strict=True)) / sum(weights)

    first, second = ((0, 10), (1, 20), (2, 40)), ((3, 30), (2, 40), (0, 10))
    expected = [attended(1, *first), attended(0, *first), attended(2, *second), attended(-1, *second)]
    found = shared_attention(query, key, value, [torch.tensor([0]), torch.tensor([1])]).flatten().tolist()
    assert found == pytest.approx(expected, rel=1e-5)
    assert expected[1] == pytest.approx(70 / 3)


def first_frames(folders, texts):
    model = ImageModel(open_folder(folders.sdxl, SDXL, "GSC"), settings(folders, "gsc"), (32, 48))
    pictures = model.draw_together(texts, range(len(texts)))
    assert not any(type(one) is SharedAttention for one in model.pipeline.unet.attn_processors.values())
    return [np.asarray(picture).astype(int) for picture in pictures]


def test_one_instruction_changes_the_other_pictures_only_where_they_see_it(folders, monkeypatch):
    texts, other = ["qiqi runs", "qiqi sits", "qiqi reads"], ["qiqi runs", "qiqi sits", "sosuke flies quickly"]
    coupled = [first_frames(folders, given) for given in (texts, other)]
    assert all(np.abs(one - two).max() > 0 for one, two in zip(*coupled, strict=True))
    monkeypatch.setattr("animegamer_core.evaluate.baselines.sharing.AFTER", 2)  # of two steps
    apart = [first_frames(folders, given) for given in (texts, other)]
    assert [np.abs(one - two).max() > 0 for one, two in zip(*apart, strict=True)] == [False, False, True]
