"""The library for programs in C: what it computes is what sessions in Python compute; what it cannot run it refuses."""

from __future__ import annotations

import ctypes
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import ml_dtypes
import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.integration.c_calls import CError, CLibrary, CTensor, tensor_of
from tests.integration.conftest import ADD, ROOT, ROWS
from tests.unit.artifact.test_damage import forged
from tests.unit.exporting.test_exporting import ROWS as LOOKUP

import motet
from motet import builder as mb
from motet.artifact import Artifact
from motet.artifact.archive import hashed, write_archive
from motet.artifact.contracts import CONTRACTS, seal
from motet.artifact.reader import MANIFEST, PARAMETERS
from motet.artifact.schema import SCHEMA_VERSION
from motet.artifact.writer import write_artifact
from motet.c_library.build import build_library
from motet.cpu_features import machine
from motet.errors import CallError, OptionError

pytestmark = [
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler is installed"),
    pytest.mark.skipif(machine() != "x86_64", reason="the library is for x86-64"),
]
random = np.random.default_rng(3)


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> CLibrary:
    return CLibrary.load(build_library(tmp_path_factory.mktemp("c"), flags=("-Wall", "-Wextra", "-Werror")))


# -- programs ----------------------------------------------------------------------------------------


def layers() -> mb.Graph:
    with mb.Graph("main") as g:
        hidden = mb.relu(g.input("x", (13, 37)) @ g.constant(normal(37, 129)) + g.constant(normal(129)))
        g.result(mb.softmax(hidden @ g.constant(normal(129, 5))), "y")
        g.result(mb.cast(mb.reduce_sum(hidden, axes=1), "i32"), "count")
    return g


def network() -> mb.Graph:
    with mb.Graph("main") as g:
        x = g.input("image", (2, 3, 33, 35))
        for number, channels in enumerate((16, 24)):
            kernel = g.constant(normal(channels, x.shape[1], 3, 3) / 9, f"kernel{number}")
            x = mb.max_pool2d(mb.relu(mb.conv2d(x, kernel, padding=1)), 2, 2)
        g.result(mb.reduce_mean(x, axes=(2, 3)) @ g.constant(normal(24, 10)), "scores")
    return g


def encoder() -> mb.Graph:
    """Attention and normalisation over a dynamic number of rows, and of their length."""
    with mb.Graph("main") as g:
        x = g.input("x", ("batch", "length", 32))
        q, k, v = (x @ g.constant(normal(32, 32) / 6, name) for name in "qkv")
        seen = mb.softmax(mb.matmul(q, k, transpose_rhs=True) * 0.2) @ v
        g.result(mb.layernorm(x + seen, g.constant(normal(32)), g.constant(normal(32))), "y")
        g.result(mb.reduce_max(seen, axes=(1,)), "most")
    return g


def short_types() -> mb.Graph:
    with mb.Graph("main") as g:
        for name in ("f64", "f16", "bf16", "i64", "i8", "ui8", "ui32"):
            x = g.input(name, (3, 17), name)
            g.result(mb.transpose(x), f"{name}_turned")
        g.result(mb.greater(g.input("a", (5,)), 0.0), "positive")
    return g


