"""What a world can do, in figures: its tables, and the research on it."""
