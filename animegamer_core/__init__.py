"""AnimeGamer as a plain PyTorch library: language in, an endless anime life out. It knows nothing of ComfyUI."""
