"""LLVM IR of single instructions on values that are read from a buffer, for every type and several lengths of vectors.

Each case reads its operands from buffer 0 and writes its result to buffer 1, so that two machines can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

INTEGERS = ("i8", "i16", "i32", "i64")
FLOATS = ("half", "bfloat", "float", "double")
BITS = {"i8": 8, "i16": 16, "i32": 32, "i64": 64, "half": 16, "bfloat": 16, "float": 32, "double": 64, "i1": 8}
_SUFFIX = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_NUMPY = {"half": np.float16, "bfloat": ml_dtypes.bfloat16, "float": np.float32, "double": np.float64}
_LANES = (1, 3, 8, 16, 5, 2)
_SLOT = 256  # bytes of an operand or a result
_PREDICATES = ("eq", "ne", "ugt", "uge", "ult", "ule", "sgt", "sge", "slt", "sle")
_FLOAT_PREDICATES = (
    "oeq", "ogt", "oge", "olt", "ole", "one", "ord", "ueq", "ugt", "uge", "ult", "ule", "une", "uno", "true", "false",
)


@dataclass
class Result:
    """What a case writes: `count` elements of `kind` in slot `slot`."""

    name: str
    kind: str
    count: int
    slot: int

    def equal(self, mine: bytes, other: bytes) -> bool:
        """Whether two machines wrote the same; a NaN is as good as another."""
        size = self.count * BITS[self.kind] // 8
        begin = self.slot * _SLOT
        a, b = mine[begin : begin + size], other[begin : begin + size]
        if self.kind not in _NUMPY:
            return a == b
        x, y = (np.frombuffer(each, _NUMPY[self.kind]).astype(np.float64) for each in (a, b))
        first, second = (np.signbit(each)[each == each] for each in (x, y))
        return np.array_equal(x, y, equal_nan=True) and np.array_equal(first, second)


@dataclass
class Cases:
    """A function of cases, its input and what it writes."""

    seed: int
    lines: list[str] = field(default_factory=list[str])
    results: list[Result] = field(default_factory=list[Result])
    inputs: bytearray = field(default_factory=bytearray)
    declared: set[str] = field(default_factory=set[str])
    values: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def name(self) -> str:
        self.values += 1
        return f"%v{self.values}"

    def line(self, text: str) -> str:
        """An instruction with a result; its name."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def given(self, kind: str, lanes: int, numbers: np.ndarray | None = None) -> str:
        """An operand of `lanes` elements from buffer 0."""
        place = len(self.inputs)
        data = (numbers if numbers is not None else self._numbers(kind, lanes)).tobytes()
        self.inputs += data + bytes(_SLOT - len(data))
        stored = "i8" if kind == "i1" else kind
        address = self.line(f"getelementptr i8, ptr %in, i64 {place}")
        value = self.line(f"load {many(stored, lanes)}, ptr {address}, align {BITS[kind] // 8}")
        return self.line(f"trunc {many('i8', lanes)} {value} to {many('i1', lanes)}") if kind == "i1" else value

    def _numbers(self, kind: str, lanes: int) -> np.ndarray:
        if kind in ("i1", *INTEGERS):
            numbers = self.rng.integers(0, 256, lanes * BITS[kind] // 8, np.uint8)
            return np.where(self.rng.random(numbers.size) < 0.2, np.uint8(0), numbers)
        numbers = self.rng.standard_normal(lanes) * np.exp2(self.rng.integers(-12, 12, lanes))
        special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-7, -6e-8, 0.5, -2.5, 65504.0, 3e-39, 1.0])
        special = special[special != 3e-39] if kind == "bfloat" else special  # hosts take subnormal ones for zeros
        with np.errstate(over="ignore"):
            return np.where(self.rng.random(lanes) < 0.4, self.rng.choice(special, lanes), numbers).astype(_NUMPY[kind])

    def result(self, name: str, kind: str, lanes: int, value: str) -> None:
        """Write `value` to buffer 1."""
        if kind == "i1":
            value = self.line(f"zext {many('i1', lanes)} {value} to {many('i8', lanes)}")
        slot = len(self.results)
        self.results.append(Result(f"{name} {many(kind, lanes)}", kind, lanes, slot))
        address = self.line(f"getelementptr i8, ptr %out, i64 {slot * _SLOT}")
        stored = many("i8" if kind == "i1" else kind, lanes)
        self.lines.append(f"  store {stored} {value}, ptr {address}, align {BITS[kind] // 8}")

    def called(self, name: str, kind: str, arguments: Sequence[tuple[str, str]]) -> str:
        """A call of an intrinsic function."""
        types = ", ".join(each for each, _ in arguments)
        self.declared.add(f"declare {kind} @{name}({types})")
        return self.line(f"call {kind} @{name}({', '.join(f'{each} {value}' for each, value in arguments)})")

    @property
    def text(self) -> str:
        return "\n".join([
            *sorted(self.declared),
            "define void @cases(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch) {",
            "  %in = load ptr, ptr %buffers", "  %second = getelementptr ptr, ptr %buffers, i64 1",
            "  %out = load ptr, ptr %second", *self.lines, "  ret void", "}",
        ])

    @property
    def written(self) -> int:
        return len(self.results) * _SLOT


