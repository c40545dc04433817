"""Translates Chinese and Japanese instructions to English with a small table of phrases. Imports no torch.

An engine is trained on English instructions in one form. This turns a line with Chinese or Japanese letters into that
form; it may name who, how, what, with what, when and where in any order. It is for worlds whose words are all in the
table, such as the Toybox, and for those without a word list, where it knows only everyday words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..life import Words
from ..messages import brief
from ..state import Instruction, clean_text
from .everyday import EVERYDAY, FILM_CHARACTERS

Spellings = Mapping[str, str]  # English phrase -> its Chinese and Japanese ones, separated by spaces

CHARACTERS: Spellings = {
    "Miko": "美子 ミコ みこ",
    "Taro": "太郎 タロウ タロー たろう",
    "Yuzu": "柚子 ユズ ゆず",
    "Nori": "诺里 ノリ",
    "Beni": "贝妮 ベニ べに",
    "Pico": "皮可 ピコ ぴこ",
    "Qiqi": "琪琪 キキ",
    "Sosuke": "宗介 そうすけ",
    "Ponyo": "波妞 ポニョ",
}
# Japanese verbs as in a dictionary, before "iru", and before "masu".
ACTS: Spellings = {
    "sleep under a blanket": "盖着毯子睡觉 盖毯子睡觉 睡觉 毛布をかぶって眠る 毛布をかぶって眠って 毛布をかぶって眠り "
    "眠る 眠って 眠り 寝る 寝て",
    "eat noodles": "吃面条 吃面 麺を食べる 麺を食べて 麺を食べ",
    "talk to a friend": "和朋友聊天 跟朋友聊天 和朋友说话 友達と話す 友達と話して 友達と話し",
    "hug a friend": "拥抱朋友 抱朋友 友達を抱きしめる 友達を抱きしめて 友達を抱きしめ",
    "fly on a broomstick": "骑着扫帚飞行 骑扫帚飞行 骑着扫帚飞 骑扫帚飞 ほうきに乗って飛ぶ ほうきに乗って飛んで "
    "ほうきに乗って飛び ほうきで飛ぶ 箒に乗って飛ぶ 箒で飛ぶ",
    "run": "跑步 奔跑 跑 走る 走って 走り",
    "dance": "跳舞 踊る 踊って 踊り",
    "wave hello": "挥手问好 挥手打招呼 挥手 手を振ってあいさつする 手を振る 手を振って 手を振り",
    "read a book": "看书 读书 本を読む 本を読んで 本を読み",
    "ride a swing": "荡秋千 ブランコに乗る ブランコに乗って ブランコに乗り",
    "climb a ladder": "爬梯子 はしごを登る はしごを登って はしごを登り",
    "swim": "游泳 泳ぐ 泳いで 泳ぎ",
    "sleep in bed": "在床上睡觉 睡觉 ベッドで眠る ベッドで眠って ベッドで眠り 眠る 眠って 寝る 寝て",
    "rest on a bench": "在长椅上休息 ベンチで休む ベンチで休んで ベンチで休み",
    "eat a meal": "吃饭 食事をする 食事をして 食事をし ご飯を食べる ご飯を食べて",
    "drink a cup of tea": "喝茶 お茶を飲む お茶を飲んで お茶を飲み",
    "walk with a friend": "和朋友散步 跟朋友散步 友達と散歩する 友達と散歩して 友達と歩く 友達と歩いて",
    "greet the neighbors": "和邻居打招呼 跟邻居打招呼 近所の人にあいさつする 近所の人にあいさつして",
    "help an old woman": "帮助老奶奶 おばあさんを助ける おばあさんを助けて",
    "play with a cat": "和猫玩 跟猫玩 猫と遊ぶ 猫と遊んで 猫と遊び",
    "sing a song": "唱歌 歌を歌う 歌を歌って 歌を歌い",
    "look around": "四处看看 环顾四周 辺りを見回す 辺りを見回して",
    "walk along the road": "沿着路走 走在路上 道を歩く 道を歩いて 道を歩き",
    "clean the room": "打扫房间 部屋を掃除する 部屋を掃除して",
    "carry a basket": "提着篮子 提篮子 かごを運ぶ かごを運んで かごを運び",
}
ADVERBS: Spellings = {
    "barely": "勉强 かろうじて",
    "faintly": "微弱 かすかに",
    "slightly": "略微 わずかに",
    "gently": "轻轻 やさしく 優しく",
    "slowly": "慢慢 缓慢 ゆっくり",
    "softly": "轻柔 柔和 そっと 柔らかく",
    "steadily": "稳稳 しっかり 着実に",
    "calmly": "平静 冷静 落ち着いて 静かに",
    "evenly": "均匀 一定に 均等に",
    "quickly": "快速 很快 すばやく 素早く 速く",
    "briskly": "轻快 きびきび 軽快に",
    "swiftly": "迅速 さっと 迅速に",
    "wildly": "狂野 激しく",
    "furiously": "猛烈 猛烈に",
    "madly": "疯狂 狂ったように",
}
PLACES: Spellings = {
    "beach": "海滩 沙滩 浜辺 海岸 ビーチ",
    "forest": "森林 树林 森",
    "mountain": "高山 山",
    "street": "街道 街 通り",
    "castle": "城堡 お城 城",
    "kitchen": "厨房 台所 キッチン",
    "bedroom": "卧室 寝室",
    "library": "图书馆 図書館",
    "garden": "花园 庭",
    "market": "市场 市場",
    "bakery": "面包店 パン屋",
    "harbor": "港口 港",
    "meadow": "草地 草原",
    "hill": "山丘 小山 丘",
    "living room": "客厅 居間 リビング",
}
TIMES: Spellings = {
    "day": "白天 昼間 昼",
    "night": "夜晚 晚上 夜里 夜",
    "morning": "早上 早晨 朝",
    "evening": "傍晚 夕方",
}
THINGS: Spellings = {"car": "汽车 车 車", "umbrella": "雨伞 伞 傘", "scarf": "围巾 マフラー スカーフ"}
LOOKS: Spellings = {
    "red": "红色 红 赤い 赤",
    "blue": "蓝色 蓝 青い 青",
    "green": "绿色 绿 緑色 緑",
    "yellow": "黄色 黄色い 黄",
    "purple": "紫色 紫",
    "white": "白色 白い 白",
}
# Phrases that refer back to earlier turns, as in the Toybox's own instructions.
PRONOUNS: Spellings = {"she": "她 彼女", "he": "他 彼", "they": "他们 她们 二人 彼ら"}
BACK: Spellings = {
    "do the same again": "再做一次同样的事 再做一次 もう一度同じことをする もう一度同じことをして",
    "talk to the friend from before": "和之前的朋友聊天 跟之前的朋友聊天 前の友達と話す 前の友達と話して",
    "hug the friend from before": "拥抱之前的朋友 前の友達を抱きしめる 前の友達を抱きしめて",
}
SAME_PLACE: Spellings = {"in the same place": "同一个地方 同样的地方 同じ場所"}

EXAMPLE = "美子在海滩跑步, ミコは浜辺で走る"
_LETTERS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
# Words between the phrases, and the names of the parts, in both languages and in the English form.
_BETWEEN = re.compile(
    r"(?:[\W_]|角色|人物|动作|背景|地点|キャラクター|登場人物|動作|動き|場所|character|motion|background|"
    r"一个|一把|一条|一辆|带着|拿着|撑着|戴着|围着|开着|一起|里面|上面|在|的|地|着|和|与|跟|把|里|上|中|边|"
    r"一緒に|持って|巻いて|差して|連れて|います|いる|ます|する|しながら|ながら|は|が|を|に|で|と|の|へ|も)*",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class _Found:
    """A phrase in a line: which part of an instruction it is, and the phrase in English."""

    kind: str
    phrase: str


@dataclass(frozen=True)
class _Table:
    """Lower-case spelling -> its phrase; and a pattern that finds the longest spelling at a position."""

    found: Mapping[str, _Found]
    pattern: re.Pattern[str]


def has_other_letters(text: str) -> bool:
    """Whether a text has Chinese or Japanese letters."""
    return _LETTERS.search(text) is not None


def read_instruction(text: str, words: Words | None, world: str = "") -> str:
    """The cleaned instruction that an engine reads: `text` itself, or English for a Chinese or Japanese one.

    words: the world's; None: it lists none, and a line with more than everyday words is returned unchanged. world: its
    name. ValueError for a line that names something the world has no word for, two motions or places, or no character,
    motion or place.
    """
    text = clean_text(text)
    table = _table(words, world) if has_other_letters(text) else None
    if table is None:
        return text
    try:
        return _read(text, table)
    except ValueError:
        if words is None:
            return text
        raise


def _read(text: str, table: _Table) -> str:
    found, gaps = _split(unicodedata.normalize("NFKC", text), table)
    if unknown := [gap for gap in gaps if _BETWEEN.fullmatch(gap) is None]:
        names = ", ".join(brief(_trimmed(gap), 40) for gap in unknown)
        raise ValueError(
            f"the instruction {brief(text, 60)!r} has words that this world does not know: {names}; use words that it "
            f"knows, such as {EXAMPLE}"
        )
    parts = {kind: [one.phrase for one in found if one.kind == kind] for kind in _KINDS}
    for kind in ("motion", "place", "adverb", "time", "thing", "colour"):
        if len(names := list(dict.fromkeys(parts[kind]))) > 1:
            raise ValueError(f"the instruction {brief(text, 60)!r} names {' and '.join(names)}; give one {kind}")
    for kind in ("character", "motion", "place"):
        if not parts[kind]:
            raise ValueError(
                f"the instruction {brief(text, 60)!r} has no {kind}; say who does what, and where, such as {EXAMPLE}"
            )
    return _composed(parts).text


def _composed(parts: Mapping[str, Sequence[str]]) -> Instruction:
    one = {kind: next(iter(names), "") for kind, names in parts.items()}
    carried = ""
    if one["thing"]:
        carried = f" with {'a ' + one['colour'] if one['colour'] else 'the'} {one['thing']}"
    place, time = one["place"], one["time"]
    if place in SAME_PLACE and time:
        place, time = f"{place} by {time}", ""
    who = tuple(dict.fromkeys(parts["character"]))
    return Instruction(who, one["motion"] + carried, place, one["adverb"], time)


def _split(text: str, table: _Table) -> tuple[list[_Found], list[str]]:
    """(the phrases of a text in order, the texts between them)."""
    found, gaps, end = [], [], 0
    for match in table.pattern.finditer(text):
        gaps.append(text[end : match.start()])
        found.append(table.found[match[0].lower()])
        end = match.end()
    return found, [*gaps, text[end:]]


def _trimmed(gap: str) -> str:
    """The text between two phrases, without joining words; empty if nothing else is left."""
    joined = _BETWEEN.match(gap)
    return (gap[joined.end() :] if joined else gap).strip(" .,:;!?、。") or gap


_KINDS = ("character", "motion", "adverb", "place", "time", "thing", "colour")


@lru_cache(maxsize=16)
def _table(words: Words | None, world: str) -> _Table | None:
    """The spellings of a world's words; None if one of its characters, motions or places has none."""
    known = words or EVERYDAY
    characters = known.characters or FILM_CHARACTERS.get(world, ())
    acts = [act.phrase for act in known.acts]
    needed = ((characters, CHARACTERS), (acts, ACTS), (known.places, PLACES))
    if any(name not in table for names, table in needed for name in names):
        return None
    adverbs = [adverb for group in known.adverbs for adverb in group]
    rows = (
        ("character", characters, CHARACTERS),
        ("character", PRONOUNS, PRONOUNS),
        ("motion", acts, ACTS),
        ("motion", BACK, BACK),
        ("adverb", adverbs, ADVERBS),
        ("place", known.places, PLACES),
        ("place", SAME_PLACE, SAME_PLACE),
        ("time", known.times, TIMES),
        ("thing", known.things, THINGS),
        ("colour", known.looks, LOOKS),
    )
    found = {
        spelling.lower(): _Found(kind, phrase)
        for kind, names, table in rows
        for phrase in names
        if phrase in table
        for spelling in (phrase, *table[phrase].split())
    }
    longest_first = sorted(found, key=len, reverse=True)
    spelled = (rf"(?<![a-z]){re.escape(one)}(?![a-z])" if one.isascii() else re.escape(one) for one in longest_first)
    return _Table(found, re.compile("|".join(spelled), re.IGNORECASE | re.ASCII))
