"""Research code: ablations, baselines, judging, parity, benchmarks, and the Toybox's recipe."""