def recurrence() -> bytes:
    nodes = [helper.make_node("LSTM", ["x", "w", "r"], ["y", "h"], hidden_size=16)]
    weights = [onnx.numpy_helper.from_array(normal(1, 64, size) / 4, name) for size, name in ((8, "w"), (16, "r"))]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["steps", 2, 8])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["steps", 1, 2, 16]),
               helper.make_tensor_value_info("h", TensorProto.FLOAT, [1, 2, 16])]
    graph = helper.make_graph(nodes, "main", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model.SerializeToString()


def reshaped() -> bytes:
    """Extents follow from the values of an input, and from the number of elements that are not zero."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"]), helper.make_node("NonZero", ["x"], ["places"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 6]),
              helper.make_tensor_value_info("shape", TensorProto.INT64, [2])]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
               helper.make_tensor_value_info("places", TensorProto.INT64, None)]
    graph = helper.make_graph(nodes, "main", inputs, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model.SerializeToString()


def sparse(n: int) -> np.ndarray:
    return normal(n, 6) * (bits(n, 6) > 0)


IN_PLACE = """
func.func @main(%x: memref<?x9xf32>, %y: memref<?x9xf32>) {
  linalg.add ins(%x, %y : memref<?x9xf32>, memref<?x9xf32>) outs(%y : memref<?x9xf32>)
  return
}
"""


@dataclass(frozen=True)
class CProgram:
    source: Callable[[], object]
    inputs: Callable[[], list[list[np.ndarray]]]  # of several calls
    function: str = ""
    options: dict[str, str] = field(default_factory=dict[str, str])


def bits(*shape: int) -> np.ndarray:
    return random.integers(-99, 99, shape)


def short_inputs() -> list[list[np.ndarray]]:
    kinds = (np.float64, np.float16, ml_dtypes.bfloat16, np.int64, np.int8, np.uint8, np.uint32)
    return [[*(np.abs(bits(3, 17)).astype(kind) for kind in kinds), normal(5)]]


PROGRAMS = {
    "add": CProgram(lambda: ADD, lambda: [[normal(3, 5), normal(3, 5)]]),
    "layers": CProgram(layers, lambda: [[normal(13, 37)] for _ in range(3)]),
    "network": CProgram(network, lambda: [[normal(2, 3, 33, 35)]]),
    "external": CProgram(layers, lambda: [[normal(13, 37)]]),
    "rows": CProgram(lambda: ROWS, lambda: [[normal(rows, 4)] for rows in (3, 0, 1, 257, 3)]),
    "integers": CProgram(lambda: ROWS, lambda: [[bits(6).astype(np.int32)]], "square"),
    "encoder": CProgram(encoder, lambda: [[normal(b, n, 32)] for b, n in ((2, 5), (1, 1), (3, 40), (0, 4), (2, 5))]),
    "types": CProgram(short_types, short_inputs),
    "lookup": CProgram(lambda: LOOKUP, lambda: [[normal(8, 4), np.array([7, 0, 3])]]),
    "recurrence": CProgram(recurrence, lambda: [[normal(steps, 2, 8)] for steps in (4, 1, 9)]),
    "in place": CProgram(lambda: IN_PLACE, lambda: [[normal(n, 9), normal(n, 9)] for n in (4, 0, 65)]),
    "reshaped": CProgram(reshaped, lambda: [[sparse(n), np.array(shape)] for n, shape in
                                           ((4, (8, 3)), (4, (-1, 2)), (0, (0, 5)), (3, (18, 1)), (4, (8, 3)))]),
    "integers in layers": CProgram(layers, lambda: [[normal(13, 37)]], options={"precision": "int8"}),
}


def write_beside(artifact: Artifact, path: Path) -> None:
    """Writes an artifact with its parameters in a file of their own."""
    keys = [parameter.key for parameter in artifact.manifest.parameters]
    members = {name: bytes(artifact.member(name)) for name in artifact.manifest.members if name != PARAMETERS}
    parameters = {key: artifact.parameter(number) for number, key in enumerate(keys)}
    write_artifact(artifact.manifest, members, parameters, path, external_parameters=True)
    assert len([*path.parent.glob("external*")]) == 2


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The artifact of a program, which is compiled once."""
    folder, done = tmp_path_factory.mktemp("programs"), dict[str, Path]()

    def compile(name: str) -> Path:
        if name not in done:
            program = PROGRAMS[name]
            done[name] = folder / f"{name.replace(' ', '_')}.motet"
            artifact = motet.compile(program.source(), options=program.options)
            artifact.save(done[name])
            if name == "external":
                write_beside(artifact, done[name])
        return done[name]

    return compile


SLOW = ("recurrence", "integers in layers")


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in PROGRAMS])
def test_results_are_those_of_sessions(library: CLibrary, compiled: Callable[[str], Path], name: str, threads: int):
    program, artifact = PROGRAMS[name], library.open(compiled(name), threads)
    with motet.load(compiled(name)) as session:
        function = session.functions[program.function or next(iter(session.functions))]
        for inputs in program.inputs():
            copies = [array.copy() for array in inputs]
            expected = function(*copies)
            expected = expected if isinstance(expected, tuple) else () if expected is None else (expected,)
            results = artifact(*inputs, name=function.name)
            for own, other in zip([*inputs, *results], [*copies, *expected], strict=True):
                assert own.dtype == other.dtype and own.shape == other.shape
                np.testing.assert_array_equal(own.view(np.uint8), other.view(np.uint8))
    artifact.close()


