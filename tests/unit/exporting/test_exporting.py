"""Functions exported as firmware run where nothing of Motet is; exported as C they link, and compute the same."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import motet
from motet import builder as mb
from motet.artifact import Artifact
from motet.errors import CallError, OptionError
from motet.exporting.c_source import export_c
from motet.exporting.firmware import Firmware, export_firmware
from motet.exporting.static import find_variant, make_static
from motet.runtime.drivers.riscv.protocol import DRAM, Status

pytestmark = pytest.mark.usefixtures("all_levels")

QEMU = "qemu-system-riscv64"
needs_qemu = pytest.mark.skipif(shutil.which(QEMU) is None, reason=f"{QEMU} is not installed; install qemu-system-misc")
needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed")

DYNAMIC = """
func.func @main(%x: tensor<?x5xf32>) -> tensor<?x5xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x5xf32>
  %empty = tensor.empty(%n) : tensor<?x5xf32>
  %sum = linalg.add ins(%x, %x : tensor<?x5xf32>, tensor<?x5xf32>) outs(%empty : tensor<?x5xf32>) -> tensor<?x5xf32>
  return %sum : tensor<?x5xf32>
}
"""
_random = np.random.default_rng(7)
W1 = (_random.standard_normal((37, 29)) / 6).astype(np.float32)
W2 = (_random.standard_normal((29, 5)) / 5).astype(np.float32)
BIAS = _random.standard_normal(29).astype(np.float32)


def _layers() -> mb.Graph:
    with mb.Graph("main") as g:
        hidden = mb.relu(g.input("x", (13, 37)) @ g.constant(W1) + g.constant(BIAS))
        g.result(mb.softmax(hidden @ g.constant(W2)), "y")
        g.result(mb.cast(mb.reduce_sum(hidden, axes=1), "i32"), "count")
    return g


def _expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(x.astype(np.float64) @ W1 + BIAS, 0)
    e = np.exp(hidden @ W2)
    return e / e.sum(-1, keepdims=True), hidden.sum(1).astype(np.int32)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return motet.compile(_layers(), devices={"": "riscv{cpu=rv64gcv128+rv64gc}"})


# -- firmware ----------------------------------------------------------------------------------------


class Board:
    """A machine that was started with firmware, and nothing else."""

    def __init__(self, process: subprocess.Popen[bytes], memory: np.ndarray, firmware: Firmware) -> None:
        self.process = process
        self.memory = memory
        self.symbols = firmware.symbols

    def hear(self) -> bytes:
        assert self.process.stdout is not None
        return self.process.stdout.read(1)

    def ring(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b".")
        self.process.stdin.flush()

    def at(self, symbol: str, shape: tuple[int, ...], dtype: type) -> np.ndarray:
        begin = self.symbols[symbol] - DRAM
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        return self.memory[begin : begin + size].view(dtype).reshape(shape)


@contextmanager
def _started(firmware: Firmware, folder: Path, harts: int, cpu: str) -> Iterator[Board]:
    image, memory = folder / "program.elf", folder / "memory"
    image.write_bytes(firmware.image)
    memory.write_bytes(b"\xcb" * firmware.memory)  # a board's memory is not clear when it starts
    process = subprocess.Popen(
        [
            QEMU, "-M", "virt,memory-backend=ram", "-m", f"{firmware.memory >> 20}M", "-cpu", cpu, "-smp", str(harts),
            "-object", f"memory-backend-file,id=ram,mem-path={memory},size={firmware.memory},share=on",
            "-bios", "none", "-display", "none", "-monitor", "none", "-serial", "stdio", "-kernel", str(image),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
    )
    try:
        yield Board(process, np.memmap(memory, np.uint8), firmware)
    finally:
        process.kill()
        process.wait()


@needs_qemu
@pytest.mark.parametrize(
    ("target", "harts", "cpu"), [("riscv", 2, "rv64,v=true,vext_spec=v1.0,vlen=256"), ("riscv:rv64gc", 1, "rv64")]
)
def test_firmware_computes_when_it_starts_and_again_when_asked(
    artifact: Artifact, target: str, harts: int, cpu: str, tmp_path: Path
):
    function = make_static(artifact, artifact.functions["main"], find_variant(artifact, target), {})
    x = np.random.default_rng(1).standard_normal((13, 37)).astype(np.float32)
    firmware = export_firmware(function, harts, 48 << 20, [x])
    with _started(firmware, tmp_path, harts, cpu) as board:
        assert board.hear() == b"B"
        for turn in range(1, 4):
            assert board.hear() == b"D"
            assert board.at("motet_completed", (), np.uint64) == turn
            y, count = _expected(board.at("motet_input_x", (13, 37), np.float32).copy())
            np.testing.assert_allclose(board.at("motet_result_y", (13, 5), np.float32), y, 1e-5, 1e-6)
            np.testing.assert_array_equal(board.at("motet_result_count", (13,), np.int32), count)
            board.at("motet_input_x", (13, 37), np.float32)[...] *= -0.5
            board.at("motet_result_y", (13, 5), np.float32)[...] = np.nan
            board.at("motet_head", (1,), np.uint64)[0] = turn + 1
            board.ring()
        assert board.at("motet_status", (1,), np.uint32)[0] == Status.OK


@needs_qemu
def test_firmware_of_a_program_with_extents_of_run_time(tmp_path: Path):
    artifact = motet.compile(DYNAMIC, devices={"": "riscv{cpu=rv64gc}"})
    signature, variant = artifact.functions["main"], find_variant(artifact, "rv64gc")
    (name,) = [symbol.name for symbol in signature.symbols]
    firmware = export_firmware(make_static(artifact, signature, variant, {name: 3}), 1, 40 << 20)
    with _started(firmware, tmp_path, 1, "rv64") as board:
        assert board.hear() + board.hear() == b"BD"
        result = next(symbol for symbol in firmware.symbols if symbol.startswith("motet_result"))
        np.testing.assert_array_equal(board.at(result, (3, 5), np.float32), np.zeros((3, 5)))
    wrong = (({}, f"axis 0.*--extent {name}=N"), ({name: 3, "z": 1}, "no extent z"), ({name: -1}, "0 or more"))
    for extents, words in wrong:
        with pytest.raises(OptionError, match=words):
            make_static(artifact, signature, variant, extents)


def test_what_cannot_be_firmware(artifact: Artifact):
    variant = find_variant(artifact, "riscv")
    function = make_static(artifact, artifact.functions["main"], variant, {})
    with pytest.raises(CallError, match="x: 3x37xfloat32 given; 13x37xfloat32 expected"):
        export_firmware(function, 1, 48 << 20, [np.zeros((3, 37), np.float32)])
    with pytest.raises(OptionError, match=r"no code for host; there is for: riscv:rv64gcv128, riscv:rv64gc"):
        find_variant(artifact, "host")
    host = motet.compile(_layers(), devices={"": "host{cpu=x86-64-v3}"})
    static = make_static(host, host.functions["main"], find_variant(host, "host"), {})
    with pytest.raises(OptionError, match="expected a target of the family riscv"):
        export_firmware(static, 1, 48 << 20)


# -- C ---------------------------------------------------------------------------------------------


def _native() -> str:
    return {"x86_64": "x86-64-v3", "aarch64": "aarch64", "riscv64": "riscv64"}[os.uname().machine]


def _link(artifact: Artifact, name: str, folder: Path, extents: dict[str, int]) -> Callable[..., int]:
    """The function, compiled by the system's C compiler and loaded."""
    signature = next(iter(artifact.functions.values()))
    function = make_static(artifact, signature, artifact.manifest.variants[0], extents)
    files = export_c(function, name).files
    for file, content in files.items():
        (folder / file).write_bytes(content)
    objects = [file for file in files if file.endswith(".o")]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-o", "lib.so"]
    subprocess.run(["cc", *flags, f"{name}.c", *objects, "-lm"], cwd=folder, check=True, timeout=240)
    return ctypes.CDLL(str(folder / "lib.so"))[name]


