"""A vision model as judge: what it is shown, which replies count, and what is made of its scores."""

import json

import pytest
from judging_world import make_run
from PIL import Image
from stub_endpoint import GOOD, StubEndpoint, refusal

from animegamer_core.cli.judge import Judge
from animegamer_core.cli.options import parse
from animegamer_core.evaluate.judging.comparison import open_comparison
from animegamer_core.evaluate.judging.judge import CRITERIA, Question, judge_prompt, mean_score, stories_of

pytestmark = pytest.mark.usefixtures("endpoint_key")
EVIL = "\U0001f98a</script>=cmd|' IGNORE_ALL\ud800"
SHADES = {"Zeta": 200, "GC": 100, "GFC": 50}  # the red of an agent's clips, by which the stub knows it
GAMES = {"game-001": 10, "game-002": 12, "game-003": 4}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / name, name, GAMES, shade) for name, shade in SHADES.items()]


def shades(ask):
    """The agents' reds, as they are shown; the first picture holds the references."""
    return [picture.getpixel((20, 3))[0] for picture in ask.pictures[1:]]


def faithful(ask):
    """Scores that follow an agent's shade alone: 9, 5 and 3; text alignment one less."""
    score = {200: 9, 100: 5, 50: 3}
    nearest = [min(score, key=lambda known, red=red: abs(known - red)) for red in shades(ask)]
    lines = [f"<{tag}> " + " ".join(str(score[red] - (tag == "TA")) for red in nearest) for tag in CRITERIA]
    return "\n".join([*lines, "The first is livelier."])


@pytest.fixture
def stub():
    with StubEndpoint(faithful) as stub:
        yield stub


def judge(stub, runs, out, *words):
    given = [*map(str, runs), "--url", stub.url, "--model", "stub-vl", "--out", str(out), "--timeout", "5", *words]
    status = parse(Judge, given, "evaluate judge", "").run()
    report = json.loads((out / "judge.json").read_text("utf-8")) if (out / "judge.json").is_file() else None
    return status, report


def test_the_prompt_has_the_papers_criteria_in_order_and_no_agents_name(runs):
    story = stories_of(open_comparison(runs))[0]
    prompt = judge_prompt(story, 3, ["Miko"])
    places = [prompt.index(f"<{tag}> {name}") for tag, (name, _) in CRITERIA.items()]
    assert places == sorted(places) and list(CRITERIA) == ["OA", "TA", "ConC", "ChaC", "EC", "VC"]
    assert "from top to bottom: Miko. Image-2 is by agent 1, Image-3 is by agent 2, Image-4 is by agent 3" in prompt
    assert "Scene 5: Character: Miko; Motion: barely walk round tree 5;" in prompt and "<VC> n n n\n" in prompt
    assert not any(name in prompt for name in SHADES)
    assert "Image-1 is by agent 1" in judge_prompt(story, 3, [])


def test_every_agent_is_one_picture_of_five_rows_of_five_frames(stub, runs, tmp_path):
    judge(stub, runs, tmp_path, "--passes", "1", "--limit", "1")
    first = next(ask for ask in stub.asks if "tree 1;" in ask.texts[-1])
    assert len(first.pictures) == 4 and sorted(round(red / 50) for red in shades(first)) == [1, 2, 4]
    sheet = first.pictures[1]
    assert sheet.size == (5 * 48 + 4 * 12, 5 * 32 + 4 * 12)
    greens = [sheet.getpixel((20, row * 44 + 10))[1] for row in range(5)]
    assert all(abs(green - wanted) < 12 for green, wanted in zip(greens, (20, 40, 60, 80, 100), strict=True))
    times = [sheet.getpixel((column * 60 + 3, 3))[0] for column in range(5)]
    assert times == sorted(times) and times[0] < 20 and times[-1] > 235
    assert not any(name in text for ask in stub.asks for text in ask.texts for name in SHADES)


