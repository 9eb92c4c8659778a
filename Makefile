# make demo    a tiny model learns on real desktops, from a real model server, in some ten minutes
# make collect-demo   the commands of the rollout side alone: probe, collect, export, profile
# make verl-demo  a few training steps of verl on real desktops, without a GPU
# make test    lint, types and every test
# make bench   the benchmarks, one line per figure, and the README's table of them
# make desktop-image    the image of container desktops, to the engine of DOCKER_HOST (as root)
# make lint    style and types only
# make clean   remove everything that was made here, except the run directories
# All of them set up what they need first (make setup); that is quick when nothing changed.

SHELL := /bin/bash
PYTHON := .venv/bin/python
# --foreground: Ctrl-C at the terminal must reach the command itself.
BOUNDED := timeout --foreground --kill-after=60

.PHONY: setup demo collect-demo verl-demo test bench desktop-image lint clean

# SKIP_PACKAGES=1 leaves the operating system's packages to you.
setup:
	@test -n "$(SKIP_PACKAGES)" || tools/install_packages.sh
	@tools/install_python.sh

demo: setup
	@$(BOUNDED) 3000 $(PYTHON) tools/learn.py

collect-demo: setup
	@$(BOUNDED) 1800 $(PYTHON) tools/collect_demo.py

desktop-image: setup
	@$(BOUNDED) 3000 $(PYTHON) -m legato.desktop.docker image --cache .cache/desktop-image

verl-demo: setup
	@$(BOUNDED) 1800 $(PYTHON) tools/verl_demo.py

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(BOUNDED) 900 $(PYTHON) -m mypy

test: lint
	@# Kept; no test's time limit should pay for these.
	$(PYTHON) tools/warm_start.py
	$(PYTHON) tools/press_warm_start.py
	$(PYTHON) -m legato.rl osworld-setup --path .cache/osworld
	$(BOUNDED) 1900 $(PYTHON) -m legato.desktop.docker files --cache .cache/desktop-image
	@# Real desktops race with a busy machine: what failed is run once more, alone; twice is a failure.
	$(BOUNDED) --signal=INT 4200 $(PYTHON) -m pytest || \
	  { echo "once more, what failed:"; \
	    $(BOUNDED) --signal=INT 1200 $(PYTHON) -m pytest --last-failed --last-failed-no-failures none; }

bench: setup
	@$(PYTHON) tools/bench.py --readme

clean:
	rm -rf .venv .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
