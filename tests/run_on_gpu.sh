#!/bin/sh
# Everything that needs an NVIDIA GPU, on a machine that has one. A compiler is not needed: what needs one is skipped.
#   PYTHON=python3 tests/run_on_gpu.sh [DEVICE]
set -e
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${1:-cuda:0}
"$PYTHON" -m pytest -m cuda -rs tests/unit/runtime/devices/cuda
"$PYTHON" -m motet.runtime.conformance "$DEVICE" --times
