"""How the embedded world was trained: every step from drawing its games to its weights."""
