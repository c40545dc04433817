// {combination: command} of all keys of the page.
() => {
  const store = app.extensionManager._p._s.get("keybinding");
  return Object.fromEntries(
    store.keybindings.map(({ combo, commandId }) => [
      [combo.key.toUpperCase(), combo.ctrl, combo.alt, combo.shift].join(":"),
      commandId,
    ]),
  );
};
