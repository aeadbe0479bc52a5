"""Programs that say where they run, in every spelling, give what they give on one device."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from tests.integration.placed import build_placed
from tests.integration.placed_text import TextProgram
from tests.prepared import load_source
from tests.seeds import seeds

import motet
from motet.compiler import service
from motet.compiler.verify.oracle import run_oracle
from motet.errors import CompileError

X = np.array([0.5, -1.25, 3.0, 7.0], np.float32)
Y = np.array([2.0, 0.25, -4.0, 1.0], np.float32)
W = np.array([1, 2, 3, 4], np.float32)
DEVICES = 'util.global private @a = #hal.device.alias<"local"> : !hal.device\n' \
    'util.global private @b = #hal.device.alias<"null"> : !hal.device\n'
T = "tensor<4xf32>"
B = "#hal.device.affinity<@b>"
ON_B = f"{{stream.affinity = {B}}}"


def results(text: str, *inputs: np.ndarray, flags: Sequence[str] = ()) -> list[np.ndarray]:
    with motet.load(build_placed(DEVICES + text, flags), threads=1) as session:
        found = session(*inputs)
    return list(found) if isinstance(found, tuple) else [found]


def check(text: str, inputs: Sequence[np.ndarray], *wanted: np.ndarray) -> None:
    for result, value in zip(results(text, *inputs), wanted, strict=True):
        np.testing.assert_allclose(result, value, rtol=1e-5, atol=1e-6)


def test_transfers_between_devices():
    check(
        f"util.func public @f(%x: {T}) -> {T} {{ %0 = math.exp %x : {T} "
        f"%1 = flow.tensor.transfer %0 : {T} to #hal.device.promise<@b> %2 = arith.addf %1, %1 : {T} "
        f"%3 = flow.tensor.transfer %2 : {T} to #hal.device.affinity<@a> %4 = arith.mulf %3, %0 : {T} "
        f"util.return %4 : {T} }}",
        [X], 2 * np.exp(X) ** 2,
    )


def test_numbers_of_another_device():
    check(
        f"func.func @f(%x: {T}, %y: {T}) -> {T} {{ %0 = math.exp %x {ON_B} : {T} %i = arith.constant 2 : index "
        f"%s = tensor.extract %0[%i] : {T} %c = tensor.splat %s : {T} %1 = arith.addf %y, %c : {T} return %1 : {T} }}",
        [X, Y], Y + np.exp(X[2]),
    )


def test_scalar_arguments():
    check(
        f"func.func @f(%x: {T}, %s: f32) -> ({T}, f32) {{ %c = tensor.splat %s : {T} "
        f"%0 = arith.mulf %x, %c {ON_B} : {T} %t = arith.addf %s, %s : f32 return %0, %t : {T}, f32 }}",
        [X, np.array(3.0, np.float32)], 3 * X, np.array(6.0),
    )


def test_globals_on_two_devices():
    check(
        f"util.global private @w = dense<[1.0, 2.0, 3.0, 4.0]> : {T} "
        f"func.func @f(%x: {T}) -> ({T}, {T}) {{ %w = util.global.load immutable @w : {T} "
        f"%0 = arith.addf %x, %w : {T} %1 = arith.mulf %x, %w {ON_B} : {T} return %0, %1 : {T}, {T} }}",
        [X], X + W, X * W,
    )


def test_calls():
    check(
        f"func.func @f(%x: {T}, %y: {T}) -> {T} {{ %0 = func.call @g(%x) : ({T}) -> {T} "
        f"%1 = func.call @g(%y) {ON_B} : ({T}) -> {T} %2 = arith.subf %0, %1 : {T} return %2 : {T} }} "
        f"func.func private @g(%z: {T}) -> {T} {{ %0 = math.tanh %z : {T} return %0 : {T} }}",
        [X, Y], np.tanh(X) - np.tanh(Y),
    )


@pytest.mark.parametrize("condition", [True, False])
def test_branches(condition: bool):
    check(
        f"func.func @f(%p: i1, %x: {T}) -> {T} {{ %0 = scf.if %p -> {T} {{ %1 = math.exp %x {ON_B} : {T} "
        f"scf.yield %1 : {T} }} else {{ %2 = flow.tensor.transfer %x : {T} to {B} scf.yield %2 : {T} }} "
        f"%3 = arith.addf %0, %x : {T} return %3 : {T} }}",
        [np.array(condition), X], (np.exp(X) if condition else X) + X,
    )


@pytest.mark.parametrize("count", [0, 1, 5])
def test_loops(count: int):
    wanted = X.copy()
    for _ in range(count):
        wanted = np.tanh(wanted + Y)
    check(
        f"func.func @f(%n: i64, %x: {T}, %y: {T}) -> {T} {{ %k = arith.index_cast %n : i64 to index "
        f"%c = arith.constant 0 : index %d = arith.constant 1 : index "
        f"%0 = scf.for %i = %c to %k step %d iter_args(%v = %x) -> {T} {{ %1 = arith.addf %v, %y : {T} "
        f"%2 = math.tanh %1 {ON_B} : {T} scf.yield %2 : {T} }} return %0 : {T} }}",
        [np.array(count), X, Y], wanted,
    )


def test_dynamic_extents():
    x = np.arange(7, dtype=np.float32)
    check(
        "func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> { %c = arith.constant 0 : index "
        "%n = tensor.dim %x, %c : tensor<?xf32> %0 = math.exp %x : tensor<?xf32> "
        f"%1 = flow.tensor.transfer %0 : tensor<?xf32>{{%n}} to {B} "
        "%2 = arith.addf %1, %1 : tensor<?xf32> return %2 : tensor<?xf32> }",
        [x], 2 * np.exp(x),
    )


def test_destinations_on_another_device():
    text = f"func.func @f(%x: memref<4xf32>, %y: memref<4xf32> {{iree.abi.affinity = {B}}}) {{ " \
        "linalg.exp ins(%x : memref<4xf32>) outs(%y : memref<4xf32>) return }"
    y = np.zeros(4, np.float32)
    (result,) = results(text, X, y)
    np.testing.assert_allclose(result, np.exp(X), rtol=1e-5)
    np.testing.assert_allclose(y, np.exp(X), rtol=1e-5)


def test_tosa_on_two_devices():
    check(
        f"func.func @f(%x: {T}) -> {T} {{ %0 = tosa.exp %x : ({T}) -> {T} "
        f"%1 = tosa.tanh %0 {ON_B} : ({T}) -> {T} return %1 : {T} }}",
        [X], np.tanh(np.exp(X)),
    )


def test_stablehlo_on_two_devices():
    text = f"func.func @f(%x: {T}, %y: {T}) -> {T} {{ %0 = stablehlo.exponential %x : {T} " \
        f"%1 = stablehlo.add %0, %y {ON_B} : {T} " \
        f"%2 = flow.tensor.transfer %1 : {T} to #hal.device.affinity<@a> " \
        f"%3 = stablehlo.multiply %2, %y : {T} return %3 : {T} }}"
    artifact = build_placed(DEVICES + text, ())
    assert len(artifact.manifest.plans["f"].steps) > 3, "the operations are on two devices"
    check(text, [X, Y], (np.exp(X) + Y) * Y)


def test_links_that_are_read_in_place():
    text = "module attributes {stream.topology = #hal.device.topology<links = " \
        f"[(@a -> @b = {{transparent_access = true}}), (@b -> @a = {{transparent_access = true}})]>}} {{ {DEVICES} " \
        f"func.func @f(%x: {T}) -> {T} {{ %0 = math.exp %x : {T} %1 = math.tanh %0 {ON_B} : {T} " \
        f"%2 = arith.addf %1, %0 {{stream.affinity = #hal.device.affinity<@a>}} : {T} return %2 : {T} }} }}"
    artifact = build_placed(text, ())
    assert [step.op for step in artifact.manifest.plans["f"].steps] == ["run", "run", "run"]
    with motet.load(artifact, threads=1) as session:
        np.testing.assert_allclose(session(X), np.tanh(np.exp(X)) + np.exp(X), rtol=1e-5)


def test_where_operations_run_is_emitted():
    text = DEVICES + f"func.func @f(%x: {T}) -> {T} {{ %0 = math.exp %x {ON_B} : {T} return %0 : {T} }}"
    emitted = service.emit(service.CompileRequest(text), "affinities")
    (line,) = [line for line in emitted.splitlines() if "math.exp" in line]
    assert 'motet.affinities.operands = ["a"]' in line and 'motet.affinities.results = ["b"]' in line


@pytest.mark.parametrize("seed", seeds(60))
def test_random_programs_give_what_they_give_on_one_device(seed: int):
    text = TextProgram(seed).text
    random = np.random.default_rng(seed)
    inputs = [*(random.standard_normal(4).astype(np.float32) for _ in range(3)), np.array(bool(seed % 2))]
    try:
        artifact = build_placed(text, ())
    except CompileError as error:
        assert "its parts are placed on" in str(error)  # two devices in one branch or loop
        return
    wanted = run_oracle(load_source(text, "oracle.mlir"), "f", inputs)
    with motet.load(artifact, devices={"b": "host"} if seed % 3 == 0 else {}, threads=1) as session:
        for _ in range(2):
            found = session(*inputs)
            results = list(found) if isinstance(found, tuple) else [found]
            for result, value in zip(results, wanted, strict=True):
                np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5)
