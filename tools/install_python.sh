#!/usr/bin/env bash
# Make .venv with the pinned trainers and model server of tools/requirements-cpu.txt.
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
  timeout --kill-after=30 2400 .venv/bin/python -m pip --disable-pip-version-check -qq "$@" \
    </dev/null
}

if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
  python=$(find_python)
  echo "Creating .venv with $("$python" --version)"
  timeout 300 "$python" -m venv --clear .venv
fi
echo "Installing torch, vLLM, verl and TRL for the CPU (a few minutes when nothing is cached)"
pip install --upgrade pip
pip install --requirement tools/requirements-cpu.txt
# CUDA builds that come along; vLLM tries to import the first two, and fails if it finds them.
pip uninstall --yes torchaudio torchcodec triton
pip install --no-deps --force-reinstall ./tools/vllm_cpu
