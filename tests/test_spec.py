import json
from dataclasses import replace

import pytest

from animegamer_core.runtime.presets import Preset, resolve_sampling
from animegamer_core.spec import PROFILES, RELEASE, SPECS, ModelSpec, Sampling, get_profile, get_spec, read_timesteps


@pytest.mark.parametrize("name", [*SPECS, "release"])
def test_specs_survive_json(name):
    spec = get_spec(name)
    assert ModelSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec


def test_release_sizes_are_the_published_ones():
    assert (RELEASE.state.tokens, RELEASE.state.width) == (226, 1920)
    assert RELEASE.decoder.latent_shape == (5, 16, 60, 90)
    assert RELEASE.decoder.heads * RELEASE.decoder.head_width == 1920
    assert SPECS["qiqi"].decoder == SPECS["sosuke"].decoder == RELEASE.decoder


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"state": {"width": "wide"}}, "width"),
        ({"engine": {"heads": 0}}, "field engine.heads"),
        ({"decoder": {"vae": {"channels": [8, -1]}}}, r"field decoder.vae.channels\[1\]"),
        ({"decoder": {"spatial_scale": -1.0}}, "field decoder.spatial_scale"),
        ({"decoder": {"width": 47}}, "field decoder: width is 47; expected a multiple of 16"),
        ({"decoder": {"frames": 16}}, "field decoder: frames - 1 is 15; expected a multiple of 4"),
        ({"decoder": {"head_width": 65}}, "field decoder: heads x head_width is 1950; expected a multiple of 16"),
        ({"decoder": {"refiner": -8}}, "field decoder.refiner: expected a whole number >= 0"),
        ({"decoder": {"vae": {"norm_groups": 9}}}, "vae: a number of channels is 128; expected a multiple of 9"),
        ({"engine": {"hidden": 47}}, "field engine: hidden is 47; expected a multiple of 64"),
        ({"encoder": {"image": {"width": 47}}}, "field encoder.image: width is 47; expected a multiple of 12"),
        ({"encoder": {"variant": "x"}}, "field encoder.variant"),
    ],
)
def test_a_foreign_spec_is_refused_by_field(change, named):
    with pytest.raises(ValueError, match=named):
        ModelSpec.from_dict({**RELEASE.to_dict(), **change})


def test_unknown_names_list_the_choices_and_a_spec_has_a_name():
    with pytest.raises(ValueError, match="name is missing"):
        ModelSpec.from_dict({})
    for make in (get_spec, get_profile, lambda name: Sampling(solver=name)):
        with pytest.raises(ValueError, match="choose one of"):
            make("nonsense")


def test_sampling_is_what_is_given_else_the_presets_else_the_worlds():
    tiny, paper = SPECS["tiny"], PROFILES["paper"]
    assert resolve_sampling(tiny, paper) == Sampling(steps=4, guidance="cosine", solver="dpmpp_2m_sde")
    assert resolve_sampling(tiny, PROFILES["reference"]).guidance == "reference_wave"
    fast = Preset("fast", steps=2, guidance="constant")
    assert resolve_sampling(tiny, paper, preset=fast) == Sampling(steps=2, guidance="constant", solver="dpmpp_2m_sde")
    asked = Sampling(steps=(999, 399), guidance="distilled", solver="ddim")
    assert resolve_sampling(tiny, paper, asked, fast) == asked
    assert resolve_sampling(tiny, paper, Sampling(steps=9)).steps == 9
    assert resolve_sampling(tiny, paper, preset=replace(fast, steps=9)).steps == 4, "at most the world's"
    taught = replace(tiny, decoder=replace(tiny.decoder, steps=(999, 908)))
    assert resolve_sampling(taught, paper, preset=fast) == replace(asked, steps=(999, 908), guidance="constant")
    assert ModelSpec.from_dict(json.loads(json.dumps(taught.to_dict()))) == taught


def test_timesteps_are_read_as_people_write_them():
    assert read_timesteps("999, 856,665,399") == (999, 856, 665, 399) and read_timesteps("500") == (500,)
    for text in ("", "999,,1", "a,b", "1000,3", "3,-1", "399,665", "9,9", "0.5,0.1"):
        with pytest.raises(ValueError, match="timesteps .*expected"):
            read_timesteps(text)


def test_profiles_differ_where_settled():
    as_run, reference, paper = (PROFILES[name] for name in ("as_run", "reference", "paper"))
    assert reference == replace(as_run, name="reference", history_states=True, text_sees_states=True, grammar=True)
    assert as_run.skip_guidance_below == reference.skip_guidance_below == 0
    assert paper.aligned_queries and paper.shared_prefill and not paper.doubled_stamina_end
