import assert from "node:assert/strict";
import test from "node:test";
import { freeName, matching } from "../../js/story_list.mjs";

const STORIES = [{ name: "Forest walk", world: "toybox" }, { name: "Forest picnic", world: "qiqi" }, { name: "\u68ee\u306e\u65c5", world: "toybox" }];

test("stories are found by all words of a search, in any order and case", () => {
  const found = (text) => matching(STORIES, text).map(({ name }) => name);
  assert.deepEqual(found("TOYBOX forest"), ["Forest walk"]);
  assert.deepEqual(found("\u68ee"), ["\u68ee\u306e\u65c5"]);
  assert.equal(found("  ").length, 3);
  assert.deepEqual(found("forest qiqi walk"), []);
});

test("a copy gets a name that is not taken", () => {
  const free = (...names) => freeName("a copy", names.map((name) => ({ name })));
  assert.deepEqual([free("a"), free("a copy", "a copy 2")], ["a copy", "a copy 3"]);
});
