# Two commands on a fresh machine with Python 3.11+, make and git: `make demo` and `make test`.
# Each makes .venv once; it is made anew when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := events projections services
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/python -m pip --quiet install --constraint constraints.txt

.DEFAULT_GOAL := help
.PHONY: help bench bench-short demo estimate eval test test-long faults coverage mutation lint types imports format up clean

help:
	@echo "make demo       the story of foldlog in under a minute, on a server of its own"
	@echo "make test       style, types, layers and tests"
	@echo "make test-long  the generated histories, many more of them"
	@echo "make faults     fifty schedules of faults on one server and fifty on three, some 40 minutes"
	@echo "make eval       one task four ways: what compaction costs, and what it loses"
	@echo "make bench      every benchmark beside what a user would take instead, some ten minutes"
	@echo "make estimate   how far the estimate of tokens is off, on FOLDLOG_CORPUS"
	@echo "make coverage   the branches of projections/ that no test takes: there are to be none"
	@echo "make mutation   faults put into the fold that no test notices, an hour; see docs/mutation.md"
	@echo "make up         a server, a projector and a compactor on your data folder"
	@echo "make format     lay out the code as make test wants it"
	@echo "make clean      remove the virtual environment and caches"

demo: $(VENV)/.installed-server
	@$(BIN)/foldlog demo

eval: $(VENV)/.installed-server
	@$(BIN)/python -m benchmarks.eval

# The peers want other versions than the tests do, so they have an environment of their own.
BENCH := $(VENV)-bench

bench: $(BENCH)/.installed
	@$(BENCH)/bin/python -m benchmarks --plots docs

bench-short: $(VENV)/.installed-server
	@$(BIN)/python -m benchmarks --short

$(BENCH)/.installed: pyproject.toml constraints-bench.txt
	@echo "installing foldlog and its peers into $(BENCH)"
	@$(PYTHON) -m venv --clear $(BENCH)
	@PIP_DISABLE_PIP_VERSION_CHECK=1 $(BENCH)/bin/python -m pip --quiet install \
		--constraint constraints-bench.txt --editable '.[server,bench]'
	@touch $@

estimate: $(VENV)/.installed-server
	@$(BIN)/python -m benchmarks.estimate

up: $(VENV)/.installed-server
	@$(BIN)/foldlog up

test: lint types imports
	@$(BIN)/python -m pytest

test-long: $(VENV)/.installed-dev
	@FOLDLOG_EXAMPLES=20000 $(BIN)/python -m pytest --timeout=3600

faults: $(VENV)/.installed-dev
	@$(BIN)/python -m tests.faults --runs 50 --nodes 1 --nodes 3

coverage: $(VENV)/.installed-dev
	@FOLDLOG_EXAMPLES=50 $(BIN)/coverage run -m pytest
	@$(BIN)/coverage report

# Mutants are made in a copy, which has the fold and its tests in it and nothing else to break.
mutation: $(VENV)/.installed-dev
	@$(PIP) cosmic-ray
	@rm -rf build/mutation && mkdir -p build/mutation
	@git ls-files events projections services tests pyproject.toml | tar cf - -T - \
		| tar xf - -C build/mutation
	@cd build/mutation && export PATH="$(abspath $(BIN)):$$PATH" FOLDLOG_EXAMPLES=60 \
		PYTHONPATH=events:projections:services \
		&& cosmic-ray init tests/mutation.toml mutants.sqlite \
		&& cosmic-ray exec tests/mutation.toml mutants.sqlite \
		&& cr-report --show-diff --surviving-only mutants.sqlite

lint: $(VENV)/.installed-dev
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	@$(BIN)/mypy

imports: $(VENV)/.installed-dev
	@$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

# The build backend comes from the same pinned list, so that pip fetches no other version of it.
$(VENV)/.python: constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "foldlog needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv --clear $(VENV)
	@$(PIP) hatchling editables
	@touch $@

$(VENV)/.installed-server: $(VENV)/.python pyproject.toml
	@echo "installing foldlog and its server into $(VENV)"
	@$(PIP) --no-build-isolation --editable '.[server]'
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.python pyproject.toml
	@echo "installing foldlog and the tools of its tests into $(VENV)"
	@$(PIP) --no-build-isolation --editable '.[server,openai,anthropic,dev]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-bench build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
