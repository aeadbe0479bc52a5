"""Random programs that keep state, as text and as what they mean in numpy: assignments, branches, loops and calls."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

T = "tensor<3xf32>"
Array = np.ndarray


@dataclass(frozen=True)
class Load:
    name: str


@dataclass(frozen=True)
class Store:
    name: str
    factor: float  # stores factor · local + x


@dataclass(frozen=True)
class Branch:
    """On whether the first element of x is positive."""

    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]


@dataclass(frozen=True)
class Loop:
    """As often as the call says."""

    body: tuple[Statement, ...]


@dataclass(frozen=True)
class Call:
    function: str


Statement = Load | Store | Branch | Loop | Call


@dataclass(frozen=True)
class StateProgram:
    """`functions` take x and a count, and return the local that loads and calls add to."""

    globals: dict[str, list[float] | None]
    functions: dict[str, tuple[Statement, ...]]
    initializer: tuple[Statement, ...]
    private: frozenset[str]

    def public(self) -> list[str]:
        return [name for name in self.functions if name not in self.private]


def draw(seed: int) -> StateProgram:
    """The program of a seed."""
    rng = random.Random(seed)
    names = [f"s{i}" for i in range(rng.randint(1, 3))]
    values = {name: None if rng.random() < 0.3 else [float(rng.randint(-4, 4)) for _ in range(3)] for name in names}
    functions: dict[str, tuple[Statement, ...]] = {}
    for number in range(rng.randint(2, 4)):
        functions[f"f{number}"] = tuple(_statements(rng, names, list(functions), depth=2))
    private = frozenset(name for name in functions if rng.random() < 0.3 and name != f"f{len(functions) - 1}")
    initializer = tuple(_statements(rng, names, [], depth=0)) if rng.random() < 0.5 else ()
    return StateProgram(values, functions, initializer, private)


def _statements(rng: random.Random, names: list[str], known: list[str], depth: int) -> Iterator[Statement]:
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.35:
            yield Load(rng.choice(names))
        elif kind < 0.65 or depth == 0:
            yield Store(rng.choice(names), rng.choice([0.5, -1.0, 0.25]))
        elif kind < 0.8:
            yield Branch(tuple(_statements(rng, names, known, depth - 1)),
                         tuple(_statements(rng, names, known, depth - 1)) if rng.random() < 0.5 else ())
        elif kind < 0.9:
            yield Loop(tuple(_statements(rng, names, known, depth - 1)))
        elif known:
            yield Call(rng.choice(known))


# -- what it means


class Meaning:
    """The program run in numpy."""

    def __init__(self, program: StateProgram) -> None:
        self.program = program
        self.state = {
            name: np.array(value if value is not None else [0.0] * 3, np.float32)
            for name, value in program.globals.items()
        }
        self._run(program.initializer, np.full(3, 2, np.float32), 0)

    def call(self, name: str, x: Array, count: int) -> Array:
        return self._run(self.program.functions[name], x, count)

    def _run(self, statements: tuple[Statement, ...], x: Array, count: int, local: Array | None = None) -> Array:
        local = x if local is None else local
        for each in statements:
            if isinstance(each, Load):
                local = local + self.state[each.name]
            elif isinstance(each, Store):
                self.state[each.name] = np.float32(each.factor) * local + x
            elif isinstance(each, Branch):
                local = self._run(each.then if x[0] > 0 else each.otherwise, x, count, local)
            elif isinstance(each, Loop):
                for _ in range(count):
                    local = self._run(each.body, x, count, local)
            else:
                local = local + self.call(each.function, x, count)
        return local


# -- its text


def text_of(program: StateProgram, flat: bool = False) -> str:
    """MLIR with IREE's globals; `flat` has branches between blocks in place of scf."""
    lines: list[str] = []
    for name, value in program.globals.items():
        what = f": {T}" if value is None else f"= dense<{value}> : {T}"
        lines.append(f"util.global private mutable @{name} {what}")
    if program.initializer:
        lines += ["util.initializer {", f"  %x = arith.constant dense<2.0> : {T}", "  %n = arith.constant 0 : index"]
        lines += ["  " + line for line in _Writer(flat).body(program.initializer, "%x")[0]] + ["  util.return", "}"]
    for name, statements in program.functions.items():
        visibility = "private" if name in program.private else "public"
        lines += [f"util.func {visibility} @{name}(%x: {T}, %c: i32) -> {T} {{",
                  "  %n = arith.index_cast %c : i32 to index"]
        body, local = _Writer(flat).body(statements, "%x")
        lines += ["  " + line for line in body] + [f"  util.return {local} : {T}", "}"]
    return "\n".join(lines) + "\n"


