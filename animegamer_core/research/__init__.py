"""What researchers run: ablations, baselines, judging, parity, benchmarks, the recipe of the Toybox."""
