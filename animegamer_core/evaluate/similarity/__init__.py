"""Similarity of images to images and to text, by published models or by the Toybox's own."""
