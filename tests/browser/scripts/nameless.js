// Things to press or to fill in, of the tab and its dialogs, that a screen reader has no name for.
() => [...document.querySelectorAll(":is(.ag-play button, .ag-play input, .ag-play select, .ag-play textarea)")]
  .filter((element) => !element.closest(".ag-game[hidden]")) // some names come with the first story
  .filter((element) => !(element.getAttribute("aria-label") || element.textContent.trim() || element.closest("label")))
  .map((element) => element.outerHTML)
