# Everything runs inside .venv; every target installs what it needs first.
#   make demo PYTHON=/path/to/python3.12     picks the interpreter for a new .venv

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help install demo test lint tools bench solver relations clinical clusters cohort prepare federation network report large papersize dask race growth page simulate clean

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
	$(PIP) install --quiet --editable '.[rivals]' || echo "A rival could not be installed: its rows will be left out."
	@touch $@

demo: $(VENV)/.installed ## two synthetic hospitals, from events to one report (under three minutes)
	@$(BIN)/daniel demo

test: lint tools ## lint, types and the test suite; pictures of the report go to build/screenshots
	DANIEL_SCREENSHOTS=$${DANIEL_SCREENSHOTS:-$(CURDIR)/build/screenshots} $(BIN)/python -m pytest

lint: $(VENV)/.installed ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# What some tests hold daniel against: a PostgreSQL server, a browser, R. Without root they are not installed, and the tests that
# need them skip and say so. $(call tool,command that tells whether it is there,Debian packages,what it is called)
define tool
	@{ $(1); } >/dev/null 2>&1 || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  { apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $(2) >/dev/null 2>&1; }; } || \
	  echo "$(3) could not be installed: its tests are skipped."
endef

tools:
	$(call tool,command -v initdb || ls /usr/lib/postgresql/*/bin/initdb,postgresql,PostgreSQL)
	$(call tool,command -v chromedriver,chromium chromium-driver,Chromium)
	$(call tool,Rscript -e 'library(survival); library(rpart)',r-base-core r-cran-survival r-cran-rpart,R)

bench: $(VENV)/.installed ## speed: one gradient sweep against bare matrix products
	@mkdir -p results
	$(BIN)/python -m benchmarks.sweep | tee results/sweep.txt
	@echo
	@echo "The quality table: make relations  (python -m benchmarks.relations)"

solver: $(VENV)/.installed ## speed: the default solver against the paper's descent
	$(BIN)/python -m benchmarks.solver | tee results/solver.txt

relations: $(VENV)/.rivals ## quality: known-pair AUC of daniel and every rival; held-out likelihood
	$(BIN)/python -m benchmarks.relations
	$(BIN)/python -m benchmarks.likelihood

clinical: $(VENV)/.rivals ## quality: relations and phenotyping, every method in one table
	$(BIN)/python -m benchmarks.clinical
	$(BIN)/python -m benchmarks.targets
	$(BIN)/python -m benchmarks.cohorts

clusters: $(VENV)/.installed ## clusters and the planted hazard, and the negative control
	$(BIN)/python -m benchmarks.clusters

report: $(VENV)/.installed ## speed: the report with 20,000 codes in a real browser
	$(BIN)/python -m benchmarks.report | tee results/report.txt

federation: $(VENV)/.installed ## what privacy controls and rounds cost, the attack they stop
	$(BIN)/python -m benchmarks.attack
	$(BIN)/python -m benchmarks.federation
	$(BIN)/python -m benchmarks.rounds
	$(BIN)/python -m benchmarks.exchange
	$(BIN)/python -m benchmarks.sketch

network: $(VENV)/.installed ## one study over memory, folder and NVIDIA FLARE; large answers
	$(BIN)/python -m benchmarks.network

large: $(VENV)/.installed ## 20,000 codes: start, plain and sketched answers, finish
	$(BIN)/python -m benchmarks.large

papersize: $(VENV)/.installed ## the paper's 906,530 records on this machine: time and memory
	$(BIN)/python -m benchmarks.papersize

dask: $(VENV)/.installed ## the same fit here and on two Dask workers, one of which dies
	$(BIN)/python -m benchmarks.workers | tee results/dask.txt

race: $(VENV)/.rivals ## every method on every problem, hours; goes on where it stopped
	$(BIN)/python -m benchmarks.race

growth: $(VENV)/.installed ## time against records, codes and rank
	$(BIN)/python -m benchmarks.growth

page: $(VENV)/.installed ## docs/benchmarks.md from stored results
	$(BIN)/python -m benchmarks.page

cohort: $(VENV)/.installed ## synthetic hospitals of the paper's size: time, memory, figure
	$(BIN)/python -m benchmarks.cohort

prepare: $(VENV)/.installed ## speed: 50 million events to records, against a bare SELECT DISTINCT
	$(BIN)/python -m benchmarks.prepare | tee results/prepare.txt

simulate: $(VENV)/.installed ## the paper's simulation study, about an hour and a half on two cores
	$(BIN)/daniel simulate --jobs 2

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
