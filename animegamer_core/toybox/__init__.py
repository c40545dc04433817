"""The Toybox: a small drawn world in which everything about a shot is known."""
