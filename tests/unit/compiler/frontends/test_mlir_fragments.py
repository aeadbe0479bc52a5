"""Fragments as inference frameworks hand them over: sources and destinations of dynamic extents and of any strides."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import motet
from motet.errors import CallError, CompileError
from motet.runtime.session import Session

ANY = ", strided<[?, ?], offset: ?>"
LAYOUTS = {
    "dynamic": ("memref<?x8xf32>", "memref<?x8xf32>"),
    "dynamic destination": ("memref<6x8xf32>", "memref<?x8xf32>"),
    "all dynamic": ("memref<?x?xf32>", "memref<?x?xf32>"),
    "rows apart": ("memref<6x8xf32, strided<[?, 1], offset: ?>>", "memref<6x8xf32, strided<[?, 1], offset: ?>>"),
    "any strides": (f"memref<?x?xf32{ANY}>", f"memref<?x?xf32{ANY}>"),
    "known strides": ("memref<6x8xf32, strided<[40, 2], offset: 3>>", "memref<?x8xf32, strided<[40, 2], offset: ?>>"),
}
# Of a matrix of 40×40: parts of 6×8.
VIEWS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "rows apart": lambda base: base[1:7, 3:11],
    "every second": lambda base: base[0:12:2, 1:17:2],
    "backwards": lambda base: base[11:5:-1, 20:4:-2],
    "transposed": lambda base: base[2:10, 5:17:2].T,
}


def fragment(source: str, destination: str) -> Session:
    """destination = source · weights + source + destination."""
    plain = (kind.partition(", strided")[0].rstrip(">") for kind in (source, destination))
    x, y = (f"{kind.replace('memref', 'tensor')}>" for kind in plain)
    rows, columns = (y.removeprefix("tensor<").split("x")[axis] for axis in (0, 1))
    sizes = ", ".join(name for name, extent in (("%rows", rows), ("%columns", columns)) if extent == "?")
    text = f"""func.func @entry(%x: {source}, %weights: memref<8x8xf32>, %y: {destination}) {{
      %a = bufferization.to_tensor %x restrict : {source}
      %b = bufferization.to_tensor %weights restrict : memref<8x8xf32>
      %before = bufferization.to_tensor %y restrict : {destination}
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %rows = memref.dim %x, %c0 : {source}
      %columns = memref.dim %weights, %c1 : memref<8x8xf32>
      %zero = arith.constant 0.0 : f32
      %empty = tensor.empty({sizes}) : {y}
      %filled = linalg.fill ins(%zero : f32) outs(%empty : {y}) -> {y}
      %product = linalg.matmul ins(%a, %b : {x}, tensor<8x8xf32>) outs(%filled : {y}) -> {y}
      %sum = linalg.add ins(%product, %a : {y}, {x}) outs(%empty : {y}) -> {y}
      %result = linalg.add ins(%sum, %before : {y}, {y}) outs(%empty : {y}) -> {y}
      bufferization.materialize_in_destination %result in restrict writable %y : ({y}, {destination}) -> ()
      return
    }}"""
    return motet.load(motet.compile(text, devices="host{cpu=native}", cache=False))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fragments_write_their_destination_and_nothing_else(layout: str) -> None:
    source, destination = LAYOUTS[layout]
    session = fragment(source, destination)
    random = np.random.default_rng(1)
    weights = random.standard_normal((8, 8), dtype=np.float32)
    views = VIEWS if "strided" in destination else {"whole": lambda base: base[:6, :8]}
    for name, view in views.items():
        for _ in range(3):  # the third is called another way
            whole = random.standard_normal((40, 40) if name != "whole" else (6, 8), dtype=np.float32)
            expected, x = whole.copy(), view(random.standard_normal(whole.shape, dtype=np.float32))
            view(expected)[...] += x @ weights + x
            returned = view(whole)
            assert session(x, weights, returned) is returned
            np.testing.assert_allclose(whole, expected, rtol=1e-5, atol=1e-5, err_msg=f"{layout}, {name}")


@pytest.mark.parametrize("layout", ["all dynamic", "any strides", "dynamic destination"])
def test_wrong_extents_are_an_error_of_the_call(layout: str) -> None:
    session = fragment(*LAYOUTS[layout])
    weights = np.zeros((8, 8), np.float32)
    for rows, written in ((6, (5, 8)), (6, (7, 8)), (6, (6, 7)), (6, (0, 8)), (6, (6, 8, 1)), (5, (6, 8))):
        y = np.full(written, 7, np.float32)
        with pytest.raises(CallError):
            session(np.zeros((rows, 8), np.float32), weights, y)
        assert (y == 7).all()
    if layout != "dynamic destination":
        assert session(np.zeros((0, 8), np.float32), weights, np.zeros((0, 8), np.float32)).shape == (0, 8)


def test_destinations_that_cannot_be_written_are_refused() -> None:
    kind = f"memref<?x?xf32{ANY}>"
    session = motet.load(motet.compile(
        f"func.func @m(%x: {kind}, %y: {kind}, %z: {kind}) {{\n"
        f"linalg.exp ins(%x : {kind}) outs(%y : {kind})\nlinalg.add ins(%x, %y : {kind}, {kind}) outs(%z : {kind})\n"
        "return }", devices="host{cpu=native}", cache=False,
    ))  # fmt: skip
    base, x = np.zeros((9, 9), np.float32), np.ones((4, 4), np.float32)
    overlapping = np.lib.stride_tricks.as_strided(base, (4, 4), (4, 4))
    with pytest.raises(CallError, match="elements of a destination overlap"):
        session(x, overlapping, np.zeros((4, 4), np.float32))
    with pytest.raises(CallError, match="read-only"):
        session(x, np.broadcast_to(base[0, :4], (4, 4)), np.zeros((4, 4), np.float32))
    with pytest.raises(CallError, match="shares memory"):
        session(x, base[:4, :4], base[3:7, 3:7])
    session(x, base[0:8:2, :4], base[1:9:2, :4])  # the rows between
    np.testing.assert_allclose(base[0, :4], np.e, rtol=1e-6)
    np.testing.assert_allclose(base[1, :4], 1 + np.e, rtol=1e-6)


def test_layouts_that_are_no_strides_are_refused() -> None:
    kind = "memref<8x8xf32, affine_map<(d0, d1) -> (d1 floordiv 4, d0, d1 mod 4)>>"
    with pytest.raises(CompileError, match="this memref layout is not supported; expected row-major"):
        motet.compile(f"func.func @m(%x: {kind}) {{\n return }}", cache=False)