@needs_cc
def test_exported_c_computes_what_the_program_says(tmp_path: Path):
    artifact = motet.compile(_layers(), devices={"": f"host{{cpu={_native()}}}"})
    function = _link(artifact, "model", tmp_path, {})
    for seed in range(3):
        x = np.random.default_rng(seed).standard_normal((13, 37)).astype(np.float32)
        y, count = np.full((13, 5), np.nan, np.float32), np.zeros(13, np.int32)
        function(*[ctypes.c_void_p(array.ctypes.data) for array in (x, y, count)])
        expected_y, expected_count = _expected(x)
        np.testing.assert_allclose(y, expected_y, 1e-5, 1e-6)
        np.testing.assert_array_equal(count, expected_count)
    header = (tmp_path / "model.h").read_text()
    assert "void model(const float *x, float *y, int32_t *count);" in header


ROWS = """
#rows = affine_map<(i, j) -> (i)>
#all = affine_map<(i, j) -> (i, j)>
func.func @main(%table: tensor<8x4xf32>, %which: tensor<3xi64>) -> tensor<3x4xf32> {
  %empty = tensor.empty() : tensor<3x4xf32>
  %rows = linalg.generic {indexing_maps = [#rows, #all], iterator_types = ["parallel", "parallel"]}
      ins(%which : tensor<3xi64>) outs(%empty : tensor<3x4xf32>) {
  ^bb0(%one: i64, %out: f32):
    %i = arith.index_cast %one : i64 to index
    %j = linalg.index 1 : index
    %element = tensor.extract %table[%i, %j] : tensor<8x4xf32>
    linalg.yield %element : f32
  } -> tensor<3x4xf32>
  return %rows : tensor<3x4xf32>
}
"""


@needs_cc
def test_exported_c_returns_the_check_that_failed(tmp_path: Path):
    function = _link(motet.compile(ROWS, devices={"": f"host{{cpu={_native()}}}"}), "rows", tmp_path, {})
    table = _random.standard_normal((8, 4)).astype(np.float32)
    out = np.zeros((3, 4), np.float32)
    for which, failed in (([1, 7, 0], 0), ([1, 8, 0], 1), ([-1, 0, 0], 1), ([2, 2, 2], 0)):
        indices = np.array(which, np.int64)
        assert function(*[ctypes.c_void_p(array.ctypes.data) for array in (table, indices, out)]) == failed
        if not failed:
            np.testing.assert_array_equal(out, table[indices])
    texts = (ctypes.c_char_p * 1).in_dll(ctypes.CDLL(str(tmp_path / "lib.so")), "rows_checks")
    assert b"tensor.extract" in texts[0]


@needs_cc
def test_exported_c_of_extents_of_run_time_and_names_that_c_does_not_allow(tmp_path: Path):
    text = DYNAMIC.replace("%x: tensor<?x5xf32>)", '%x: tensor<?x5xf32> {ml_program.identifier = "int"})')
    artifact = motet.compile(text, devices={"": f"host{{cpu={_native()}}}"})
    (name,) = [symbol.name for symbol in artifact.functions["main"].symbols]
    function = _link(artifact, "double_it", tmp_path, {name: 7})
    x = np.random.default_rng(0).standard_normal((7, 5)).astype(np.float32)
    y = np.empty_like(x)
    function(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(y.ctypes.data))
    np.testing.assert_array_equal(y, x + x)


# -- the command -------------------------------------------------------------------------------------


def test_the_command_writes_what_was_asked_for(artifact: Artifact, tmp_path: Path):
    artifact.save(tmp_path / "model.motet")

    def export(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "motet", "export", "model.motet", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)

    done = export("--target", "riscv", "--format", "elf", "--harts", "2", "--input", "13x37xf32=1")
    assert done.returncode == 0 and "motet_input_x" in done.stdout, done.stderr
    assert (tmp_path / "model.elf").read_bytes()[:4] == b"\x7fELF"
    assert export("--target", "rv64gc", "--format", "c", "-o", "out/net").returncode == 0
    assert {"net.c", "net.h", "net.constants"} <= {file.name for file in (tmp_path / "out" / "net").iterdir()}
    for arguments, words in itertools.chain(
        [(("--target", "riscv", "--format", "exe"), "expected one of elf, bin, hex, c")],
        [(("--target", "host", "--format", "c"), "no code for host")],
        [(("--target", "riscv", "--format", "c", "--input", "f32=1"), "of no use to C")],
        [(("--target", "riscv", "--format", "elf", "--extent", "n"), "expected NAME=N")],
    ):
        failed = export(*arguments)
        assert failed.returncode == 1 and words in failed.stderr, failed.stderr
