// How many controls of the panel Training have no name for a screen reader.
() => {
  const controls = [...document.querySelectorAll(".ag-training :is(button, select, img, a, ol)")];
  return controls.filter((one) => !(one.ariaLabel || one.innerText || one.alt || one.querySelector("img")?.alt)).length;
};
