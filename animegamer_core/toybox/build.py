"""Runs `animegamer_core.evaluate.toybox_recipe.build`, under the name that world.json and the documentation give."""

import runpy

if __name__ == "__main__":
    runpy.run_module(f"{__package__.rpartition('.')[0]}.evaluate.toybox_recipe.build", run_name="__main__")
