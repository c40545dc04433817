"""The Toybox's pictures, drawn with numpy and Pillow."""
