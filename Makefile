# The project's commands; `make` alone lists them.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
EXP ?= quickstart
# another wheel index for PyTorch, for example TORCH_INDEX=https://download.pytorch.org/whl/cpu
TORCH_INDEX ?=
# the tests of `make check`: one file for each part that is edited often
FAST := $(addprefix tests/,harness/experiment/test_file.py harness/config harness/bench/test_parity.py laws/test_tree.py \
	optim/test_schedule.py optim/test_orthogonalize.py harness/data/test_shards.py reports/stats/test_rules.py \
	reports/stats/test_simultaneous.py reports/page/test_page.py)

.PHONY: help install ablate report check test test-all proof mutation bench-runner bench traffic versions gpu-check docs clean

help:  ## list the commands
	@grep -hE '^[a-z%-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z%-]+):.*## /\1\t/' | expand -t 18

$(VENV)/.installed: pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer, or name it: make PYTHON=python3.12"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is too old: Python 3.11 or newer is needed, name one: make PYTHON=python3.12"; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) torch
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

install: $(VENV)/.installed  ## make .venv and install everything, pinned

ablate: install  ## run an experiment and write its report: make ablate EXP=quickstart (the default)
	@$(BIN)/ablate run $(EXP)

ablate-%: install  ## the same by name: make ablate-quickstart
	@$(BIN)/ablate run $*

report: install  ## write the report of EXP again from its results
	@$(BIN)/ablate report $(EXP)

check: install  ## format, lint, types and the fast tests, about a minute
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/pytest -m "not slow and not gpu and not browser" $(FAST)

test: install  ## all tests but the slow ones, 5 to 10 minutes on 2 cores
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not slow and not gpu and not browser and not slurm"

test-all: install  ## the slow tests and those that need a browser too, half an hour to an hour and a half
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not gpu"

docs: install  ## rewrite the generated documentation, the golden dumps of the presets, the kept pages and split cases of the tests
	$(BIN)/python -m harness.experiment.reference
	$(BIN)/python -m reports.reference
	$(BIN)/python -m tests.techniques
	$(BIN)/python -m tests.built_in
	$(BIN)/python -m tests.golden
	$(BIN)/python -m tests.kept_pages
	$(BIN)/python -m tests.kept_drawings
	$(BIN)/python -m tests.kept_words
	$(BIN)/python -m tests.split_cases
	$(BIN)/python -m tests.kept_lines

proof: install  ## the simulation study with 10,000 replications: writes its table into docs/statistics.md
	$(BIN)/python -m tests.proof

mutation: install  ## small sabotages that the tests should notice: make mutation PATHS="harness/store optim" N=60 SEED=1
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[mutation,ray]'
	nice $(BIN)/python -m tests.mutation $(PATHS) -n $(or $(N),400) --seed $(or $(SEED),0) $(if $(JOBS),--jobs $(JOBS)) $(MORE)

bench: install  ## the core against plain scripts of the same recipes: losses, step time, memory
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks $(if $(ROUNDS),--rounds $(ROUNDS))

# needs no install where there is a Python with torch, numpy and PyYAML
gpu-check:  ## accept a GPU machine: kernels, speed, memory, 200 steps; one JSON and one page (DRY=1: tiny, on a CPU)
	@$(if $(wildcard $(BIN)/python),$(BIN)/python,$(PYTHON)) -m harness.bench.gpu_check $(if $(DRY),--dry-run)

traffic: install  ## an H100's generated code, no GPU needed: r08 and r18 against the records' own and as binaries; the others to 18, r28, r85 (installs triton)
	@$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[traffic]'
	OMP_NUM_THREADS=1 ABLATE_REQUIRE_TRITON=1 $(BIN)/pytest -n 2 --dist load tests/harness/bench/test_traffic.py

versions:  ## the core, compilation, training and gpu-check dry with the oldest packages that pyproject.toml allows, and with the newest
	PYTHON=$(PYTHON) .ci/versions

bench-runner: install  ## what a run costs beside its training: warm and fresh workers, a shell loop, hydra; 10,000 finished runs
	$(BIN)/python -m tests.bench_runner --many 10000

clean:  ## remove the environment and caches; results and data stay
	rm -rf $(VENV) build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
