# Everything runs inside .venv; every target installs what it needs first.
#   make demo PYTHON=/path/to/python3.12     picks the interpreter for a new .venv

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint bench solver relations cohort prepare simulate postgres clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(VENV)/.installed ## make .venv and install daniel with its command

$(BIN)/python:
	@command -v "$(PYTHON)" >/dev/null || { \
	  echo "daniel needs Python 3.11 or newer, and '$(PYTHON)' was not found: run 'make install PYTHON=/path/to/python3'." >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "daniel needs Python 3.11 or newer, and '$(PYTHON)' is $$("$(PYTHON)" -c 'import platform; print(platform.python_version())'): run 'make install PYTHON=/path/to/python3.11'." >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# The stamp is newer than pyproject.toml: nothing to install. The package itself is editable.
$(VENV)/.installed: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet --editable '.[dev]'
	@touch $@

$(VENV)/.rivals: $(VENV)/.installed
	$(PIP) install --quiet --editable '.[rivals]' || echo "gensim could not be installed: the word2vec row will be left out."
	@touch $@

demo: $(VENV)/.installed ## a simulated two-site study, from records to nearest codes
	@$(BIN)/daniel demo

test: lint postgres ## lint, types and the test suite
	$(BIN)/python -m pytest

lint: $(VENV)/.installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# A real server for the tests of `daniel prepare`; without one, and where it cannot be installed, they skip.
postgres:
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	    { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends postgresql >/dev/null; }; } || \
	  echo "PostgreSQL could not be installed: its tests are skipped."

bench: $(VENV)/.installed ## speed: one gradient sweep against its bare matrix products
	@mkdir -p results
	$(BIN)/python -m benchmarks.sweep | tee results/sweep.txt
	@echo
	@echo "The quality table: make relations  (python -m benchmarks.relations)"

solver: $(VENV)/.installed ## speed: the default solver against the paper's descent
	$(BIN)/python -m benchmarks.solver | tee results/solver.txt

relations: $(VENV)/.rivals ## quality: known-pair AUC of daniel and every rival
	$(BIN)/python -m benchmarks.relations

cohort: $(VENV)/.installed ## synthetic hospitals of the paper's size: time, memory, figure
	$(BIN)/python -m benchmarks.cohort

prepare: $(VENV)/.installed ## speed: 50 million events to records, against a bare SELECT DISTINCT
	$(BIN)/python -m benchmarks.prepare | tee results/prepare.txt

simulate: $(VENV)/.installed ## the paper's simulation study, about an hour and a half on two cores
	$(BIN)/daniel simulate --jobs 2

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