@pytest.mark.slow
@pytest.mark.parametrize("levels", ["x86-64-v3", "native", "x86-64-v4-amx+x86-64-v4-bf16+x86-64-v4+x86-64-v3"])
def test_code_is_chosen_as_by_sessions(library: CLibrary, tmp_path: Path, levels: str):
    """Levels round products of bf16 in different ways, so that equal results are those of the same code."""
    artifact = motet.compile(layers(), devices=f"host{{cpu={levels}}}", options={"precision": "bf16"})
    artifact.save(tmp_path / "x.motet")
    x = normal(13, 37)
    with motet.load(artifact) as session:
        for own, other in zip(library.open(tmp_path / "x.motet")(x), session(x), strict=True):
            np.testing.assert_array_equal(own, other)


def test_functions_say_what_they_take(library: CLibrary, compiled: Callable[[str], Path]):
    artifact = library.open(compiled("encoder"))
    (x,), (y, most) = artifact.specs("input"), artifact.specs("result")
    assert (x.name, x.dtype, x.element_size, x.rank, x.destination, x.state) == (b"x", b"f32", 4, 3, -1, None)
    names = x.symbols[:3]
    assert x.extents[:3] == [-1, -1, 32] and None not in names[:2] and names[2] is None
    assert y.symbols[:3] == names and (most.rank, most.extents[:2]) == (2, [-1, 32])
    reshaped = library.open(compiled("reshaped"))  # what computes its extents is not shown
    assert len(reshaped.specs("input")) == 2
    assert not library.library.motet_function_at(reshaped.handle, ctypes.c_size_t(1))
    rows = library.open(compiled("rows"))
    assert library.library.motet_function_name(rows.function("square")) == b"square"
    assert not rows.function("cube").value and not library.library.motet_function_at(rows.handle, ctypes.c_size_t(2))
    (_, written), (result,) = (library.open(compiled("in place")).specs(what) for what in ("input", "result"))
    assert result.destination == 1 and written.destination == -1
    assert library.library.motet_version().decode() == motet.__version__


def test_states_are_inputs_and_results(library: CLibrary, tmp_path: Path):
    motet.compile("""
      ml_program.global private mutable @sum(dense<[1.0, 2.0, 3.0]> : tensor<3xf32>) : tensor<3xf32>
      func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {
        %old = ml_program.global_load @sum : tensor<3xf32>
        %new = arith.addf %old, %x : tensor<3xf32>
        ml_program.global_store @sum = %new : tensor<3xf32>
        return %old : tensor<3xf32>
      }""").save(tmp_path / "x.motet")
    artifact = library.open(tmp_path / "x.motet")
    assert [spec.state for spec in artifact.specs("input")] == [None, b"sum"]
    assert [spec.state for spec in artifact.specs("result")] == [None, b"sum"]
    expected, (state,) = np.array([1, 2, 3], np.float32), artifact(name="motet.initial_state")
    for _ in range(3):
        x = normal(3)
        y, state = artifact(x, state)
        np.testing.assert_array_equal(y, expected)
        expected = expected + x
    np.testing.assert_array_equal(state, expected)


# -- what is refused ---------------------------------------------------------------------------------


def text_of(status: int, call: Callable[[], Any]) -> str:
    with pytest.raises(CError) as error:
        call()
    assert error.value.status == status, error.value
    return str(error.value)


