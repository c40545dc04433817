"""Playing: the player, and stories on disk."""
