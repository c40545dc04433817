"""How fast a turn is, and how much memory it takes, beside the same turn computed by stock calls in the same run."""