REFUSED: dict[str, tuple[str, str, Callable[[], list[np.ndarray]]]] = {
    "shape": ("add", "main", lambda: [normal(3, 5), normal(3, 6)]),
    "rank": ("add", "main", lambda: [normal(3, 5), normal(3)]),
    "dtype": ("add", "main", lambda: [normal(3, 5), bits(3, 5).astype(np.int32)]),
    "static axis of a dynamic shape": ("rows", "double", lambda: [normal(3, 5)]),
    "rank of a dynamic shape": ("rows", "double", lambda: [normal(4)]),
    "wider integer": ("rows", "square", lambda: [bits(6)]),
    "extents that must be equal": ("in place", "main", lambda: [normal(4, 9), normal(5, 9)]),
    "extents that values give": ("reshaped", "main", lambda: [normal(3, 6), np.array((7, 3))]),
    "negative extents that values give": ("reshaped", "main", lambda: [normal(3, 6), np.array((-5, 3))]),
    "extents beyond memory": ("reshaped", "main", lambda: [normal(3, 6), np.array((1 << 60, 3))]),
    "index beyond the last": ("lookup", "main", lambda: [normal(8, 4), np.array([1, 8, 0])]),
    "index before the first": ("lookup", "main", lambda: [normal(8, 4), np.array([-1, 0, 0])]),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_calls_are_refused_as_by_sessions(library: CLibrary, compiled: Callable[[str], Path], reason: str):
    name, function, make = REFUSED[reason]
    inputs, artifact = make(), library.open(compiled(name))
    with motet.load(compiled(name)) as session, pytest.raises(CallError) as expected:
        session.functions[function](*inputs)
    given = [tensor_of(array) for array in inputs]

    def call() -> None:
        results = artifact.results(given, function)
        artifact.call_tensors(given, [tensor_of(array) for array in results], function)

    assert text_of(4, call) == str(expected.value)


def changed(tensor: CTensor, **fields: Any) -> CTensor:
    copy = CTensor(tensor.data, tensor.dtype, tensor.rank, tensor.extents)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def test_unsuitable_arguments_are_refused(library: CLibrary, compiled: Callable[[str], Path]):
    artifact = library.open(compiled("add"))
    arrays = [normal(3, 5), normal(3, 5), np.zeros((3, 5), np.float32)]
    x, y, z = map(tensor_of, arrays)
    huge = (ctypes.c_int64 * 2)(1 << 62, 5)
    long = (ctypes.c_int64 * 99)(*[1] * 99)
    for inputs, results, words in (
        ([x], [z], "1 arguments given, 2 expected"), ([x, y], [], "0 results given, 1 expected"),
        ([x, changed(y, data=None)], [z], "argument 1 (.*): a null pointer given, memory expected"),
        ([x, changed(y, dtype=None)], [z], "a null pointer given, a tensor expected"),
        ([x, changed(y, extents=None)], [z], "a null pointer given, a tensor expected"),
        ([x, changed(y, data=y.data + 1)], [z], "unaligned memory given"),
        ([x, changed(y, extents=huge)], [z], "shape 4611686018427387904x5 given, 3x5 expected"),
        ([x, changed(y, extents=long, rank=99)], [z], "shape 1x1x1.* given, 3x5 expected"),
        ([x, y], [changed(z, data=None)], "result 0 (.*): a null pointer given"),
        ([x, y], [tensor_of(normal(5, 3))], "result 0 (.*): shape 5x3 given, 3x5 expected"),
        ([x, y], [tensor_of(np.zeros((3, 5)))], "result 0 (.*): dtype f64 given, f32 expected"),
        ([x, y], [changed(z, data=x.data + 4)], "result 0 shares memory with argument 0"),
    ):  # fmt: skip
        assert re.search(words, text_of(4, lambda a=inputs, b=results: artifact.call_tensors(a, b)))
    assert "given; expected a function" in text_of(1, lambda: artifact.call_tensors([x, y], [z], "no_such_function"))
    none, size = ctypes.c_void_p(), ctypes.c_size_t(1)
    call = library.library.motet_call
    assert "null pointer" in text_of(1, lambda: library.check(call(artifact.function(), none, size, none, size)))
    assert "null pointer" in text_of(1, lambda: library.check(library.library.motet_open(None, 1, ctypes.byref(none))))
    assert "null pointer" in text_of(1, lambda: library.check(library.library.motet_open(b"x", 1, None)))
    assert "expected 1 to 1024" in text_of(1, lambda: library.open(compiled("add"), 100_000))
    np.testing.assert_array_equal(artifact(*arrays[:2])[0], arrays[0] + arrays[1])
    written = library.open(compiled("in place"))
    arrays = [normal(4, 9) for _ in range(3)]
    a, b, c = map(tensor_of, arrays)
    assert "result 0: is written to argument 1" in text_of(4, lambda: written.call_tensors([a, b], [c]))


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    return lambda data: forged(data, change)


# Each with the status and the words.
FILES: dict[str, tuple[Callable[[bytes], bytes], int, str]] = {
    "empty": (lambda data: b"", 2, "the file is empty"),
    "another file": (lambda data: b"#!/bin/sh" * 999, 2, "not a zip archive"),
    "cut": (lambda data: data[:-1], 2, "not a zip archive, or cut short"),
    "edited": (edited(lambda m: m["functions"][0].update(name="other")), 2, "not the one that its code was compiled"),
    "newer": (edited(lambda m: m.update(schema=SCHEMA_VERSION + 1)), 3, f"newer format {SCHEMA_VERSION + 1}"),
    "older": (edited(lambda m: m.update(schema=1)), 3, "older format 1"),
    "without its code": (edited(lambda m: m["members"].popitem()), 2, "members do not fit the manifest"),
    "no manifest": (lambda data: data.replace(b"manifest.json", b"manifest.text"), 2, "without manifest.json"),
    "of a damaged member": (lambda data: data.replace(b"\x7fELF", b"\x7fELG"), 2, "its hash is not the one"),
    "compressed": (lambda data: data.replace(b"PK\1\2\x14\3\x14\0\0\0\0\0", b"PK\1\2\x14\3\x14\0\0\0\x08\0"), 2,
                   "expected stored"),
}  # fmt: skip


@pytest.mark.parametrize("what", FILES)
def test_bad_files_are_refused(library: CLibrary, compiled: Callable[[str], Path], tmp_path: Path, what: str):
    make, status, words = FILES[what]
    file = tmp_path / "x.motet"
    file.write_bytes(make(compiled("add").read_bytes()))
    text = text_of(status, lambda: library.open(file))
    assert words in text and text.startswith(str(file)), text


def test_absent_files_are_refused(library: CLibrary, compiled: Callable[[str], Path], tmp_path: Path):
    assert "No such file" in text_of(2, lambda: library.open(tmp_path / "none.motet"))
    assert "no file" in text_of(2, lambda: library.open(tmp_path))
    shutil.copy(compiled("external"), tmp_path)
    assert "external.safetensors: cannot be read" in text_of(2, lambda: library.open(tmp_path / "external.motet"))
    assert "open it from its folder" in text_of(2, lambda: library.open(compiled("external").read_bytes()))


def test_programs_that_need_the_runtime_are_refused(library: CLibrary, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refused(source: object, devices: Any = None) -> str:
        motet.compile(source, devices=devices).save(tmp_path / "x.motet")
        return text_of(3, lambda: library.open(tmp_path / "x.motet"))

    assert "rv64gc: for another device" in refused(ADD, {"": "riscv{cpu=rv64gc}"})
    assert "aarch64: for aarch64" in refused(ADD, {"": "host{cpu=aarch64}"})
    assert "placed on named devices" in refused((ROOT / "examples" / "two_devices.mlir").read_text(), {"acc": "host"})


def test_a_processor_without_the_features_is_refused(library: CLibrary, compiled: Callable[[str], Path]):
    artifact = Artifact.open(compiled("add"))
    members = {name: bytes(artifact.member(name)) for name in artifact.manifest.members}
    replace = msgspec.structs.replace
    variants = [replace(each, features=[*each.features, "avx99"]) for each in artifact.manifest.variants]
    manifest = replace(artifact.manifest, variants=variants)
    targets = json.loads(members[CONTRACTS])
    for target in targets["targets"]:
        target["features"].append("avx99")
    members[CONTRACTS] = json.dumps(targets).encode()
    seal(manifest, members)
    data = bytes(write_artifact(manifest, members, {}).data)
    assert "needs avx99, which the processor lacks" in text_of(3, lambda: library.open(data))


# -- damage, in a process of its own -----------------------------------------------------------------


@pytest.fixture(scope="module")
def damage(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., str]:
    """Runs `c_damage.c`, with the sanitizers if the compiler has them."""
    folder = tmp_path_factory.mktemp("damage")
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover"]
    (folder / "empty.c").write_text("int main(void) { return 0; }")
    has = subprocess.run(["cc", *flags, "empty.c", "-o", "empty"], cwd=folder, capture_output=True, check=False)
    flags = [] if has.returncode or subprocess.run([folder / "empty"], check=False).returncode else flags
    build_library(folder, flags=("-O0", "-g", "-DMOTET_PORTABLE_HASH", *flags))
    build_program(Path(__file__).with_name("c_damage.c"), folder, *flags)

    def run(*arguments: str | Path) -> str:
        command = [folder / "program", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    return run


def build_program(source: Path, folder: Path, *flags: str) -> None:
    strict = ["-std=c11", "-Wall", "-Wextra", "-Werror", *flags]
    linked = [f"-I{folder}", f"-L{folder}", "-lmotet", f"-Wl,-rpath,{folder}", "-o", str(folder / "program")]
    subprocess.run(["cc", *strict, str(source), *linked], check=True, timeout=240)


@pytest.mark.parametrize("name", ["layers", *(pytest.param(n, marks=pytest.mark.slow) for n in ("rows", "encoder"))])
def test_damage_is_refused_or_of_no_effect(damage: Callable[..., str], compiled: Callable[[str], Path], name: str):
    seed = str(int.from_bytes(os.urandom(3), "big"))
    print("seed", seed)
    assert int(damage("300", seed, compiled(name)).split()[0]) > 100


Members = dict[str, bytes]
VALUES: list[Any] = [
    0, 1, -1, 63, 64, 65, 1 << 31, 1 << 32, 1 << 48, 1 << 62, (1 << 63) - 1, -(1 << 63), 1 << 64, 10**30, 1.5, True,
    None, "", "n", "x" * 5000, "%s%n", "a\nb", [], {}, [[]],
    ["+", 1, 2], ["*", "n", 1 << 61], ["//", 1, 0], ["-", 0, 5],
    "parameter", "arena", "copy",
]  # fmt: skip


def resealed(data: bytes, change: Callable[[dict[str, Any], Members], None]) -> bytes:
    """The artifact with another manifest or other members, all of whose hashes fit."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    tree = json.loads(members.pop(MANIFEST))
    change(tree, members)
    bare = json.dumps({**tree, "members": {}}, separators=(",", ":"), ensure_ascii=False)
    contracts = {**json.loads(members[CONTRACTS]), "seal": hashlib.sha256(bare.encode()).hexdigest()}
    members[CONTRACTS] = json.dumps(contracts).encode()
    contents = [hashed(name, lambda data=data: [memoryview(data)]) for name, data in members.items()]
    tree["members"] = {each.name: {"sha256": each.sha256, "size": each.size} for each in contents}
    text = json.dumps(tree, separators=(",", ":"), ensure_ascii=False).encode()
    file = io.BytesIO()
    write_archive(file, [*contents, hashed(MANIFEST, lambda: [memoryview(text)])], MANIFEST)
    return file.getvalue()


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Each container in a tree, and the key or index of each of its items."""
    for key in tree if isinstance(tree, dict) else range(len(tree)) if isinstance(tree, list) else ():
        yield tree, key
        yield from places(tree[key])


def mutated(choice: Random) -> Callable[[dict[str, Any], Members], None]:
    def change(tree: dict[str, Any], members: Members) -> None:
        if choice.random() < 0.3:
            name = choice.choice([name for name in members if name.endswith(".o")])
            code = bytearray(members[name])
            for at in choice.choices([at for at, byte in enumerate(code) if byte], k=choice.choice((1, 3, 20))):
                code[at] = choice.randrange(256)
            members[name] = bytes(code)
            return
        where, key = choice.choice([place for place in places(tree) if place[1] != "members"])
        kind = choice.random()
        if kind < 0.1 and isinstance(where, dict):
            where["strange"] = 1
        elif kind < 0.2:
            del where[key]
        elif kind < 0.3 and isinstance(where, list):
            where.append(where[key])
        else:
            where[key] = choice.choice(VALUES)

    return change


@pytest.mark.slow
@pytest.mark.parametrize("name", ["layers", "encoder", "rows", "reshaped", "lookup"])
def test_forged_files_are_opened_in_bounds(
    damage: Callable[..., str], compiled: Callable[[str], Path], tmp_path: Path, name: str
):
    seed = int.from_bytes(os.urandom(3), "big")
    print("seed", seed)
    choice, data = Random(seed), compiled(name).read_bytes()
    (tmp_path / "same.motet").write_bytes(resealed(data, lambda tree, members: None))
    assert damage("0", "0", tmp_path / "same.motet") == f"{int(name == 'reshaped')} refused\n"  # it reads the shape
    files = [tmp_path / f"{number}.motet" for number in range(300)]
    for file in files:
        file.write_bytes(resealed(data, mutated(choice)))
    assert int(damage("0", "0", *files).split()[0]) > 50


# -- threads and memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_an_artifact_is_called_by_several_threads(library: CLibrary, compiled: Callable[[str], Path], threads: int):
    """Each with extents that come and go, so that evaluated ones are dropped while they are in use."""
    artifact = library.open(compiled("encoder"), threads)
    cases = [normal(1 + n % 3, 1 + n, 32) for n in range(24)]
    expected = [artifact(x) for x in cases]
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for n in np.random.default_rng(seed).permutation(60) % len(cases):
                for own, other in zip(artifact(cases[n]), expected[n], strict=True):
                    np.testing.assert_array_equal(own, other)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    assert not failures
    artifact.close()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_memory_stays_flat(library: CLibrary, compiled: Callable[[str], Path]):
    data = compiled("layers").read_bytes()
    artifact, rows = library.open(data, 2), library.open(compiled("rows"))
    x, many = normal(13, 37), [normal(n, 4) for n in range(40)]

    def use(rounds: int) -> None:
        for n in range(rounds):
            artifact(x)
            rows(many[n % 40])
            if n % 20 == 0:
                library.open(data, 2).close()
                text_of(2, lambda cut=data[: 5 * n]: library.open(cut))

    use(200)
    before = resident()
    use(1000)
    assert resident() - before < 2 << 20


# -- the example and the command ---------------------------------------------------------------------


def test_the_example_runs_an_artifact(library: CLibrary, compiled: Callable[[str], Path], tmp_path: Path):
    for name in ("motet.h", "libmotet.so"):
        shutil.copy(Path(library.library._name).with_name(name), tmp_path)
    build_program(ROOT / "examples" / "c" / "run.c", tmp_path, "-Wpedantic")

    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [tmp_path / "program", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)

    x = normal(13, 37)
    x.tofile(tmp_path / "x.bin")
    with motet.load(compiled("layers")) as session:
        y = session(x)[0]
    done = run(compiled("layers"), tmp_path / "x.bin")
    lines = done.stdout.splitlines()
    assert done.returncode == 0 and lines[1] == "count: 13xi32", done.stderr
    np.testing.assert_allclose([*map(float, lines[0].removeprefix("y: 13x5xf32 ").split())], y[0, :4], 1e-5, 1e-30)
    failed = run(tmp_path / "x.bin")
    assert failed.returncode == 1 and failed.stderr.startswith(f"error: {tmp_path}/x.bin: not a zip archive")
    x[:12].tofile(tmp_path / "short.bin")
    for file in ("short.bin", "none.bin"):
        failed = run(compiled("layers"), tmp_path / file)
        assert (failed.returncode, failed.stdout, failed.stderr) == (
            1, "", f"error: {tmp_path}/{file}: expected a file of {13 * 37} elements of f32\n")


def test_builds_that_cannot_be_made_are_refused(tmp_path: Path):
    for compiler, words in (("no-such-cc", "no such compiler"), ("", "no such compiler"), ("false", "failed: status 1"),
                            ("cc -fno-such-flag", "failed: .*error")):
        with pytest.raises(OptionError, match=words):
            build_library(tmp_path / "out", compiler)
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        build_library(tmp_path / "file")
