// Lay the tab over the page in a width of its own; null puts it back.
(box, width) => {
  box.style.cssText = width ? `position: fixed; inset: 0 auto 0 60px; z-index: 9999; height: auto; width: ${width}px` : "";
}
