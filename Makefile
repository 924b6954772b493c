# `make compare` runs the main job, `make test` all tests; both set up everything they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PROFILE ?= nl2repo-122b
OUT ?= out/$(PROFILE)
TREE := build/tree

.PHONY: compare test lint clean

compare: $(VENV)/.gyre
	$(BIN)/gyre compare $(PROFILE) --out $(OUT) --resume

test: $(VENV)/.dev lint
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

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable '.[dev]'
	touch $(VENV)/.gyre $@

clean:
	rm -rf $(VENV) build out
