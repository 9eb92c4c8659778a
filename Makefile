# make demo    the whole job once, on real desktops with a real model server
# make test    lint, types and every test
# make bench   the benchmarks, one line per figure
# make lint    style and types only
# make clean   remove everything that was made here, except the run directories
# All of them set up what they need first (make setup); that is quick when nothing changed.

SHELL := /bin/bash
PYTHON := .venv/bin/python
PIP := $(PYTHON) -m pip --disable-pip-version-check -qq
# --foreground: Ctrl-C at the terminal must reach the command itself.
BOUNDED := timeout --foreground --kill-after=60

.PHONY: setup packages demo test bench lint clean
.DELETE_ON_ERROR:

setup: .venv/.project

packages:
	@test -n "$(SKIP_PACKAGES)" || tools/install_packages.sh

.venv/.cpu: tools/requirements-cpu.txt tools/install_python.sh $(wildcard tools/vllm_cpu/*.*) | packages
	@tools/install_python.sh
	@touch $@

.venv/.project: pyproject.toml .venv/.cpu
	@timeout 1200 $(PIP) install --constraint tools/requirements-cpu.txt --editable '.[dev]' </dev/null
	@touch $@

demo: setup
	@$(BOUNDED) 1800 $(PYTHON) tools/demo.py

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	timeout 900 $(PYTHON) -m mypy

test: lint
	$(BOUNDED) --signal=INT 4200 $(PYTHON) -m pytest

bench: setup
	@set -e; for bench in tests/bench/bench_*.py; do \
	  echo "== $$bench"; $(BOUNDED) 1800 $(PYTHON) "$$bench"; \
	done

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
