"""A film read, understood and cut: from the file to the clips of its segments."""