class _Writer:
    def __init__(self, flat: bool) -> None:
        self.flat = flat
        self.count = 0

    def new(self, prefix: str = "%v") -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def body(self, statements: tuple[Statement, ...], local: str) -> tuple[list[str], str]:
        lines: list[str] = []
        for each in statements:
            more, local = self.statement(each, local)
            lines += more
        return lines, local

    def statement(self, each: Statement, local: str) -> tuple[list[str], str]:
        made, other, third = self.new(), self.new(), self.new()
        if isinstance(each, Load):
            return [f"{other} = util.global.load @{each.name} : {T}",
                    f"{made} = arith.addf {local}, {other} : {T}"], made
        if isinstance(each, Store):
            return [f"{made} = arith.constant dense<{each.factor}> : {T}",
                    f"{other} = arith.mulf {made}, {local} : {T}",
                    f"{third} = arith.addf {other}, %x : {T}", f"util.global.store {third}, @{each.name} : {T}"], local
        if isinstance(each, Call):
            return [f"{other} = util.call @{each.function}(%x, %c) : ({T}, i32) -> {T}",
                    f"{made} = arith.addf {local}, {other} : {T}"], made
        if isinstance(each, Loop):
            return self.loop(each, local, made)
        return self.branch(each, local, made)

    def loop(self, each: Loop, local: str, made: str) -> tuple[list[str], str]:
        zero, one, inside, number = self.new(), self.new(), self.new(), self.new()
        first = [f"{zero} = arith.constant 0 : index", f"{one} = arith.constant 1 : index"]
        body, last = self.body(each.body, made if self.flat else inside)
        if not self.flat:
            return [*first, f"{made} = scf.for {number} = {zero} to %n step {one} "
                    f"iter_args({inside} = {local}) -> ({T}) {{",
                    *body, f"scf.yield {last} : {T}", "}"], made
        head, block, end, more, following = self.new("^b"), self.new("^b"), self.new("^b"), self.new(), self.new()
        return [*first, f"cf.br {head}({zero}, {local} : index, {T})", f"{head}({number}: index, {made}: {T}):",
                f"{more} = arith.cmpi slt, {number}, %n : index", f"cf.cond_br {more}, {block}, {end}",
                f"{block}:", *body,
                f"{following} = arith.addi {number}, {one} : index", f"cf.br {head}({following}, {last} : index, {T})",
                f"{end}:"], made

    def branch(self, each: Branch, local: str, made: str) -> tuple[list[str], str]:
        first, zero, taken, index = self.new(), self.new(), self.new(), self.new()
        asked = [f"{index} = arith.constant 0 : index", f"{first} = tensor.extract %x[{index}] : {T}",
                 f"{zero} = arith.constant 0.0 : f32", f"{taken} = arith.cmpf ogt, {first}, {zero} : f32"]
        then, last = self.body(each.then, local)
        otherwise, other = self.body(each.otherwise, local)
        if not self.flat:
            return [*asked, f"{made} = scf.if {taken} -> ({T}) {{", *then, f"scf.yield {last} : {T}", "} else {",
                    *otherwise, f"scf.yield {other} : {T}", "}"], made
        a, b, end = self.new("^b"), self.new("^b"), self.new("^b")
        return [*asked, f"cf.cond_br {taken}, {a}, {b}", f"{a}:", *then, f"cf.br {end}({last} : {T})",
                f"{b}:", *otherwise, f"cf.br {end}({other} : {T})", f"{end}({made}: {T}):"], made


def calls_of(program: StateProgram, seed: int, count: int = 6) -> Iterator[tuple[str, Array, int]]:
    """Calls to make, one after the other."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        name = program.public()[int(rng.integers(len(program.public())))]
        yield name, rng.integers(-3, 4, 3).astype(np.float32), int(rng.integers(0, 3))
