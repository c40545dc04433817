"""Runs `animegamer_core.research.toybox_recipe.build`, under the name that world.json and the documentation give."""

import runpy

if __name__ == "__main__":
    runpy.run_module(f"{__package__.rpartition('.')[0]}.research.toybox_recipe.build", run_name="__main__")
