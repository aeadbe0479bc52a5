#!/bin/sh
# Everything that needs an NVIDIA GPU, on a machine that has one, with a summary in the end. A compiler is not needed:
# what needs one is skipped, as is what needs two GPUs, PyTorch, CuPy or compute-sanitizer where they are not there.
#   PYTHON=python3 tests/run_on_gpu.sh [DEVICE]
cd "$(dirname "$0")/.." || exit 1
PYTHON=${PYTHON:-.venv/bin/python}
DEVICE=${1:-cuda:0}
SANITIZER=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
summary=""
status=0

step() {
    name=$1
    shift
    echo "== $name"
    if "$@"; then summary="$summary
  pass  $name"; else summary="$summary
  FAIL  $name"; status=1; fi
}

step "pytest -m cuda" "$PYTHON" -m pytest -q -m cuda -rsf -p no:cacheprovider tests/unit/runtime/drivers/cuda
step "conformance of $DEVICE" "$PYTHON" -m motet.runtime.conformance "$DEVICE" --times
if [ -x "$SANITIZER" ]; then
    step "compute-sanitizer memcheck" "$SANITIZER" --tool memcheck --error-exitcode 1 --leak-check no \
        "$PYTHON" -m tests.unit.runtime.drivers.cuda.sanitized "$DEVICE"
    step "compute-sanitizer memcheck, products by cuBLASLt" "$SANITIZER" --tool memcheck --error-exitcode 1 \
        --leak-check no "$PYTHON" -m tests.unit.runtime.drivers.cuda.sanitized_products "$DEVICE"
else
    summary="$summary
  skip  compute-sanitizer: not installed"
fi
echo "summary$summary"
exit $status
