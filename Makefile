# Everything runs in ./.venv, which the first target to need it makes: Python 3.10 or newer, pip and make are enough.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready
GAME := animegamer_core/toybox/games/first-game.txt
# Without an NVIDIA driver the CPU build of torch is taken, a tenth of the size; constraints.txt names the version.
CPU_TORCH := $(if $(shell command -v nvidia-smi),,--extra-index-url https://download.pytorch.org/whl/cpu)

.PHONY: play test lint check soak

play: $(READY)  ## a 6-turn game in the Toybox, into out/
	$(RUN) -m animegamer_core play $(GAME)

test: $(READY)  ## all tests
	$(RUN) -m pytest

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

check: lint test  ## what CI runs

soak: $(READY)  ## the long runs: hours of play, hundreds of kills
	$(RUN) -m pytest -m soak

$(READY): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install $(CPU_TORCH) --no-deps -c constraints.txt torch
	$(RUN) -m pip install -c constraints.txt -e '.[train,data,eval,dev]'
	touch $@