def many(kind: str, lanes: int) -> str:
    """A vector of `lanes` lanes; for one, the scalar."""
    return f"<{lanes} x {kind}>" if lanes > 1 else kind


def mangled(kind: str, lanes: int) -> str:
    """The end of an intrinsic function's name."""
    return (f"v{lanes}" if lanes > 1 else "") + _SUFFIX.get(kind, kind)


def splat(kind: str, lanes: int, number: int | str) -> str:
    return f"splat ({kind} {number})" if lanes > 1 else str(number)


def _turns() -> Iterator[int]:
    while True:
        yield from _LANES


def integer_arithmetic(cases: Cases) -> None:
    turns = _turns()
    for kind in INTEGERS:
        for opcode in ("add", "sub", "mul", "and", "or", "xor", "udiv", "urem", "sdiv", "srem", "shl", "lshr", "ashr"):
            for n in (next(turns), next(turns)):
                a, b = cases.given(kind, n), cases.given(kind, n)
                if opcode[1:] in ("div", "rem"):
                    b = cases.line(f"or {many(kind, n)} {b}, {splat(kind, n, 1)}")
                    b = cases.line(f"and {many(kind, n)} {b}, {splat(kind, n, 127)}")
                if opcode in ("shl", "lshr", "ashr"):
                    b = cases.line(f"and {many(kind, n)} {b}, {splat(kind, n, BITS[kind] - 1)}")
                cases.result(opcode, kind, n, cases.line(f"{opcode} {many(kind, n)} {a}, {b}"))
        for predicate in _PREDICATES:
            n = next(turns)
            a, b = cases.given(kind, n), cases.given(kind, n)
            cases.result(predicate, "i1", n, cases.line(f"icmp {predicate} {many(kind, n)} {a}, {b}"))
    for predicate in _PREDICATES:
        for n in (1, 3):
            a, b = cases.given("i1", n), cases.given("i1", n)
            cases.result(predicate, "i1", n, cases.line(f"icmp {predicate} {many('i1', n)} {a}, {b}"))


