// [contrast of text to its ground (WCAG 2), element] of every text in a part of the page that can be read.
([within, apart]) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => under.map((value, index) => top[3] * top[index] + (1 - top[3]) * value);
  const linear = (value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
  const light = (colour) => {
    const [r, g, b] = colour.map((value) => linear(value / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => (element ? over(rgba(getComputedStyle(element).backgroundColor), ground(element.parentElement)) : [255, 255, 255]);
  const found = [];
  for (const element of document.querySelectorAll(`:is(${within}) *`)) {
    const own = [...element.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || !element.checkVisibility()) continue;
    if (element.closest(`:disabled, option, datalist, svg, script, noscript, ${apart}`)) continue;
    const under = ground(element);
    const [a, b] = [light(over(rgba(getComputedStyle(element).color), under)), light(under)];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), `${element.className || element.tagName} ${element.textContent.slice(0, 30)}`]);
  }
  return found;
}
