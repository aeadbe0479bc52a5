"""Programs as IREE's users write them: operations of flow, util and hal, initializers, branches of blocks."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from tests.prepared import load_mlir

import motet
from motet.compiler.placement.place import Place
from motet.compiler.stages import optimise
from motet.compiler.targets.device_flags import parse_device_flags
from motet.errors import CallError, CompileError, MotetError

FILE = "model.mlir"
DEVICES = """
#on_b = #hal.device.promise<@b>
util.global private @a = #hal.device.alias<"local"> : !hal.device
util.global private @b = #hal.device.alias<"local"> : !hal.device
"""
ASYNC = DEVICES + """
util.func public @main(%view: !hal.buffer_view, %storage: !hal.buffer_view, %w: !hal.fence, %s: !hal.fence)
    -> !hal.buffer_view {
  %n = hal.buffer_view.dim<%view : !hal.buffer_view>[0] : index
  %x = hal.tensor.import on(#hal.device.promise<@a>) wait(%w) => %view "x" : !hal.buffer_view -> tensor<?x4xf32>{%n}
  %c = flow.tensor.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %v = arith.constant 2.5 : f32
  %splat = flow.tensor.splat %v : tensor<?x4xf32>{%n}
  %y = arith.addf %x, %splat : tensor<?x4xf32>
  %kept = util.optimization_barrier %y : tensor<?x4xf32>
  %moved = flow.tensor.transfer %kept : tensor<?x4xf32>{%n} to #on_b
  %z = arith.mulf %moved, %moved : tensor<?x4xf32>
  %c2 = arith.constant 2 : index
  %m = arith.muli %n, %c2 : index
  %pairs = flow.tensor.reshape %z : tensor<?x4xf32>{%n} -> tensor<?x2xf32>{%m}
  %clone = flow.tensor.clone %pairs : tensor<?x2xf32>{%m}
  %written = hal.tensor.alias wait(%w) => %clone : tensor<?x2xf32>{%m} to %storage : !hal.buffer_view
  %ready = hal.tensor.barrier join(%written : tensor<?x2xf32>) => %s : !hal.fence
  %result = hal.tensor.export on(#on_b) %ready "out" : tensor<?x2xf32>{%m} -> !hal.buffer_view
  util.return %result : !hal.buffer_view
}
"""


def test_buffers_fences_and_storage_of_a_call():
    artifact = motet.compile(ASYNC, cache=False)
    signature = artifact.functions["main"]
    assert [spec.name for spec in signature.inputs] == ["x", "arg1"] and signature.results[0].name == "out"
    assert signature.results[1].destination == 1
    session = motet.load(artifact)
    for rows in (0, 1, 3):
        x = np.random.default_rng(rows).standard_normal((rows, 4)).astype(np.float32)
        storage = np.full((2 * rows, 2), 7, np.float32)
        result, _ = session(x, storage)
        expected = ((x + np.float32(2.5)) ** 2).reshape(2 * rows, 2)
        assert_allclose(result, expected, rtol=1e-6)
        assert_allclose(storage, expected, rtol=1e-6)
    with pytest.raises(CallError, match="axis 0 of arg1 must be as long as that of what is written to it: 5 and 6"):
        session(np.zeros((3, 4), np.float32), np.zeros((5, 2), np.float32))


PARTS = """
util.func public @main(%x: tensor<f32>, %y: tensor<1x1xf32>, %z: tensor<6x4xf32>, %i: index, %u: tensor<2x?xf32>)
    -> (tensor<1x1xf32>, tensor<f32>, tensor<3x8xf32>, f32, tensor<6x4xf32>, tensor<2x2xf32>, tensor<6x4xf32>,
        tensor<6x4xi32>, tensor<?x3xi32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %u, %c1 : tensor<2x?xf32>
  %a = flow.tensor.reshape %x : tensor<f32> -> tensor<1x1xf32>
  %b = flow.tensor.reshape %y : tensor<1x1xf32> -> tensor<f32>
  %c = flow.tensor.reshape %z : tensor<6x4xf32> -> tensor<3x8xf32>
  %d = flow.tensor.load %z[%i, %c2] : tensor<6x4xf32>
  %e = flow.tensor.store %d, %z[%c2, %c2] : tensor<6x4xf32>
  %f = flow.tensor.slice %z[%i, %c2 for %c2, %c2] : tensor<6x4xf32> -> tensor<2x2xf32>
  %g = flow.tensor.update %u, %z[%i, %c1] : tensor<2x?xf32>{%n} -> %z as tensor<6x4xf32>
  %h = flow.tensor.bitcast %z : tensor<6x4xf32> -> tensor<6x4xi32>
  %five = arith.constant 5 : i32
  %s = flow.tensor.splat %five : tensor<?x3xi32>{%n} {note = "kept"}
  %k:2 = util.optimization_barrier %a, %b : tensor<1x1xf32>, tensor<f32>
  util.return %k#0, %k#1, %c, %d, %e, %f, %g, %h, %s : tensor<1x1xf32>, tensor<f32>, tensor<3x8xf32>, f32,
      tensor<6x4xf32>, tensor<2x2xf32>, tensor<6x4xf32>, tensor<6x4xi32>, tensor<?x3xi32>
}
"""


def test_parts_of_tensors():
    session = motet.load(motet.compile(PARTS, cache=False))
    z = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    u = np.full((2, 3), 9, np.float32)
    a, b, c, d, e, f, g, h, s = session(np.float32(3), np.full((1, 1), 2, np.float32), z, np.int64(3), u)
    stored, updated = z.copy(), z.copy()
    stored[2, 2] = z[3, 2]
    updated[3:5, 1:4] = u
    assert (a.item(), b.item(), d) == (3, 2, z[3, 2])
    for found, expected in (
        (c, z.reshape(3, 8)), (e, stored), (f, z[3:5, 2:4]), (g, updated), (h, z.view(np.int32)),
        (s, np.full((3, 3), 5, np.int32)),
    ):
        assert_array_equal(found, expected)
    for place in (-1, 5, 2**40):  # two rows from there lie outside
        with pytest.raises(CallError, match="outside"):
            session(np.float32(3), np.full((1, 1), 2, np.float32), z, np.int64(place), u)


INITIALIZED = """
util.global private @w = dense<2.0> : tensor<4xf32>
util.global private @v : tensor<4xf32>
util.global private mutable @u : tensor<4xf32>
util.initializer {
  %w = util.global.load @w : tensor<4xf32>
  %e = math.exp %w : tensor<4xf32>
  %c = util.call @twice(%e) : (tensor<4xf32>) -> tensor<4xf32>
  util.global.store %c, @v : tensor<4xf32>
  util.return
}
util.initializer {
  %v = util.global.load @v : tensor<4xf32>
  %e = arith.addf %v, %v : tensor<4xf32>
  util.global.store %e, @u : tensor<4xf32>
  util.initializer.return
}
util.func private @twice(%x: tensor<4xf32>) -> tensor<4xf32> {
  %e = arith.addf %x, %x : tensor<4xf32>
  util.return %e : tensor<4xf32>
}
util.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %v = util.global.load immutable @u : tensor<4xf32>
  %z = arith.addf %v, %x : tensor<4xf32>
  util.return %z : tensor<4xf32>
}
"""


def test_initializers_compute_globals():
    session = motet.load(motet.compile(INITIALIZED, cache=False))
    assert_allclose(session(np.ones(4, np.float32)), 4 * np.exp(np.full(4, 2.0)) + 1, rtol=1e-6)


BRANCH = DEVICES + """
util.func public @main(%x: tensor<4xf32>, %c: i1) -> (tensor<4xf32>, f32) {
  %one = arith.constant 1.0 : f32
  %two = arith.constant 2.0 : f32
  %r:2 = scf.if %c -> (tensor<4xf32>, f32) {
    %e = math.exp %x {stream.affinity = #hal.device.promise<@a>} : tensor<4xf32>
    scf.yield %e, %one : tensor<4xf32>, f32
  } else {
    %t = flow.tensor.transfer %x : tensor<4xf32> to #on_b
    %z = arith.mulf %t, %t : tensor<4xf32>
    scf.yield %z, %two : tensor<4xf32>, f32
  }
  util.return %r#0, %r#1 : tensor<4xf32>, f32
}
"""
BLOCKS = """
util.func public @main(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  cf.br ^head(%c0, %x : index, tensor<4xf32>)
^head(%i: index, %v: tensor<4xf32>):
  %c = arith.cmpi slt, %i, %n : index
  cf.cond_br %c, ^body, ^done
^body:
  %z = arith.addf %v, %x : tensor<4xf32>
  %j = arith.addi %i, %c1 : index
  cf.br ^head(%j, %z : index, tensor<4xf32>)
^done:
  util.return %v : tensor<4xf32>
}
"""


def test_branches_over_devices_and_between_blocks():
    x = np.array([0.5, -2, np.inf, 3], np.float32)
    branch = motet.load(motet.compile(BRANCH, cache=False))
    for taken, expected, number in ((True, np.exp(x), 1), (False, x * x, 2)):
        found, scalar = branch(x, np.bool_(taken))
        assert_allclose(found, expected, rtol=1e-6)
        assert scalar == number
    loop = motet.load(motet.compile(BLOCKS, cache=False))
    for turns in (0, 3):
        assert_allclose(loop(x, np.int64(turns)), x * (turns + 1))


BODY = "util.func public @main(%x: tensor<?x4xf32>, %n: index, %v: !hal.buffer_view) {{\n  {}\n  util.return\n}}"


@pytest.mark.parametrize(("line", "message"), [
    ("%0 = flow.tensor.reshape %x : tensor<?x4xf32>{%n} -> tensor<?x2xf32>", "0 extents are given; tensor<?x2xf32>"),
    ("%0 = flow.tensor.reshape %x : tensor<?x4xf32>{%n} -> tensor<?x4xi32>{%n}", "from f32 to i32"),
    ("%0 = flow.tensor.bitcast %x : tensor<?x4xf32>{%n} -> tensor<?x8xi16>{%n}", "elements of the same width"),
    ("%0 = flow.tensor.splat %n tensor<?x4xf32>", "expected `:`; there is `tensor`"),
    ("%0 = flow.tensor.slice %x[%n for %n, %n] : tensor<?x4xf32>{%n} -> tensor<?x4xf32>{%n}", "2 starts and 2 lengths"),
    ("%0 = flow.tensor.update %x, %x[%n] : tensor<?x4xf32>{%n} -> tensor<?x4xf32>{%n}", "1 starts"),
    ("%0 = util.optimization_barrier %x, %n : tensor<?x4xf32>", "2 values and 1 types"),
    ("%0 = hal.buffer_view.dim<%v : !hal.buffer_view>[0] : index", "hal.buffer_view.dim reads it; expected"),
    ("%0 = hal.tensor.import %v : !hal.buffer_view -> tensor<4xf32>\n"
     "  %1 = hal.tensor.import %v : !hal.buffer_view -> tensor<5xf32>", "as tensor<4xf32> and as tensor<5xf32>"),
    ("%0 = hal.tensor.export %x : tensor<?x4xf32>{%n} -> !hal.buffer_view\n"
     "  %1 = hal.tensor.import %0 : !hal.buffer_view -> tensor<4xf32>", "expected it to be returned"),
])
def test_what_has_no_counterpart_is_one_error(line: str, message: str):
    with pytest.raises(CompileError) as caught:
        optimise(BODY.format(line), FILE, "resolve-flow")
    assert message in str(caught.value) and str(caught.value).startswith(f"{FILE}:")


def test_iree_names_of_passes():
    program = """
    util.global private @a : !hal.device
    util.global private @b : !hal.device
    util.func public @f(%x: tensor<4xf32>) -> tensor<4xf32> {
      %t = flow.tensor.transfer %x : tensor<4xf32> to #hal.device.promise<@b>
      util.return %t : tensor<4xf32>
    }"""
    text = optimise(
        program, FILE, "builtin.module(iree-hal-device-assignment-pipeline{target-devices=a=local,b=local[1]},cse)"
    )
    assert 'alternatives = ["host[1]"], sym_name = "b"' in text and 'to = "b"' in text
    for wrong in ("iree-hal-verify-devices{x=1}", "iree-hal-device-assignment-pipeline{target=local}"):
        with pytest.raises(MotetError, match="option"):
            optimise(program, FILE, wrong)


LOOPS = """func.func @main(%x: memref<4xf32> {memref.on_device}, %o: memref<4xf32>) attributes {my.flag, jax.x} {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  scf.for %i = %c0 to %c4 step %c1 {
    %a = memref.load %x[%i] : memref<4xf32>
    memref.store %a, %o[%i] : memref<4xf32>
  } {loop.schedule = "dynamic"}
  scf.for %i = %c0 to %c4 step %c1 {
    %a = memref.load %o[%i] : memref<4xf32>
    memref.store %a, %o[%i] : memref<4xf32>
  } {loop.schedule = "static"}
  return
}"""


def test_attributes_that_nothing_follows_are_told(caplog: pytest.LogCaptureFixture):
    with caplog.at_level("WARNING", logger="motet"):
        load_mlir(LOOPS, FILE, Place((), automatic=False))
    messages = [record.getMessage() for record in caplog.records]
    assert messages[0] == f"attributes that are not followed: my.flag ({FILE}:1:1), loop.schedule ({FILE}:5:3, 2 times)"
    caplog.clear()
    with caplog.at_level("WARNING", logger="motet"):
        load_mlir(LOOPS, FILE, Place(parse_device_flags(("a=host", "b=null")), automatic=False))
    assert "memref.on_device" not in caplog.text
