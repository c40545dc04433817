// Parts of the tab and of its dialogs that are wider than their place.
() => [".ag-scroll", ".ag-form", ".ag-top", ".ag-card", "button"]
  .flatMap((part) => [...document.querySelectorAll(`.ag-play ${part}`)])
  .concat(...document.querySelectorAll("dialog.ag-dialog[open], .ag-dialog[open] :is(h2, label, p, li, code, input)"))
  .filter((element) => element.checkVisibility() && element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.className)