def odd_integers(cases: Cases) -> None:
    """Of a width that C lacks."""
    turns = _turns()
    for bits in (3, 24, 33):
        wide, own = ("i64", f"i{bits}")
        for opcode in ("add", "mul", "sub", "sdiv", "ashr", "slt", "ctlz", "ctpop", "sitofp", "abs"):
            n = next(turns)
            a, b = (
                cases.line(f"trunc {many(wide, n)} {cases.given(wide, n)} to {many(own, n)}") for _ in range(2)
            )
            kind = many(own, n)
            if opcode == "sdiv":
                b = cases.line(f"or {kind} {b}, {splat(own, n, 1)}")
                b = cases.line(f"and {kind} {b}, {splat(own, n, 3)}")
            if opcode == "ashr":
                b = splat(own, n, 2)
            if opcode == "slt":
                cases.result(f"slt i{bits}", "i1", n, cases.line(f"icmp slt {kind} {a}, {b}"))
                continue
            if opcode == "sitofp":
                found = cases.line(f"sitofp {kind} {a} to {many('double', n)}")
                cases.result(f"sitofp i{bits}", "double", n, found)
                continue
            if opcode in ("ctlz", "abs"):
                made = cases.called(f"llvm.{opcode}.{mangled(own, n)}", kind, [(kind, a), ("i1", "false")])
            elif opcode == "ctpop":
                made = cases.called(f"llvm.ctpop.{mangled(own, n)}", kind, [(kind, a)])
            else:
                made = cases.line(f"{opcode} {kind} {a}, {b}")
            for extension in ("zext", "sext"):
                found = cases.line(f"{extension} {kind} {made} to {many(wide, n)}")
                cases.result(f"{opcode} i{bits} {extension}", wide, n, found)


def integer_functions(cases: Cases) -> None:
    turns = _turns()
    for kind in INTEGERS:
        for name, count in (
            ("smax", 2), ("smin", 2), ("umax", 2), ("umin", 2), ("sadd.sat", 2), ("uadd.sat", 2), ("ssub.sat", 2),
            ("usub.sat", 2), ("ctpop", 1), ("ctlz", 1), ("cttz", 1), ("abs", 1), ("fshl", 3), ("fshr", 3),
            ("bitreverse", 1), ("bswap", 1),
        ):
            if (name, kind) == ("bswap", "i8"):
                continue
            n = next(turns)
            arguments = [(many(kind, n), cases.given(kind, n)) for _ in range(count)]
            if name in ("ctlz", "cttz", "abs"):
                arguments.append(("i1", "false"))
            found = cases.called(f"llvm.{name}.{mangled(kind, n)}", many(kind, n), arguments)
            cases.result(name, kind, n, found)
        for name in ("sadd", "uadd", "ssub", "usub", "smul", "umul"):
            n = next(turns)
            whole = f"{{{many(kind, n)}, {many('i1', n)}}}"
            arguments = [(many(kind, n), cases.given(kind, n)) for _ in range(2)]
            both = cases.called(f"llvm.{name}.with.overflow.{mangled(kind, n)}", whole, arguments)
            cases.result(name, kind, n, cases.line(f"extractvalue {whole} {both}, 0"))
            cases.result(f"{name} flag", "i1", n, cases.line(f"extractvalue {whole} {both}, 1"))
        for name in ("add", "mul", "and", "or", "xor", "smax", "smin", "umax", "umin"):
            n = max(2, next(turns))
            vector = cases.given(kind, n)
            found = cases.called(f"llvm.vector.reduce.{name}.{mangled(kind, n)}", kind, [(many(kind, n), vector)])
            cases.result(f"reduce {name}", kind, 1, found)
    for name in ("and", "or", "xor"):
        vector = cases.given("i1", 11)
        found = cases.called(f"llvm.vector.reduce.{name}.v11i1", "i1", [("<11 x i1>", vector)])
        cases.result(f"reduce {name}", "i1", 1, found)


