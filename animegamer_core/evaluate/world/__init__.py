"""The paper's table: a world or a baseline plays a benchmark of games, and every shot is scored."""