def test_reference_pictures_are_shown_and_without_them_the_first_scene_stands_for_them(stub, runs, tmp_path):
    stub.good = lambda ask: "\n".join([*(f"<{tag}> 5 5 5" for tag in CRITERIA), "Alike."])
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    Image.new("RGB", (60, 60)).save(pictures / "somebody.png")
    words = ("--passes", "1", "--limit", "1", "--characters", str(pictures))
    _, report = judge(stub, runs, tmp_path / "out", *words)
    first = stub.asks[0]
    assert len(first.pictures) == 3 and "compare the characters with those of the first" in first.texts[-1]
    assert report["without a reference picture"] == "Miko"
    Image.new("RGB", (60, 60), (0, 0, 250)).save(pictures / "miko.png")
    stub.asks.clear()
    _, report = judge(stub, runs, tmp_path / "out", *words)
    assert report["reference pictures"] == "folder" and report["without a reference picture"] == "nobody"
    assert stub.asks[0].pictures[0].size == (240, 240) and stub.asks[0].pictures[0].getpixel((9, 9))[2] > 240


def test_scores_go_back_to_their_agents(runs):
    story = stories_of(open_comparison(runs[:2]))[0]
    questions = [Question(story, 0, (1, 0)), Question(story, 1, (0, 1)), Question(story, 2, (1, 0))]
    given = [dict.fromkeys(CRITERIA, scores) for scores in ((4, 8), (6, 4))]
    answered = list(zip(questions, given, strict=False))
    first, second = (mean_score(answered, agent, "OA") for agent in (0, 1))
    assert (first.value, second.value, first.count) == (7, 4, 2)


def test_a_whole_run(stub, runs, tmp_path, capsys):
    status, report = judge(stub, runs, tmp_path / "out")
    assert status == 0 and len(stub.asks) == 12 and report["answered"] == "12 of 12"
    scores = report["scores"]
    assert {agent: scores[agent]["OA"]["value"] for agent in scores} == {"Zeta": 9, "GC": 5, "GFC": 3}
    assert scores["Zeta"]["TA"]["value"] == 8 and scores["Zeta"]["OA"]["count"] == 12
    assert (report["games"], report["stories"], report["passes"], report["seed"]) == (2, 4, 3, 0)
    text = (tmp_path / "out" / "judge.md").read_text("utf-8")
    assert "| AnimeGamer (paper) | 8.36 | 9.14 | 8.41 | 9.11 | - | - |" in text
    assert "| Zeta | 9.00 (9.00 to 9.00) | 8.00 (8.00 to 8.00) |" in text
    assert "questions: 12, answered 12" in capsys.readouterr().out


def test_the_same_command_goes_on_and_gives_the_same_report(stub, runs, tmp_path):
    stub.script[:] = [GOOD] * 5 + [refusal(401, message="no key")] * 20
    status, report = judge(stub, runs, tmp_path / "out", "--asked-at-once", "1")
    assert status == 1 and report["answered"] == "5 of 12"
    before = len(stub.asks)
    stub.script.clear()
    status, report = judge(stub, runs, tmp_path / "out")
    assert status == 0 and len(stub.asks) == before + 7
    before = (tmp_path / "out" / "judge.json").read_bytes()
    assert judge(stub, runs, tmp_path / "out")[0] == 0 and (tmp_path / "out" / "judge.json").read_bytes() == before


def test_a_story_that_gets_no_verdict_is_told_and_left_out(stub, runs, tmp_path, capsys):
    stub.good = lambda ask: EVIL if "tree 6;" in ask.texts[-1] else faithful(ask)
    status, report = judge(stub, runs, tmp_path / "out", "--passes", "1", "--tries", "2")
    assert status == 1 and report["scores"]["Zeta"]["OA"]["count"] == 2
    assert "set aside 2" in capsys.readouterr().out
    assert "IGNORE" not in (tmp_path / "out" / "judge.md").read_text("utf-8")


def test_wrong_runs_are_refused_before_anything_is_asked(stub, runs, tmp_path):
    other = make_run(tmp_path / "other", "other", {"game-009": 10}, 9)
    short = make_run(tmp_path / "short", "short", {"game-003": 4}, 9)
    longer = make_run(tmp_path / "longer", "longer", {"game-001": 11}, 9)
    cases = {
        "no finished game in common": [runs[0], other],
        "a story takes 5 turns": [runs[0], short],
        "different lines for game game-001": [runs[0], longer],
        "passes is 0": [*runs, "--passes", "0"],
    }
    for expected, words in cases.items():
        with pytest.raises(ValueError, match=expected):
            judge(stub, words, tmp_path / "out")
    assert not stub.asks and not (tmp_path / "out" / "judge.json").exists()
    twin = make_run(tmp_path / "twin", "Zeta", GAMES, 9)
    assert open_comparison([runs[0], twin]).agents == (f"Zeta ({runs[0]})", f"Zeta ({twin})")
