#!/usr/bin/env bash
# Make .venv: the pinned trainers and model server of tools/requirements-cpu.txt, then this package
# with its development tools. Does only what is out of date; an interrupted run starts afresh.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
  local candidate
  for candidate in python3.11 python3.12 python3 /usr/bin/python3; do
    if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "No Python 3.11 or 3.12 with the venv module: install one, then run make again." >&2
  return 1
}

pip() {
  timeout --foreground --kill-after=30 2400 .venv/bin/python -m pip --disable-pip-version-check -qq "$@" \
    </dev/null
}

out_of_date() { # out_of_date STAMP FILE...
  local file
  for file in "${@:2}"; do
    [[ $1 -nt $file ]] || return 0
  done
  return 1
}

# A pip that was killed can leave a package that looks installed and is not whole.
partial=.venv/.partial
if [[ -e $partial ]] || ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  echo "Creating .venv with $("$python" --version)"
  timeout --foreground 300 "$python" -m venv --clear .venv
fi

if out_of_date .venv/.cpu tools/requirements-cpu.txt tools/vllm_cpu/*.*; then
  echo "Installing torch, vLLM, verl and TRL for the CPU (a few minutes when nothing is cached)"
  touch $partial
  pip install --upgrade pip
  if ! pip install --requirement tools/requirements-cpu.txt; then
    echo "If pip says above that torch has no matching version: these are PyTorch's CPU wheels," \
      "which not every index has. Name one that does in PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS." >&2
    exit 1
  fi
  # CUDA builds that come along; vLLM tries to import the first two, and fails if it finds them.
  pip uninstall --yes torchaudio torchcodec triton
  pip install --no-deps --force-reinstall ./tools/vllm_cpu
  touch .venv/.cpu
  rm $partial
fi

if out_of_date .venv/.project pyproject.toml tools/requirements-sandboxes.txt .venv/.cpu; then
  echo "Installing legatolabs and its development tools"
  touch $partial
  pip install --no-deps --requirement tools/requirements-sandboxes.txt
  pip install --constraint tools/requirements-cpu.txt --editable '.[dev]'
  touch .venv/.project
  rm $partial
fi
