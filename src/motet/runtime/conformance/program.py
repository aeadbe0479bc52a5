"""Area `program`: whole programs, compiled by Motet for the device's family and run by a session."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from motet.errors import CompileError
from motet.runtime.conformance.check import Array, Skip, expect, expect_equal
from motet.runtime.conformance.listing import each
from motet.runtime.conformance.trial import DeviceTrial, in_threads
from motet.runtime.device import BUILT_IN

if TYPE_CHECKING:
    from motet.builder import Graph
    from motet.compiler.targets.family import Family
    from motet.runtime.session import Session

INNER, OUTER = 37, 53
LENGTHS = (0, 1, 2, 7, 63, 64, 65, 1009, 4095, 4097, 65_537)
_DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64}
TOLERANCE = 2e-5  # relative error of 32-bit floats in sums of INNER products


def whole_program(trial: DeviceTrial) -> None:
    """A compiled program with parameters and a dynamic extent gives numpy's results on the device: a layer and a
    softmax, for several extents."""
    _families()
    layer = _Layer(trial)
    session = _session(trial, layer.graph())
    try:
        for rows in (1, 2, 3, 17, 64, 101, 17):
            layer.check(session, rows)
    finally:
        session.close()


def integers(trial: DeviceTrial) -> None:
    """Integer arithmetic of a compiled program is exact: products, a sum, a maximum, in 8, 32 and 64 bits."""
    _families()
    from motet import builder

    with builder.Graph("integers") as graph:
        a, b = graph.input("a", ("n", 29), "i8"), graph.input("b", (29,), "i8")
        wide = builder.cast(a, "i32") * builder.cast(b, "i32")
        graph.result(builder.reduce_sum(wide, [1]), "sum")
        graph.result(builder.reduce_max(wide, [1]), "largest")
        graph.result(builder.cast(wide, "i64") * 1_000_003, "scaled")
    session = _session(trial, graph)
    try:
        for rows in (1, 13, 200):
            a = trial.random.integers(-128, 128, (rows, 29), np.int8)
            b = trial.random.integers(-128, 128, 29, np.int8)
            product = a.astype(np.int32) * b.astype(np.int32)
            expected = [product.sum(1, dtype=np.int32), product.max(1), product.astype(np.int64) * 1_000_003]
            for result, wanted in zip(session(a, b), expected, strict=True):
                expect_equal(np.asarray(result), wanted, f"{rows} rows: {wanted.dtype} of {wanted.shape}")
    finally:
        session.close()


def with_the_host(trial: DeviceTrial) -> None:
    """A program over this device and the host moves values between them: the device squares, the host adds, the device
    takes the root."""
    _families()
    from motet import builder

    with builder.Graph("two") as graph:
        x, y = graph.input("x", ("n", 45)), graph.input("y", ("n", 45))
        squares = builder.mul(x, x, device="device")
        total = builder.add(squares, builder.mul(y, y, device="cpu"), device="cpu")
        graph.result(builder.sqrt(total, device="device"), "hypotenuse")
        graph.result(total, "total")
    session = _session(trial, graph, {"cpu": "host"})
    try:
        for rows in (1, 7, 130):
            x, y = trial.random.standard_normal((2, rows, 45)).astype(np.float32)
            wanted = x.astype(np.float64) ** 2 + y.astype(np.float64) ** 2
            root, total = session(x, y)
            _expect_close(np.asarray(total), wanted, f"{rows} rows: what the host added")
            _expect_close(np.asarray(root), np.sqrt(wanted), f"{rows} rows: what the device took the root of")
    finally:
        session.close()


def calls_at_once(trial: DeviceTrial) -> None:
    """Threads that call one session concurrently, each with other extents, get their own results."""
    _families()
    layer = _Layer(trial)
    session = _session(trial, layer.graph())

    def work(number: int) -> None:
        for round_number in range(6):
            layer.check(session, 1 + 7 * number + round_number)

    try:
        in_threads(4, work)
    finally:
        session.close()


def elements(trial: DeviceTrial, dtype: str) -> None:
    """A program on vectors of {}, from the device's code generator, is exact for any number of elements: none, one, a
    prime, and around what vectors, tasks and pages hold."""
    _families()
    from motet import builder

    with builder.Graph(f"elements_{dtype}") as graph:
        x, y = graph.input("x", ("n",), dtype), graph.input("y", ("n",), dtype)
        graph.result(x * y + x, "z")
    session = _session(trial, graph)
    try:
        for count in LENGTHS:
            a, b = trial.random.integers(-11, 12, (2, count)).astype(_DTYPES[dtype])
            expect_equal(np.asarray(session(a, b)), a * b + a, f"{count} elements")
    finally:
        session.close()


class _Layer:
    """`softmax(relu(x w + b))` over rows, with its parameters; expected values are computed by numpy in 64 bits."""

    def __init__(self, trial: DeviceTrial) -> None:
        self.w = trial.random.standard_normal((INNER, OUTER)).astype(np.float32)
        self.b = trial.random.standard_normal(OUTER).astype(np.float32)

    def graph(self) -> Graph:
        from motet import builder

        with builder.Graph("layer") as graph:
            x = graph.input("x", ("rows", INNER))
            product = x @ graph.constant(self.w, name="w") + graph.constant(self.b, name="b")
            graph.result(builder.softmax(builder.relu(product), -1), "y")
        return graph

    def check(self, session: Session, rows: int) -> None:
        x = np.random.default_rng(rows).standard_normal((rows, INNER)).astype(np.float32)
        wide = np.maximum(x.astype(np.float64) @ self.w + self.b, 0)
        powers = np.exp(wide - wide.max(1, keepdims=True))
        _expect_close(np.asarray(session(x)), powers / powers.sum(1, keepdims=True), f"{rows} rows")


def _families() -> Mapping[str, Family]:
    """The families with code. Skips the check if the compiler is not installed."""
    missing = [name for name in ("torch_mlir", "llvmlite") if importlib.util.find_spec(name) is None]
    if missing:
        raise Skip(f"Motet's compiler is not installed (no {' nor '.join(missing)}); pip install 'motet[compile]'")
    from motet.compiler.targets.families import families

    return families()


def _session(trial: DeviceTrial, graph: Graph, others: Mapping[str, str] | None = None) -> Session:
    """`graph` compiled for the device's family and loaded, on the device alone or with `others`; the device is then the
    program's `device`."""
    import motet

    family, uri = trial.subject.info.family, trial.subject.uri
    known = _families().get(family)
    if known is None:
        raise Skip(f"no code can be made for {family} devices: no entry point of motet.targets describes that family")
    expression = f"{family}{{cpu={trial.code.target}}}" if trial.code.target in known.targets else family
    devices: Any = expression if others is None else {"device": expression, **others}
    try:
        artifact = motet.compile(graph, devices=devices)
    except CompileError as error:
        if known.codegen == "cpu" or family in BUILT_IN:  # which have code for every kernel
            raise
        raise Skip(f"the code generator {known.codegen} has no code for it: {error}") from None
    bindings: Any = uri if others is None else {"device": uri, **others}
    return motet.load(artifact, devices=bindings)


def _expect_close(actual: Array, expected: Array, what: str) -> None:
    expect(actual.shape == expected.shape, f"{what}: shape {actual.shape}; expected {expected.shape}")
    wrong = ~(np.abs(actual - expected) <= TOLERANCE * np.maximum(1e-3, np.abs(expected)))
    if wrong.any():
        first = int(np.argmax(wrong))
        expect(False, f"{what}: {int(wrong.sum())} of {wrong.size} elements differ; element {first} is "
               f"{actual.flat[first]}; expected {expected.flat[first]}")


CHECKS = (whole_program, integers, with_the_host, calls_at_once, each(elements, _DTYPES))
