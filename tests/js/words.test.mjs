import assert from "node:assert/strict";
import test from "node:test";
import { cutAtWords } from "../../js/check.mjs";
import { groupsOf, motionOf, notShownWith, readCarried, toggleName } from "../../js/word_list.mjs";

const WORDS = { things: ["car", "scarf"], looks: ["red"], untried: [["Miko", "Yuzu"], ["Miko", "dance"], ["Taro", "Yuzu"]] };

test("unknown words are cut out of a text wherever they stand alone", () => {
  const unknown = cutAtWords("kiss, kisses; a kiss?", ["kiss", "?"]).filter((part) => part.unknown);
  assert.deepEqual(unknown.map((part) => part.text), ["kiss", "kiss", "?"]);
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
