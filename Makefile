# The first target that needs it makes .venv with any Python 3.11 or newer; PYTHON=… names another one.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
BIN    := .venv/bin
READY  := .venv/ready
STAMP  := .venv/installed
JOBS   ?= $(shell expr $$(nproc 2> /dev/null || echo 3) + 1)

# What is imported is compiled once, into folders of this clone alone. Where this variable is set, each process of the tests
# would compile the tests, and each that imports PyTorch would compile that, for several seconds.
unexport PYTHONDONTWRITEBYTECODE

# uv installs in seconds what takes pip minutes. It reads what pip's variables say of indices and folders with wheels.
INSTALL = $(if $(PIP_FIND_LINKS),UV_FIND_LINKS='$(PIP_FIND_LINKS)') $(if $(PIP_INDEX_URL),UV_INDEX_URL='$(PIP_INDEX_URL)') \
	$(if $(PIP_EXTRA_INDEX_URL),UV_EXTRA_INDEX_URL='$(PIP_EXTRA_INDEX_URL)') $(BIN)/uv pip install --quiet --python

.PHONY: run test test-changed test-all test-frameworks c-library bench bench-check bench-corpus conformance frameworks cpu-torch intel lint docs clean environment firmware
.DEFAULT_GOAL := run

environment: $(STAMP)

