"""Captions of clips: who does what, where and how, from a vision model or a sidecar file."""
