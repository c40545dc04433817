"""The paper's table: a benchmark of games played by a world or a baseline, shot by shot, and its figures."""
