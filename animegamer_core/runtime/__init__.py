"""How models run on a machine: devices, presets, optimizations, offloading."""
