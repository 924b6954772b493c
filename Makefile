# `make compare` runs the main job, `make example` a small real run, `make test` all tests; each sets up what it needs in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= nl2repo-122b
OUT ?= out/$(PROFILE)
TREE := build/tree

HARNESSES := $(VENV)/harnesses
ENGINES := tests/backends/real_engines.txt

.PHONY: compare example test lint clean

compare: $(VENV)/.gyre
	$(BIN)/gyre compare $(PROFILE) --out $(OUT) --resume

# A model learns a small task with real engines, trainers and harnesses on this machine's CPU.
example: $(VENV)/.dev
	test -e out/doors/settings.toml || OMP_NUM_THREADS=1 $(BIN)/python examples/doors/prepare.py
	OMP_NUM_THREADS=1 $(BIN)/gyre run out/doors/settings.toml --out out/doors/run --resume

test: $(VENV)/.dev $(VENV)/.harnesses lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto

# Type checker and import rules see the packages as they are installed, in one tree.
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf $(TREE)
	$(BIN)/pip install --quiet --no-deps --target $(TREE) .
	cd $(TREE) && $(CURDIR)/$(BIN)/mypy --config-file $(CURDIR)/pyproject.toml gyre
	cp .importlinter $(TREE)
	cd $(TREE) && PYTHONPATH=. $(CURDIR)/$(BIN)/lint-imports

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/.gyre: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable .
	touch $@

# Tests run a real SGLang and a real megatron-core on the CPU; where a wheel does not fit the machine, they are skipped.
$(VENV)/.dev: $(VENV)/bin/python pyproject.toml tests/backends/sglang_cpu.txt $(ENGINES)
	$(BIN)/pip install --quiet --editable '.[dev]' -r tests/backends/sglang_cpu.txt \
		|| $(BIN)/pip install --quiet --editable '.[dev]'
	-$(BIN)/pip install --quiet --no-deps -r $(ENGINES)
	touch $(VENV)/.gyre $@

# Agent harnesses that tests run as their users do; where npm is missing, those tests are skipped.
$(VENV)/.harnesses: $(VENV)/bin/python tests/backends/install_harnesses.sh
	-PYTHON=$(CURDIR)/$(BIN)/python sh tests/backends/install_harnesses.sh $(HARNESSES)
	touch $@

clean:
	rm -rf $(VENV) build out
