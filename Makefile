# make demo   the main job on an example: installs what is missing, then optimises it in front of you
# make test   all tests that this machine can run; GPU tests skip themselves and are counted
# make check  what CI runs: format, lint, types, import contracts, tests

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DEV_STAMP := $(VENV)/.installed-dev
EXAMPLE ?= examples/softmax_cross_entropy/model.py
PIP := $(BIN)/python -m pip --disable-pip-version-check

.PHONY: demo test check format wheel clean

demo: $(STAMP)
	@echo "== optimising $(EXAMPLE) on the CPU with the built-in autopilot"
	@$(BIN)/cuda-tui optimize $(EXAMPLE) --device cpu --model autopilot --approve auto

test: $(DEV_STAMP)
	@$(BIN)/python -m pytest

check: $(DEV_STAMP)
	@echo "== format and lint" && $(BIN)/ruff format --check . && $(BIN)/ruff check .
	@echo "== types" && $(BIN)/mypy
	@echo "== import contracts" && $(BIN)/lint-imports
	@echo "== tests" && $(BIN)/python -m pytest

format: $(DEV_STAMP)
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

wheel: $(DEV_STAMP)
	@$(PIP) wheel --no-deps --wheel-dir dist .

$(VENV)/bin/python:
	@echo "== making $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "cuda-tui needs Python 3.11 or later: make PYTHON=python3.12 ...")'
	@$(PYTHON) -m venv $(VENV)

$(STAMP): $(VENV)/bin/python pyproject.toml constraints.txt
	@echo "== installing cuda-tui and PyTorch into $(VENV) (pinned by constraints.txt; a minute or two, once)"
	@$(PIP) install --quiet --constraint constraints.txt torch
	@$(PIP) install --quiet --constraint constraints.txt --editable .
	@touch $@

$(DEV_STAMP): $(STAMP)
	@echo "== installing the test tools"
	@$(PIP) install --quiet --constraint constraints.txt \
		pytest pytest-asyncio pytest-timeout pytest-textual-snapshot ruff mypy import-linter llmock cairosvg
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache
