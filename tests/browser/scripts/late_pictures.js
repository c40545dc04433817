// Pictures of the page finish loading `wait` ms later; returns nothing. A reload of the page ends it.
(wait) => {
  Object.defineProperty(HTMLImageElement.prototype, "onload", {
    configurable: true,
    set(act) {
      this.addEventListener("load", (event) => setTimeout(() => act.call(this, event), wait));
    },
  });
}
