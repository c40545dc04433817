"""Predict a turn at the published sizes on cards that nobody has measured: python docs/predict_cards.py

A step takes the time of its matrix products, of its attention, and of what the memory's bandwidth limits. The H200's
figures are those of docs/performance.md; the H100's step is predicted from them and compared with the measured one. For
other cards, slow: as large a fraction of the peak as on the H200 without FlashAttention-3; fast: nine tenths of it.
"""
# ruff: noqa: T201

from animegamer_core.spec import get_spec

# The makers' peaks: dense bfloat16 products added in float32, in TFLOP/s; the memory's bandwidth in TB/s.
CARDS = {
    "RTX 5090": (209.5, 1.79),
    "RTX 4090": (165.2, 1.01),
    "RTX 3090": (71.2, 0.94),
    "RTX 4070, 12 GB": (58.3, 0.50),
    "RTX 3060, 12 GB": (25.5, 0.36),
}
HOPPER, H200, H100 = 989.0, 4.8, 3.35
PRODUCTS, ATTENTION = 0.72, 0.38  # fractions of the peak on the H200, attention's without FlashAttention-3
REST = 0.0102  # s of a step on the H200
MEASURED_H100, VAE, ENGINE = 0.124, (0.271, 0.051), 0.056  # s; the VAE's by arithmetic and by bandwidth
ENGINE_BYTES, BUS = 14.5e9, 22e9  # copied to the card in each turn, since it does not fit beside the decoder
LIVE = 1.07 / 0.112  # guided steps that the passes of preset live are worth


def flops() -> tuple[float, float]:
    """Of a guided step, which takes two passes: of matrix products, of attention; both in TFLOP."""
    decoder, state = get_spec("release").decoder, get_spec("release").state
    frames, _, height, width = decoder.latent_shape
    tokens = state.tokens + frames * height * width // decoder.patch**2
    passes = 2 * decoder.layers * tokens * state.width / 1e12
    return 24 * state.width * passes, 4 * tokens * passes


def step(peak: float, bandwidth: float, products: float, attention: float) -> float:
    """Seconds of a guided step."""
    first, second = flops()
    return first / (peak * products) + second / (peak * attention) + REST * H200 / bandwidth


def _two(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


def main() -> None:
    """Print the check on the H100, then a row for each card."""
    known = step(HOPPER, H100, PRODUCTS, ATTENTION)
    print(f"H100: a step is predicted to take {known * 1e3:.0f} ms; measured: {MEASURED_H100 * 1e3:.0f} ms")
    print("| prediction, s | a guided step | `exact` | `live` | four steps of one pass |")
    print("| --- | --- | --- | --- | --- |")
    for name, (peak, bandwidth) in CARDS.items():
        rows = []
        for products, attention in ((0.9, 0.9), (PRODUCTS, ATTENTION)):
            one, slower = step(peak, bandwidth, products, attention), HOPPER / peak * PRODUCTS / products
            rest = (VAE[0] + ENGINE) * slower + VAE[1] * H200 / bandwidth + ENGINE_BYTES / BUS
            rows.append((one, 50 * one + rest, LIVE * one + rest, 2 * one + rest))
        print(f"| {name} |", " | ".join(f"{_two(fast)} to {_two(slow)}" for fast, slow in zip(*rows, strict=True)), "|")


if __name__ == "__main__":
    main()