def float_arithmetic(cases: Cases) -> None:
    turns = _turns()
    for kind in FLOATS:
        for opcode in ("fadd", "fsub", "fmul", "fdiv"):
            for n in (next(turns), next(turns)):
                a, b = cases.given(kind, n), cases.given(kind, n)
                cases.result(opcode, kind, n, cases.line(f"{opcode} {many(kind, n)} {a}, {b}"))
        n = next(turns)
        cases.result("fneg", kind, n, cases.line(f"fneg {many(kind, n)} {cases.given(kind, n)}"))
        for predicate in _FLOAT_PREDICATES:
            n = next(turns)
            a, b = cases.given(kind, n), cases.given(kind, n)
            cases.result(predicate, "i1", n, cases.line(f"fcmp {predicate} {many(kind, n)} {a}, {b}"))
        functions = ["fabs", "floor", "ceil", "trunc", "rint", "roundeven", "round"]
        if kind in ("float", "double"):
            functions.append("sqrt")
        for name in functions:
            n = next(turns)
            argument = (many(kind, n), cases.given(kind, n))
            cases.result(name, kind, n, cases.called(f"llvm.{name}.{mangled(kind, n)}", many(kind, n), [argument]))
        for name in ("maximum", "minimum", "copysign"):
            n = next(turns)
            arguments = [(many(kind, n), cases.given(kind, n)) for _ in range(2)]
            cases.result(name, kind, n, cases.called(f"llvm.{name}.{mangled(kind, n)}", many(kind, n), arguments))
    for kind in ("float", "double"):
        for n in (1, 8):
            arguments = [(many(kind, n), cases.given(kind, n)) for _ in range(3)]
            cases.result("fma", kind, n, cases.called(f"llvm.fma.{mangled(kind, n)}", many(kind, n), arguments))
        arguments = [(kind, cases.given(kind, 1)), (many(kind, 9), cases.given(kind, 9))]
        total = cases.called(f"llvm.vector.reduce.fadd.v9{_SUFFIX[kind]}", kind, arguments)
        cases.result("reduce fadd", kind, 1, total)


def conversions(cases: Cases) -> None:
    turns = _turns()
    for source in ("i1", *INTEGERS):
        for target in ("i1", *INTEGERS):
            n = next(turns)
            width, wanted = (1 if each == "i1" else BITS[each] for each in (source, target))
            for opcode in ("zext", "sext") if width < wanted else ("trunc",) if width > wanted else ():
                value = cases.given(source, n)
                found = cases.line(f"{opcode} {many(source, n)} {value} to {many(target, n)}")
                cases.result(f"{opcode} {source}", target, n, found)
        for target in FLOATS:
            n = next(turns)
            for opcode in ("sitofp", "uitofp"):
                if source == "i64" and target in ("half", "bfloat"):
                    continue  # hosts round twice
                value = cases.given(source, n)
                found = cases.line(f"{opcode} {many(source, n)} {value} to {many(target, n)}")
                cases.result(f"{opcode} {source}", target, n, found)
    for source in FLOATS:
        for target in INTEGERS:
            for name in ("fptosi", "fptoui"):
                n = next(turns)
                whole = cases.given(source, n)
                if source == "half":  # hosts with AVX-512 FP16 do not take NaN to 0
                    both = cases.line(f"fcmp ord {many(source, n)} {whole}, {whole}")
                    operands = f"{many('i1', n)} {both}, {many(source, n)} {whole}"
                    whole = cases.line(f"select {operands}, {many(source, n)} {splat(source, n, '1.0')}")
                argument = (many(source, n), whole)
                own = f"llvm.{name}.sat.{mangled(target, n)}.{mangled(source, n)}"
                cases.result(f"{name}.sat {source}", target, n, cases.called(own, many(target, n), [argument]))
                numbers = cases.rng.uniform(0 if name == "fptoui" else -120, 120, n).astype(_NUMPY[source])
                value = cases.given(source, n, numbers)
                found = cases.line(f"{name} {many(source, n)} {value} to {many(target, n)}")
                cases.result(f"{name} {source}", target, n, found)
        for target in FLOATS:
            n = next(turns)
            if BITS[source] == BITS[target] or (source, target) == ("double", "bfloat"):
                continue  # hosts lack a function for the latter
            opcode = "fpext" if BITS[source] < BITS[target] else "fptrunc"
            found = cases.line(f"{opcode} {many(source, n)} {cases.given(source, n)} to {many(target, n)}")
            cases.result(f"{opcode} {source}", target, n, found)


