// How much of a card there is, and how much of it shows.
(card) => {
  const { scrollHeight, clientHeight, scrollWidth, clientWidth } = document.querySelector(card);
  return { inner: [scrollWidth, scrollHeight], outer: [clientWidth, clientHeight] };
}