# Redone only when the dependencies change. `make run` needs the first of two steps alone.
$(READY): pyproject.toml
	@test -n "$(PYTHON)" || { echo "error: no Python 3.11 or newer found: install one, or give PYTHON=/path/to/python3" >&2; exit 1; }
	@test -x $(BIN)/python || { echo "making .venv with $(PYTHON)"; $(PYTHON) -m venv .venv; }
	@echo "installing uv"; $(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	@echo "installing Motet and what compiles ONNX models (0.6 GB)"; $(INSTALL) $(BIN)/python -e '.[cli,onnx]'
	@touch $@

$(STAMP): $(READY)
	@echo "installing what the tests and checks need (1.6 GB more)"; $(INSTALL) $(BIN)/python -e '.[test,lint]'
	@touch $@

build:
	@mkdir -p build

build/%.onnx: examples/models.py | $(READY) build
	$(BIN)/python examples/models.py $* $@

# Eight bits, with the ranges that activations have for one random image.
build/%_int8.onnx: build/%.onnx examples/quantise.py | $(STAMP)
	$(BIN)/python examples/quantise.py $< $@

# OpenVINO reads and writes its models; it is installed the first time.
OPENVINO := .venv/openvino

$(OPENVINO): pyproject.toml | $(STAMP)
	$(INSTALL) $(BIN)/python -e '.[openvino]'
	@touch $@

build/%.xml: examples/openvino_models.py | $(OPENVINO) build
	$(BIN)/python examples/openvino_models.py $* $@

# Compiles and runs real programs from end to end: a fragment in MLIR and a program for two devices (an emulated
# accelerator, or the host again where there is no emulator), checked against the oracle, then ResNet-18.
run: $(READY) build/resnet18.onnx
	$(BIN)/motet devices
	$(BIN)/motet compile examples/fragment.mlir -o build/fragment.motet
	$(BIN)/motet run examples/fragment.mlir --verify \
		--input 64x128xf32=random:1 --input 128x128xf32=random:2 --input 64x128xf32=0
	$(BIN)/motet bench build/fragment.motet
	$(BIN)/motet run examples/two_devices.mlir --input 64x128xf32=random:1 --verify
	$(BIN)/motet compile build/resnet18.onnx -o build/resnet18.motet
	$(BIN)/motet inspect build/resnet18.motet
	$(BIN)/motet run build/resnet18.motet --input 1x3x224x224xf32=random:0
	$(BIN)/motet bench build/resnet18.motet

# LEVELS="x86-64-v3 x86-64-v4" runs them for each of these levels of processors, as if this one had no more.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist worksteal -m 'not slow' --timeout 600  # seconds, for each test

test: $(STAMP)
	$(if $(LEVELS),set -e; for level in $(LEVELS); do echo "$$level:"; MOTET_MAX_CPU=$$level $(PYTEST); done,$(PYTEST))

# The tests that the changes since this branch left BASE (main) can reach, the nearest first, in about three minutes.
test-changed: $(STAMP)
	$(BIN)/python -m checks.changed $(if $(BASE),--base $(BASE))

test-all: $(STAMP)
	$(BIN)/python -m pytest -n $(JOBS)

# The peers are big; they are installed the first time. Takes some ten minutes on four cores.
PEERS := .venv/peers

$(PEERS): $(STAMP)
	$(INSTALL) $(BIN)/python torch==2.13.0
	$(INSTALL) $(BIN)/python -e '.[test,bench]'
	@touch $@

bench: $(PEERS) | build
	$(BIN)/python -m benchmarks.run --markdown build/benchmarks.md

# Instructions of compiled kernels beside benchmarks/instructions/counts.json, under valgrind, in some two minutes. Fails
# where a kernel runs 3 % more; `python -m benchmarks.instructions --update` writes new counts after an intended change.
bench-check: $(STAMP)
	$(BIN)/python -m benchmarks.instructions

# Some 290 operators and networks, one shard of them with CORPUS="--shard 1/4", thirty rows with CORPUS=--quick.
CORPUS ?=

bench-corpus: $(STAMP) | build
	$(INSTALL) $(BIN)/python -e '.[corpus]'
	$(BIN)/python -m benchmarks.corpus --folder build/corpus --markdown build/corpus.md $(CORPUS)

# PyTorch, JAX, transformers, timm and ONNX Runtime, in a separate environment that sees the packages of .venv.
# PyTorch for CUDA is several gigabytes. A build for processors alone, some two hundred megabytes, is preferred where
# pip's index or links have one, such as PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. timm and transformers need
# torchvision; where there is no build of it for processors, the module of torchvision_operators.pth makes the one for CUDA importable.
FRAMEWORKS := .frameworks
CPU_TORCH   = $(BIN)/python -m pip index versions torch 2>/dev/null | grep -oE '[0-9.]+\+cpu' | head -n 1

# Prints the version of that build, or an empty line.
cpu-torch: | $(STAMP)
	@echo "$$($(CPU_TORCH))"

frameworks: $(FRAMEWORKS)/installed

$(FRAMEWORKS)/installed: pyproject.toml conformance/torchvision_operators.py | $(STAMP)
	@test -x $(FRAMEWORKS)/bin/python || $(BIN)/python -m venv $(FRAMEWORKS)
	@there=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	here=$$($(FRAMEWORKS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))'); \
	echo "import site; site.addsitedir('$$there')" > $$here/motet-environment.pth; \
	cp conformance/torchvision_operators.py $$here; \
	echo "import torchvision_operators" > $$here/torchvision_operators.pth
	$(BIN)/python -c 'import tomllib; \
		print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["frameworks"], sep="\n")' \
		> $(FRAMEWORKS)/requirements.txt
	torch=$$($(CPU_TORCH)); $(INSTALL) $(FRAMEWORKS)/bin/python $${torch:+torch==$$torch} -r $(FRAMEWORKS)/requirements.txt
	$(FRAMEWORKS)/bin/python -c 'import timm, transformers, torchvision'
	@touch $@

# OpenVINO, and OpenCL platforms for processors, Intel's and PoCL: one gigabyte, in a separate environment. The driver finds them by
# files in .venv/etc/OpenCL/vendors. PIP_FIND_LINKS=… names a folder with the wheels where there is no network.
INTEL := .venv/intel
OPENCL = intel-opencl-rt==2026.* intel-cmplr-lib-rt==2026.* pyopencl==2026.* pocl-binary-distribution==3.*

# Triton for Intel's GPUs, which compiles programs for them; a build for Python 3.11, with a `triton` of its own.
XPU = triton-xpu==3.3.0b1 setuptools msgspec

intel: $(INTEL)/installed $(INTEL)/compiler $(OPENVINO)

$(INTEL)/installed: src/motet/runtime/drivers/opencl/environment.py | $(STAMP) $(OPENVINO)
	@test -x $(INTEL)/bin/python || $(BIN)/python -m venv $(INTEL)
	$(INSTALL) $(INTEL)/bin/python $(OPENCL)
	$(INTEL)/bin/python src/motet/runtime/drivers/opencl/environment.py $(INTEL) .venv
	@touch $@

$(INTEL)/compiler: src/motet/compiler/codegen/triton/compile/installation.py | $(INTEL)/installed
	@$(INTEL)/bin/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	{ echo "error: triton-xpu is for Python 3.11: python3.11 -m venv FOLDER; FOLDER/bin/pip install --pre $(XPU); export MOTET_INTEL=FOLDER" >&2; exit 1; }
	$(INSTALL) $(INTEL)/bin/python --prerelease allow $(XPU)
	@touch $@

# The tests that need a framework, which `make test` skips; FRAMEWORK_TESTS=… names some of them.
FRAMEWORK_TESTS ?= $$(grep -rlE 'importorskip\("(torch|jax|transformers|timm|onnxruntime|openvino)"' tests)

test-frameworks: $(FRAMEWORKS)/installed
	$(FRAMEWORKS)/bin/python -m pytest -n $(JOBS) --dist worksteal -m 'not slow' $(FRAMEWORK_TESTS)

# Public suites. The frameworks are installed the first time; suites that need one are skipped where that fails. StableHLO's
# tests are cloned, or found in the checkout MOTET_STABLEHLO=… Takes some forty minutes on two cores.
conformance: $(STAMP)
	-$(MAKE) frameworks
	$(BIN)/python -m conformance run
	$(BIN)/python -m conformance peer
	$(BIN)/python -m conformance report

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks conformance examples checks
	$(BIN)/python -m checks.structure
	$(BIN)/pyright

# The documentation as a site in build/site; a warning is an error.
DOCS := .venv/docs

$(DOCS): pyproject.toml | $(STAMP)
	$(INSTALL) $(BIN)/python -e '.[docs]'
	@touch $@

docs: $(DOCS)
	$(BIN)/python -m checks.site build/site

# The library for programs in C, and the example that runs an artifact with it: build/c/run build/resnet18.motet.
c-library: $(STAMP) | build
	$(BIN)/motet c-library -o build/c
	cc -O2 -Wall -Wextra examples/c/run.c -Ibuild/c -Lbuild/c -lmotet -Wl,-rpath,'$$ORIGIN' -o build/c/run

# Rebuilds the machine code that is part of the package: the host's executor, and what runs on the emulated accelerator
# and on microcontrollers; needs clang and compilers for RISC-V and Cortex-M (see there).
firmware: $(STAMP)
	$(MAKE) -C src/motet/runtime/drivers/host/executor PYTHON=$(CURDIR)/$(BIN)/python
	$(MAKE) -C src/motet/runtime/drivers/riscv/firmware PYTHON=$(CURDIR)/$(BIN)/python
	$(MAKE) -C src/motet/runtime/drivers/embedded/firmware PYTHON=$(CURDIR)/$(BIN)/python

clean:
	rm -rf build .pytest_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o \( -name __pycache__ -o -name Output \) -type d -print | xargs rm -rf