def lanes(cases: Cases) -> None:
    turns = _turns()
    for kind in (*INTEGERS, *FLOATS, "i1"):
        for _ in range(3):
            n, m, result = (max(2, next(turns)) for _ in range(3))
            n = m
            order = cases.rng.integers(0, 2 * n, result)
            if cases.rng.random() < 0.3:
                order = (order[0] + np.arange(result)) % (2 * n)
            mask = ", ".join(f"i32 {lane}" for lane in order)
            a, b = cases.given(kind, n), cases.given(kind, n)
            operands = f"{many(kind, n)} {a}, {many(kind, n)} {b}, <{result} x i32> <{mask}>"
            cases.result(f"shuffle {mask}", kind, result, cases.line(f"shufflevector {operands}"))
        n = max(2, next(turns))
        vector, scalar = cases.given(kind, n), cases.given(kind, 1)
        index = cases.line(f"urem i64 {cases.given('i64', 1)}, {n}")
        for place in (index, str(n - 1)):
            made = cases.line(f"insertelement {many(kind, n)} {vector}, {kind} {scalar}, i64 {place}")
            cases.result("insert", kind, n, made)
            cases.result("extract", kind, 1, cases.line(f"extractelement {many(kind, n)} {vector}, i64 {place}"))
        n = next(turns)
        a, b = cases.given(kind, n), cases.given(kind, n)
        for chosen in (many("i1", n), "i1"):
            mask = cases.given("i1", 1 if chosen == "i1" else n)
            operands = f"{chosen} {mask}, {many(kind, n)} {a}, {many(kind, n)} {b}"
            cases.result("select", kind, n, cases.line(f"select {operands}"))
    for source, n, target, m in (
        ("i32", 8, "i8", 32), ("i8", 24, "i64", 3), ("float", 3, "i32", 3), ("i64", 1, "float", 2),
        ("half", 5, "i16", 5), ("i16", 8, "bfloat", 8), ("double", 2, "i32", 4), ("i1", 8, "i8", 1),
        ("i1", 16, "i16", 1), ("i16", 1, "i1", 16), ("i8", 16, "i16", 8), ("i32", 1, "i8", 4),
    ):
        found = cases.line(f"bitcast {many(source, n)} {cases.given(source, n)} to {many(target, m)}")
        cases.result(f"bitcast {many(source, n)}", target, m, found)


def memory(cases: Cases) -> None:
    turns = _turns()
    for kind in (*INTEGERS, "float", "double", "half"):
        n = max(2, next(turns))
        size = BITS[kind] // 8
        vector, mask, otherwise = cases.given(kind, n), cases.given("i1", n), cases.given(kind, n)
        private = cases.line(f"alloca [{n} x {kind}], align 16")
        cases.lines.append(f"  store {many(kind, n)} {otherwise}, ptr {private}, align {size}")
        cases.declared.add(
            f"declare void @llvm.masked.store.{mangled(kind, n)}.p0({many(kind, n)}, ptr, i32, {many('i1', n)})"
        )
        cases.lines.append(
            f"  call void @llvm.masked.store.{mangled(kind, n)}.p0({many(kind, n)} {vector}, ptr {private}, "
            f"i32 {size}, {many('i1', n)} {mask})"
        )
        cases.result("masked.store", kind, n, cases.line(f"load {many(kind, n)}, ptr {private}, align {size}"))
        loaded = cases.called(f"llvm.masked.load.{mangled(kind, n)}.p0", many(kind, n), [
            ("ptr", private), ("i32", str(size)), (many("i1", n), mask), (many(kind, n), vector),
        ])
        cases.result("masked.load", kind, n, loaded)
        index = cases.line(f"urem {many('i64', n)} {cases.given('i64', n)}, {splat('i64', n, n)}")
        addresses = cases.line(f"getelementptr {kind}, ptr {private}, {many('i64', n)} {index}")
        gathered = cases.called(f"llvm.masked.gather.{mangled(kind, n)}.v{n}p0", many(kind, n), [
            (many("ptr", n), addresses), ("i32", str(size)), (many("i1", n), mask), (many(kind, n), vector),
        ])
        cases.result("masked.gather", kind, n, gathered)
