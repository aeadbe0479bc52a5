"""Products with what may follow them, as MLIR text: what a library has words for, and what it has none for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProductText:
    """`rows` × `columns` × `depth`, `batch` times where that is not 0; a factor that is `turned` lies the other way;
    sums in `sums`, stored as `result`. `follows` are words: bias, residual, and at most one of relu, gelu, erf."""

    rows: int
    columns: int
    depth: int
    dtype: str = "bf16"
    result: str = ""
    batch: int = 0
    turned: tuple[bool, bool] = (False, False)
    follows: tuple[str, ...] = ()

    @property
    def sums(self) -> str:
        return {"i8": "i32", "f64": "f64"}.get(self.dtype, "f32")

    @property
    def stored(self) -> str:
        return self.result or (self.sums if self.dtype.startswith(("i", "f8")) else self.dtype)

    @property
    def shapes(self) -> list[tuple[tuple[int, ...], str]]:
        """Of the arguments."""
        left, right = (self.rows, self.depth), (self.depth, self.columns)
        shapes = [left[::-1] if self.turned[0] else left, right[::-1] if self.turned[1] else right]
        found = [((*([self.batch] if self.batch else []), *shape), self.dtype) for shape in shapes]
        if "bias" in self.follows:
            found.append(((self.columns,), self.stored))
        if "residual" in self.follows:
            found.append((self.shape, self.stored))
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        return (*([self.batch] if self.batch else []), self.rows, self.columns)

    @property
    def text(self) -> str:
        left, right, *others = [_tensor(*each) for each in self.shapes]
        wide, result = _tensor(self.shape, self.sums), _tensor(self.shape, self.stored)
        arguments = ", ".join(f"%a{i}: {kind}" for i, kind in enumerate((left, right, *others)))
        b = "b, " if self.batch else ""
        maps = [
            f"{b}{'k, i' if self.turned[0] else 'i, k'}", f"{b}{'j, k' if self.turned[1] else 'k, j'}", f"{b}i, j"
        ]
        kinds = ['"parallel"'] * (3 if self.batch else 2) + ['"reduction"']
        zero = "0" if self.sums == "i32" else "0.0"
        lines = [
            f"func.func @main({arguments}) -> {result} {{",
            f"  %zero = arith.constant {zero} : {self.sums}",
            f"  %e = tensor.empty() : {wide}",
            f"  %f = linalg.fill ins(%zero : {self.sums}) outs(%e : {wide}) -> {wide}",
            f"  %p = linalg.generic {{indexing_maps = [{_maps(f'{b}i, j, k', maps)}], iterator_types = "
            f"[{', '.join(kinds)}]}} ins(%a0, %a1 : {left}, {right}) outs(%f : {wide}) {{",
            f"  ^bb0(%x: {self.dtype}, %y: {self.dtype}, %s: {self.sums}):", *self._multiply(),
            f"    linalg.yield %t : {self.sums}", f"  }} -> {wide}",
        ]
        if not others and not self.follows and self.stored == self.sums:
            return "\n".join([*lines, f"  return %p : {result}", "}"])
        return "\n".join([*lines, *self._following(others, wide, result), "}"])

    def _multiply(self) -> list[str]:
        kind = "i" if self.sums == "i32" else "f"
        cast = "extsi" if kind == "i" else "extf"
        lines = [
            f"    %{to} = arith.{cast} %{of} : {self.dtype} to {self.sums}" for to, of in (("v", "x"), ("w", "y"))
        ] if self.dtype != self.sums else []
        a, b = ("v", "w") if lines else ("x", "y")
        return [
            *lines, f"    %m = arith.mul{kind} %{a}, %{b} : {self.sums}",
            f"    %t = arith.add{kind} %s, %m : {self.sums}",
        ]

    def _following(self, others: list[str], wide: str, result: str) -> list[str]:
        b = "b, " if self.batch else ""
        plain = [word for word in ("bias", "residual") if word in self.follows]
        maps = [f"{b}i, j", *("j" if word == "bias" else f"{b}i, j" for word in plain), f"{b}i, j"]
        names = ["%p", *(f"%a{2 + i}" for i in range(len(others)))]
        block = [f"%x: {self.sums}", *(f"%r{i}: {self.stored}" for i in range(len(others))), f"%z: {self.stored}"]
        lines, at = [], "%x"
        for i in range(len(others)):
            read = f"%r{i}"
            if self.stored != self.sums:
                lines.append(f"    %q{i} = arith.extf {read} : {self.stored} to {self.sums}")
                read = f"%q{i}"
            lines.append(f"    %u{i} = arith.addf {at}, {read} : {self.sums}")
            at = f"%u{i}"
        for word in self.follows:
            if word in _BODIES:
                lines += [f"    {line.format(x=at, t=self.sums)}" for line in _BODIES[word]]
                at = "%act"
        if self.stored != self.sums:
            lines.append(f"    %out = arith.truncf {at} : {self.sums} to {self.stored}")
            at = "%out"
        kinds = ", ".join(['"parallel"'] * (3 if self.batch else 2))
        return [
            f"  %d = tensor.empty() : {result}",
            f"  %n = linalg.generic {{indexing_maps = [{_maps(f'{b}i, j', maps)}], iterator_types = [{kinds}]}} "
            f"ins({', '.join(names)} : {', '.join([wide, *others])}) outs(%d : {result}) {{",
            f"  ^bb0({', '.join(block)}):", *lines, f"    linalg.yield {at} : {self.stored}", f"  }} -> {result}",
            f"  return %n : {result}",
        ]


_BODIES = {
    "relu": ["%nil = arith.constant 0.0 : {t}", "%act = arith.maximumf {x}, %nil : {t}"],
    "gelu": [
        "%c1 = arith.constant 0.044715 : {t}", "%c2 = arith.constant 0.7978845608 : {t}",
        "%c3 = arith.constant 0.5 : {t}", "%c4 = arith.constant 1.0 : {t}",
        "%g1 = arith.mulf {x}, {x} : {t}", "%g2 = arith.mulf %g1, {x} : {t}", "%g3 = arith.mulf %g2, %c1 : {t}",
        "%g4 = arith.addf {x}, %g3 : {t}", "%g5 = arith.mulf %g4, %c2 : {t}", "%g6 = math.tanh %g5 : {t}",
        "%g7 = arith.addf %g6, %c4 : {t}", "%g8 = arith.mulf {x}, %c3 : {t}", "%act = arith.mulf %g8, %g7 : {t}",
    ],
    "erf": [
        "%c2 = arith.constant 0.70710678 : {t}", "%c3 = arith.constant 0.5 : {t}", "%c4 = arith.constant 1.0 : {t}",
        "%g5 = arith.mulf {x}, %c2 : {t}", "%g6 = math.erf %g5 : {t}", "%g7 = arith.addf %g6, %c4 : {t}",
        "%g8 = arith.mulf {x}, %c3 : {t}", "%act = arith.mulf %g8, %g7 : {t}",
    ],
    "six": ["%nil = arith.constant 6.0 : {t}", "%act = arith.minimumf {x}, %nil : {t}"],
}


def _tensor(shape: tuple[int, ...], dtype: str) -> str:
    return f"tensor<{''.join(f'{size}x' for size in shape)}{dtype}>"


def _maps(dims: str, maps: list[str]) -> str:
    return ", ".join(f"affine_map<({dims}) -> ({each})>" for each in maps)
