"""The Play tab in a world that was made for somebody's dataset, and knows no word of the Toybox's stories."""

import msgspec
import pytest
from tiny_world import save_tiny_world

from animegamer_core.data.dataset import DatasetFolder
from animegamer_core.model.encoder import ShotEncoder
from animegamer_core.toybox.dataset import DatasetGames, write_dataset
from animegamer_core.train.world_setup import extended_world
from animegamer_core.weights import save_part

SHOWN = (  # of Big Buck Bunny: who, what, where
    (("Bunny",), "sleep in his burrow", "morning burrow"),
    (("Bunny", "Butterfly"), "watch a butterfly", "day meadow"),
    (("Frank",), "sit on a branch", "day tree"),
    (("Frank", "Gamera"), "throw a nut", "day tree"),
    (("Bunny",), "chew an apple", "day meadow"),
    (("Gamera",), "creep forward with a nut", "day forest"),
)
STORY = "a rabbit's life"


@pytest.fixture(scope="module")
def film(tab, server, tmp_path_factory):
    """The Play tab with a world that `new --from` makes for six clips."""
    folder = tmp_path_factory.mktemp("film")
    start = save_tiny_world(folder / "start", seed=2)
    start = save_part(start, ShotEncoder(start.spec, start.tokenizer().backend))
    # Its opening picture is a clip too.
    dataset = write_dataset(folder / "bunny", DatasetGames(games=1, held_out=0, turns=len(SHOWN) - 1), workers=1)
    turns = tuple(
        msgspec.structs.replace(turn, character=who, motion=motion, background=where, said=None)
        for turn, (who, motion, where) in zip(dataset.turns, SHOWN, strict=True)
    )
    dataset = DatasetFolder(dataset.path, turns, dataset.games, dataset.info)
    extended_world(start, dataset, server.models_dir / "animegamer" / "bunny")
    tab.comfy.open()
    tab.begin(STORY, "bunny")
    tab.sketch(1)
    yield tab


def proposals(film):
    return [button.get_attribute("title") for button in film.page.locator(".ag-proposals .ag-story").all()]


def of_the_film(text):
    who, motion, where = (part.partition(": ")[2] for part in text.removesuffix(".").split("; "))
    names = {name for row in SHOWN for name in row[0]}
    acts, places = {row[1] for row in SHOWN}, {row[2].split()[1] for row in SHOWN}
    return set(who.split(", ")) <= names and any(motion.endswith(act) for act in acts) and where.split()[1] in places


def test_the_first_turn_is_proposed_in_the_films_words_and_a_click_plays_it(film):
    film.page.click(".ag-suggest")
    film.page.wait_for_selector(".ag-proposals .ag-story")
    offered = proposals(film)
    assert offered and all(map(of_the_film, offered)), offered
    film.comfy.shot("play-dataset-world")
    film.page.locator(".ag-proposals .ag-story").first.click()
    film.wait_for_turn(1)
    assert film.branches(STORY)["main"] == offered[:1]


def test_the_fields_offer_the_films_words(film):
    known = film.server.get("/animegamer/words?world=bunny")
    assert set(known["characters"]) == {"Bunny", "Butterfly", "Frank", "Gamera"}
    assert set(known["places"]) == {"burrow", "meadow", "tree", "forest"} and known["times"] == ["morning", "day"]
    assert "Miko" not in film.page.locator(".ag-form datalist").evaluate_all(
        "(lists) => lists.map((l) => l.innerHTML).join()"
    )


def test_it_plays_by_itself(film):
    film.page.fill("input[name=autoplay]", "3")
    film.page.click(".ag-autoplay")
    film.wait_for_turn(4)  # the one that was clicked, and three
    film.wait_until_idle()
    played = film.branches(STORY)["main"]
    assert len(played) == 4 and all(map(of_the_film, played)), played
