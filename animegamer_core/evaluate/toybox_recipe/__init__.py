"""How the Toybox's shipped world was trained: every step from drawing its games to its weights."""
