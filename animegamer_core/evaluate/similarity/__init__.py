"""Similarity of pictures to pictures and to text, by published towers or by the Toybox's own stand-ins."""
