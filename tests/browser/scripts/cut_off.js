// Parts of the tab that are wider than their place.
() => [".ag-scroll", ".ag-form", ".ag-top", ".ag-card", "button"]
  .flatMap((part) => [...document.querySelectorAll(`.ag-play ${part}`)])
  .filter((element) => element.offsetParent && element.scrollWidth > element.clientWidth + 1)
  .map((element) => element.className)
