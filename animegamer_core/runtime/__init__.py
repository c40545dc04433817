"""How models run on a machine: device, presets, optimizations, offloading."""
