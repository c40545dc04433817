"""Similarity of images to images and to texts, by published models or by the Toybox's own."""
