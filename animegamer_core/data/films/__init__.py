"""Reads films, finds their scenes and cuts them into clips."""
