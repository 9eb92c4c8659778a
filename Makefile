# make demo    the whole job once, on real desktops with a real model server
# make test    lint, types and every test
# make bench   the benchmarks, one line per figure, and the README's table of them
# make lint    style and types only
# make clean   remove everything that was made here, except the run directories
# All of them set up what they need first (make setup); that is quick when nothing changed.

SHELL := /bin/bash
PYTHON := .venv/bin/python
# --foreground: Ctrl-C at the terminal must reach the command itself.
BOUNDED := timeout --foreground --kill-after=60

.PHONY: setup demo test bench lint clean

# SKIP_PACKAGES=1 leaves the operating system's packages to you.
setup:
	@test -n "$(SKIP_PACKAGES)" || tools/install_packages.sh
	@tools/install_python.sh

demo: setup
	@$(BOUNDED) 1800 $(PYTHON) tools/demo.py

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(BOUNDED) 900 $(PYTHON) -m mypy

test: lint
	$(PYTHON) tools/warm_start.py # kept; no test's time limit should pay for the training
	@# Real desktops race with a busy machine: what failed is run once more, alone; twice is a failure.
	$(BOUNDED) --signal=INT 3600 $(PYTHON) -m pytest || \
	  { echo "once more, what failed:"; \
	    $(BOUNDED) --signal=INT 1200 $(PYTHON) -m pytest --last-failed --last-failed-no-failures none; }

bench: setup
	@$(PYTHON) tools/bench.py --readme

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
