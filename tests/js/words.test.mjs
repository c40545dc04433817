import assert from "node:assert/strict";
import test from "node:test";
import { cutAtWords } from "../../js/check.mjs";
import { noteWords } from "../../js/notes.mjs";
import { translator } from "../../js/translations.mjs";
import { groupsOf, motionOf, notShownWith, readCarried, toggleName } from "../../js/word_list.mjs";

const WORDS = { things: ["car", "scarf"], looks: ["red"], untried: [["Miko", "Yuzu"], ["Miko", "dance"], ["Taro", "Yuzu"]] };

test("unknown words are cut out of a text wherever they stand alone", () => {
  const unknown = cutAtWords("kiss, kisses; a kiss?", ["kiss", "?"]).filter((part) => part.unknown);
  assert.deepEqual(unknown.map((part) => part.text), ["kiss", "kiss", "?"]);
});

test("notes of a reading speak the language of the page", () => {
  const only = "Only one can dance here: Miko. Next turn: Taro / Leo?";
  const [zh, en] = ["zh", "en"].map((locale) => (note) => noteWords(note, translator(locale)));
  assert.deepEqual([zh(only), zh("Shown instead: hug a friend for kisses.")], ["\u8fd9\u91cc\u4e00\u6b21\u53ea\u80fd\u6709\u4e00\u4e2a\u89d2\u8272\u505a\u201cdance\u201d\uff1aMiko\u3002\u4e0b\u4e00\u56de\u5408\u6362 Taro / Leo\uff1f", "\u201ckisses\u201d\u753b\u6210\u4e86\u201chug a friend\u201d\u3002"]);
  assert.deepEqual([en(only), zh("Else.")], [only, "Else."]);
});

test("what is carried is read from the motion and written again", () => {
  for (const motion of ["dance", "dance with a red scarf", "dance with the car", "play with a dog"])
    assert.equal(motionOf(readCarried(motion, WORDS)), motion);
  assert.deepEqual(readCarried("dance with a red scarf", WORDS), { act: "dance", look: "red", thing: "scarf" });
});

test("a name that the world does not know makes way for a clicked one", () => {
  const click = (who, name) => toggleName(who, name, ["Miko", "Yuzu"]);
  assert.deepEqual([click(["Robo-Cat"], "Yuzu"), click(["Miko"], "Yuzu"), click(["Miko", "Yuzu"], "Miko")], ["Yuzu", "Miko, Yuzu", "Yuzu"]);
});

test("characters stand together as training showed them, and what it never showed is named", () => {
  assert.deepEqual(groupsOf(["Miko", "Yuzu", "Taro"], WORDS.untried), [["Miko", "Taro"], ["Yuzu"]]);
  const fields = { character: "Taro, Miko", motion: "dance with the car", place: "" };
  assert.deepEqual(notShownWith("Miko", fields, WORDS), ["dance"]);
  assert.deepEqual(notShownWith("Yuzu", fields, WORDS), ["Miko", "Taro"]);
});
