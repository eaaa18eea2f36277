# Two commands: `make run` measures what int4 in the FFN costs SmolLM2-135M, `make test` runs every test.
PYTHON ?= python3
VENV ?= .venv
# Tests at a time, one thread each.
WORKERS ?= 2
BIN := $(VENV)/bin

.PHONY: run test check gpu-check install clean auto-gptq gptqmodel

install: $(VENV)/.installed

$(VENV)/.installed: pyproject.toml requirements/constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c requirements/constraints.txt hydra-ray-launcher
	touch $@

run: install
	$(BIN)/python -m harness +exp=int4_ffn_only

test: check
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

check: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Skips itself, with the reason, where there is no GPU.
gpu-check: install
	$(BIN)/python experiments/gpu_check/gpu_check.py

# The environment of `method: auto_gptq`, which cannot share one with today's transformers. Needs CPython 3.11.
auto-gptq: .venv-auto-gptq/.installed

.venv-auto-gptq/.installed: requirements/auto-gptq.txt
	python3.11 -m venv .venv-auto-gptq
	.venv-auto-gptq/bin/python -m pip install --quiet --disable-pip-version-check --no-deps -r requirements/auto-gptq.txt
	touch $@

# The environment of `method: gptqmodel`, 5 GB. With few cores set GPTQMODEL_CPU_WORKERS=2 when it is used.
gptqmodel: .venv-gptqmodel/.installed

.venv-gptqmodel/.installed: requirements/gptqmodel.txt
	$(PYTHON) -m venv .venv-gptqmodel
	.venv-gptqmodel/bin/python -m pip install --quiet --disable-pip-version-check -r requirements/gptqmodel.txt
	touch $@

clean:
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .ruff_cache .hypothesis
