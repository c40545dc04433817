"""How fast a turn is, and how much memory it takes, next to the same turn computed by stock calls in the same run."""
