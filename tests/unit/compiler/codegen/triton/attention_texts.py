"""Attention as programs in MLIR, spelled in several ways, and what it is in numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from motet.artifact.dtypes import DTYPES

Mask = Literal["none", "causal", "ahead", "float", "rows", "bool", "both"]


@dataclass(frozen=True)
class Form:
    """`queries` and `keys` are lengths of sequences. `swapped`: tensors are batch, sequence, head, depth.
    `collapsed`: products are of rank 3, with reshapes around them. `past` is how many keys are before the first query.
    `dynamic`: batch and lengths are not known when compiling."""

    batch: int = 2
    heads: int = 2
    groups: int = 1
    queries: int = 7
    keys: int = 7
    depth: int = 8
    width: int = 8
    dtype: str = "f32"
    mask: Mask = "none"
    scale: float = 0.35
    hidden: str = "0xFF800000"  # what a mask puts in place of a score
    swapped: bool = False
    collapsed: bool = False
    named: bool = False  # linalg.softmax
    past: int = 0
    dynamic: bool = False
    # how it is said that queries without keys give zeros; with "weights", all queries whose weights are not numbers
    safe: Literal["", "all", "any", "largest", "wide", "weights"] = ""
    factor: float = 1.0  # of queries and of keys, each multiplied on its own
    fresh: int = 0  # the last keys and values that come as tensors of their own, the last two

    @property
    def total(self) -> int:
        return self.heads * self.groups


def shapes(form: Form) -> list[tuple[int, ...]]:
    """Of q, k, v and, where there is one, the mask."""
    f = form

    def tensor(heads: int, length: int, width: int) -> tuple[int, ...]:
        return (f.batch, length, heads, width) if f.swapped else (f.batch, heads, length, width)

    kept = f.keys - f.fresh
    found = [tensor(f.total, f.queries, f.depth), tensor(f.heads, kept, f.depth), tensor(f.heads, kept, f.width)]
    masks = {"float": (f.batch, 1, f.queries, f.keys), "rows": (f.batch, 1, 1, f.keys),
             "bool": (f.queries, f.keys), "both": (f.batch, 1, 1, f.keys)}
    found += [masks[f.mask]] if f.mask in masks else []
    return found + ([tensor(f.heads, f.fresh, f.depth), tensor(f.heads, f.fresh, f.width)] if f.fresh else [])


class _Text:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.count = 0

    def add(self, text: str) -> str:
        name = f"%{self.count}"
        self.count += 1
        self.lines.append(f"  {name} = {text}")
        return name


def _type(sizes: list[int | str], dtype: str) -> str:
    return "tensor<" + "".join(f"{'?' if isinstance(s, str) else s}x" for s in sizes) + dtype + ">"


Tensor = tuple[str, list[int | str], str]  # name, extents (a value's name where dynamic), dtype


class _Program:
    def __init__(self, form: Form) -> None:
        self.f = form
        self.t = _Text()

    def empty(self, sizes: list[int | str], dtype: str) -> str:
        dynamic = ", ".join(size for size in sizes if isinstance(size, str))
        return self.t.add(f"tensor.empty({dynamic}) : {_type(sizes, dtype)}")

    def filled(self, sizes: list[int | str], dtype: str, value: str) -> str:
        empty = self.empty(sizes, dtype)
        constant = self.t.add(f"arith.constant {value} : {dtype}")
        kind = _type(sizes, dtype)
        return self.t.add(f"linalg.fill ins({constant} : {dtype}) outs({empty} : {kind}) -> {kind}")

    def nest(
        self, ins: list[tuple[Tensor, str]], sizes: list[int | str], dtype: str, out: str, body: list[str],
        kinds: str, begin: str = "",
    ) -> Tensor:
        """A `linalg.generic`: maps are letters of dimensions, `body` lines over %x0, %x1, … and %o, that end in %z."""
        dims = [chr(ord("a") + i) for i in range(len(kinds))]
        target = self.filled(sizes, dtype, begin) if begin else self.empty(sizes, dtype)
        head = ", ".join(dims)
        maps = [f"affine_map<({head}) -> ({', '.join(m)})>" for m in [*(m for _, m in ins), out]]
        iterators = ", ".join(f'"{"parallel" if kind == "p" else "reduction"}"' for kind in kinds)
        arguments = [f"%x{i}: {x[2]}" for i, (x, _) in enumerate(ins)] + [f"%o: {dtype}"]
        names = ", ".join(x[0] for x, _ in ins)
        types = ", ".join(_type(x[1], x[2]) for x, _ in ins)
        kind = _type(sizes, dtype)
        inputs = f" ins({names} : {types})" if ins else ""
        name = self.t.add(
            f"linalg.generic {{indexing_maps = [{', '.join(maps)}], iterator_types = [{iterators}]}}{inputs} "
            f"outs({target} : {kind}) {{\n  ^bb0({', '.join(arguments)}):\n    "
            + "\n    ".join([*body, f"linalg.yield %z : {dtype}"]) + f"\n  }} -> {kind}"
        )
        return name, sizes, dtype

    def product(self, a: Tensor, b: Tensor, a_map: str, b_map: str, sizes: list[int | str], rank: int) -> Tensor:
        letters = "abcdefg"[: rank]
        out, last = letters[:-1], letters[-1]
        short = a[2] != "f32"
        body = [f"%l = arith.extf %x0 : {a[2]} to f32", f"%r = arith.extf %x1 : {a[2]} to f32"] if short else []
        left, right = ("%l", "%r") if short else ("%x0", "%x1")
        body += [f"%m = arith.mulf {left}, {right} : f32", "%z = arith.addf %o, %m : f32"]
        assert last in a_map
        return self.nest([(a, a_map), (b, b_map)], sizes, "f32", out, body, "p" * (rank - 1) + "r", "0.0")


def text(form: Form) -> str:
    """`main(q, k, v, mask)` → batch, head, sequence, width, or as `swapped`."""
    p, f = _Program(form), form
    dtype = f.dtype
    arguments: list[str] = []
    tensors: list[Tensor] = []
    for i, shape in enumerate(shapes(f)):
        masked = i == 3 and f.mask not in ("none", "causal", "ahead")
        kind = dtype if not masked else "i1" if f.mask in ("bool", "both") else "f32"
        sizes: list[int | str] = list(shape)
        if f.dynamic:
            dynamic = {0, 1 if f.swapped else 2} if i < 3 else {0}
            for axis in dynamic:
                index = p.t.add(f"arith.constant {axis} : index")
                sizes[axis] = "?"
                sizes[axis] = p.t.add(f"tensor.dim %arg{i}, {index} : {_type(sizes_of(shape, dynamic), kind)}")
        tensors.append((f"%arg{i}", sizes, kind))
        arguments.append(f"%arg{i}: {_type(sizes, kind)}")
    q, k, v = tensors[:3]
    if f.swapped:
        q, k, v = (_transposed(p, x) for x in (q, k, v))
    if f.fresh:
        last = [_transposed(p, x) if f.swapped else x for x in tensors[-2:]]
        k, v = (_joined(p, *pair) for pair in zip((k, v), last, strict=True))
    if f.factor != 1:
        q, k = (_multiplied(p, x, f.factor) for x in (q, k))
    if f.groups > 1:
        k, v = (_repeated(p, x, f.groups) for x in (k, v))
    b, h, m, _ = q[1]
    n, e = k[1][2], v[1][3]
    if f.collapsed:
        q, k, v = (_collapsed(p, x) for x in (q, k, v))
        s = p.product(q, k, "abd", "acd", [q[1][0], m, n], 4)
        s = _expanded(p, s, [b, h, m, n])
    else:
        s = p.product(q, k, "abce", "abde", [b, h, m, n], 5)
    scale = p.t.add(f"arith.constant {f.scale} : f32")
    s = p.nest([(s, "abcd")], s[1], "f32", "abcd", [f"%z = arith.mulf %x0, {scale} : f32"], "pppp")
    s = _masked(p, s, tensors)
    w = _guarded(p, s, _softmax(p, s))
    if dtype != "f32":
        w = p.nest([(w, "abcd")], w[1], dtype, "abcd", [f"%z = arith.truncf %x0 : f32 to {dtype}"], "pppp")
    if f.collapsed:
        w = _collapsed(p, w)
        y = p.product(w, v, "abd", "adc", [w[1][0], m, e], 4)
        y = _expanded(p, y, [b, h, m, e])
    else:
        y = p.product(w, v, "abce", "abed", [b, h, m, e], 5)
    if dtype != "f32":
        y = p.nest([(y, "abcd")], y[1], dtype, "abcd", [f"%z = arith.truncf %x0 : f32 to {dtype}"], "pppp")
    if f.swapped:
        y = _transposed(p, y)
    kind = _type(y[1], y[2])
    body = "\n".join(p.t.lines)
    return f"func.func @main({', '.join(arguments)}) -> {kind} {{\n{body}\n  return {y[0]} : {kind}\n}}\n"


def sizes_of(shape: tuple[int, ...], dynamic: set[int]) -> list[int | str]:
    return ["?" if axis in dynamic else size for axis, size in enumerate(shape)]


def _transposed(p: _Program, x: Tensor) -> Tensor:
    a, b, c, d = x[1]
    return _copied(p, x, "acbd", [a, c, b, d], "abcd")


def _copied(p: _Program, x: Tensor, read: str, sizes: list[int | str], out: str) -> Tensor:
    dims = ", ".join(chr(ord("a") + i) for i in range(len(sizes)))
    maps = f"affine_map<({dims}) -> ({', '.join(read)})>, affine_map<({dims}) -> ({', '.join(out)})>"
    iterators = ", ".join(['"parallel"'] * len(sizes))
    kind = _type(sizes, x[2])
    empty = p.empty(sizes, x[2])
    name = p.t.add(
        f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} ins({x[0]} : "
        f"{_type(x[1], x[2])}) outs({empty} : {kind}) {{\n  ^bb0(%x0: {x[2]}, %o: {x[2]}):\n"
        f"    linalg.yield %x0 : {x[2]}\n  }} -> {kind}"
    )
    return name, sizes, x[2]


def _multiplied(p: _Program, x: Tensor, factor: float) -> Tensor:
    number = p.t.add(f"arith.constant {factor} : {x[2]}")
    return p.nest([(x, "abcd")], x[1], x[2], "abcd", [f"%z = arith.mulf %x0, {number} : {x[2]}"], "pppp")


def _repeated(p: _Program, x: Tensor, groups: int) -> Tensor:
    """Every head `groups` times."""
    b, h, n, d = x[1]
    assert isinstance(h, int)
    y = _copied(p, x, "abde", [b, h, groups, n, d], "abcde")
    sizes: list[int | str] = [b, h * groups, n, d]
    name = p.t.add(
        f"tensor.collapse_shape {y[0]} [[0], [1, 2], [3], [4]] : {_type(y[1], x[2])} into {_type(sizes, x[2])}"
    )
    return name, sizes, x[2]


def _joined(p: _Program, x: Tensor, y: Tensor) -> Tensor:
    b, h, n, d = x[1]
    assert isinstance(n, int)
    sizes: list[int | str] = [b, h, n + p.f.fresh, d]
    name = p.t.add(
        f"tensor.concat dim(2) {x[0]}, {y[0]} : ({_type(x[1], x[2])}, {_type(y[1], y[2])}) -> {_type(sizes, x[2])}"
    )
    return name, sizes, x[2]


def _collapsed(p: _Program, x: Tensor) -> Tensor:
    b, h, m, d = x[1]
    assert isinstance(h, int)
    if isinstance(b, str):
        count = p.t.add(f"arith.constant {h} : index")
        both: int | str = p.t.add(f"arith.muli {b}, {count} : index")
    else:
        both = b * h
    sizes = [both, m, d]
    name = p.t.add(f"tensor.collapse_shape {x[0]} [[0, 1], [2], [3]] : {_type(x[1], x[2])} into {_type(sizes, x[2])}")
    return name, sizes, x[2]


def _expanded(p: _Program, x: Tensor, sizes: list[int | str]) -> Tensor:
    shape = ", ".join(map(str, sizes))
    name = p.t.add(
        f"tensor.expand_shape {x[0]} [[0, 1], [2], [3]] output_shape [{shape}] : {_type(x[1], x[2])} into "
        f"{_type(sizes, x[2])}"
    )
    return name, sizes, x[2]


def _masked(p: _Program, s: Tensor, tensors: list[Tensor]) -> Tensor:
    f = p.f
    if f.mask == "none":
        return s
    if f.mask in ("float", "rows"):
        read = "a0cd" if f.mask == "float" else "a00d"
        body = ["%z = arith.addf %x0, %x1 : f32"]
        return p.nest([(s, "abcd"), (tensors[3], read)], s[1], "f32", "abcd", body, "pppp")
    hidden = p.t.add(f"arith.constant {f.hidden} : f32")
    position = [
        "%i = linalg.index 2 : index", "%j = linalg.index 3 : index", "%p = arith.constant " + f"{f.past} : index",
        "%l = arith.addi %i, %p : index", "%c = arith.cmpi sle, %j, %l : index",
    ]
    if f.mask == "causal":
        body = [*position, f"%z = arith.select %c, %x0, {hidden} : f32"]
        return p.nest([(s, "abcd")], s[1], "f32", "abcd", body, "pppp")
    if f.mask == "ahead":  # as a tensor of truth values, of which those that are true hide
        truth = p.t.add("arith.constant true")
        n, m = s[1][3], s[1][2]
        ahead = [
            "%i = linalg.index 0 : index", "%j = linalg.index 1 : index", f"%p = arith.constant {f.past + 1} : index",
            "%l = arith.addi %i, %p : index", "%c = arith.cmpi sge, %j, %l : index", "%n = arith.constant false",
            f"%z = arith.select %c, {truth}, %n : i1",
        ]
        mask = p.nest([], [m, n], "i1", "ab", ahead, "pp")
        body = [f"%z = arith.select %x1, {hidden}, %x0 : f32"]
        return p.nest([(s, "abcd"), (mask, "cd")], s[1], "f32", "abcd", body, "pppp")
    if f.mask == "bool":
        body = [f"%z = arith.select %x1, %x0, {hidden} : f32"]
        return p.nest([(s, "abcd"), (tensors[3], "cd")], s[1], "f32", "abcd", body, "pppp")
    body = [*position, "%b = arith.andi %c, %x1 : i1", f"%z = arith.select %b, %x0, {hidden} : f32"]
    return p.nest([(s, "abcd"), (tensors[3], "a00d")], s[1], "f32", "abcd", body, "pppp")


def _softmax(p: _Program, s: Tensor) -> Tensor:
    kind = _type(s[1], "f32")
    if p.f.named:
        empty = p.empty(s[1], "f32")
        name = p.t.add(f"linalg.softmax dimension(3) ins({s[0]} : {kind}) outs({empty} : {kind}) -> {kind}")
        return name, s[1], "f32"
    rows = s[1][:3]
    high = p.nest([(s, "abcd")], rows, "f32", "abc", ["%z = arith.maximumf %x0, %o : f32"], "pppr", "0xFF800000")
    power = p.nest(
        [(s, "abcd"), (high, "abc")], s[1], "f32", "abcd",
        ["%d = arith.subf %x0, %x1 : f32", "%z = math.exp %d : f32"], "pppp",
    )
    total = p.nest([(power, "abcd")], rows, "f32", "abc", ["%z = arith.addf %o, %x0 : f32"], "pppr", "0.0")
    body = ["%z = arith.divf %x0, %x1 : f32"]
    return p.nest([(power, "abcd"), (total, "abc")], s[1], "f32", "abcd", body, "pppp")


def _guarded(p: _Program, s: Tensor, w: Tensor) -> Tensor:
    """Zeros where no key is seen."""
    way = p.f.safe
    if not way:
        return w
    if way == "weights":
        zero = p.t.add("arith.constant 0.0 : f32")
        body = ["%n = arith.cmpf une, %x0, %x0 : f32", f"%z = arith.select %n, {zero}, %x0 : f32"]
        return p.nest([(w, "abcd")], s[1], "f32", "abcd", body, "pppp")
    lowest = p.t.add("arith.constant 0xFF800000 : f32")
    rows = s[1][:3]
    if way == "largest":
        high = p.nest([(s, "abcd")], rows, "f32", "abc", ["%z = arith.maximumf %x0, %o : f32"], "pppr", "0xFF800000")
        none = p.nest([(high, "abc")], rows, "i1", "abc", [f"%z = arith.cmpf oeq, %x0, {lowest} : f32"], "ppp")
    elif way == "any":
        seen = p.nest([(s, "abcd")], s[1], "i1", "abcd", [f"%z = arith.cmpf une, %x0, {lowest} : f32"], "pppp")
        some = p.nest([(seen, "abcd")], rows, "i1", "abc", ["%z = arith.ori %o, %x0 : i1"], "pppr", "0")
        truth = p.t.add("arith.constant true")
        none = p.nest([(some, "abc")], rows, "i1", "abc", [f"%z = arith.xori %x0, {truth} : i1"], "ppp")
    else:
        wide = p.t.add("arith.constant 0xFFF0000000000000 : f64")
        body = ["%w = arith.extf %x0 : f32 to f64", f"%z = arith.cmpf oeq, %w, {wide} : f64"]
        body = body if way == "wide" else [f"%z = arith.cmpf oeq, %x0, {lowest} : f32"]
        hidden = p.nest([(s, "abcd")], s[1], "i1", "abcd", body, "pppp")
        none = p.nest([(hidden, "abcd")], rows, "i1", "abc", ["%z = arith.andi %x0, %o : i1"], "pppr", "1")
    zero = p.t.add("arith.constant 0.0 : f32")
    body = [f"%z = arith.select %x1, {zero}, %x0 : f32"]
    return p.nest([(w, "abcd"), (none, "abc")], s[1], "f32", "abcd", body, "pppp")


def expected(form: Form, inputs: list[np.ndarray]) -> np.ndarray:
    """In f64."""
    f = form
    q, k, v = (x.astype("f8") for x in inputs[:3])
    q, k = q * f.factor, k * f.factor
    if f.fresh:
        along = 1 if f.swapped else 2
        k, v = (np.concatenate(pair, along) for pair in zip((k, v), inputs[-2:], strict=True))
    if f.swapped:
        q, k, v = (x.transpose(0, 2, 1, 3) for x in (q, k, v))
    k, v = (np.repeat(x, f.groups, axis=1) for x in (k, v))
    with np.errstate(invalid="ignore"):
        scores = q @ k.transpose(0, 1, 3, 2) * f.scale
        seen = np.tri(f.queries, f.keys, f.past, dtype=bool)
        hidden = -np.inf if f.hidden == "0xFF800000" else float(f.hidden)
        if f.mask in ("float", "rows"):
            scores = scores + inputs[3]
        elif f.mask in ("causal", "ahead"):
            scores = np.where(seen, scores, hidden)
        elif f.mask == "bool":
            scores = np.where(inputs[3], scores, hidden)
        elif f.mask == "both":
            scores = np.where(seen & inputs[3], scores, hidden)
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        weights = powers / powers.sum(-1, keepdims=True)
        if f.safe == "weights":
            weights = np.where(np.isnan(weights), 0, weights)
        elif f.safe:
            weights = np.where((scores == -np.inf).all(-1, keepdims=True), 0, weights)
        result = weights @ v
    return result.transpose(0, 2, 1, 3) if f.swapped else result


def inputs_of(form: Form, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for i, shape in enumerate(shapes(form)):
        if i == 3 and form.mask in ("bool", "both"):
            mask = generator.random(shape) < 0.7
            mask[..., 0] = True
            found.append(mask)
        else:
            masked = i == 3 and form.mask not in ("none", "causal", "ahead")
            dtype = np.dtype("f4") if masked else DTYPES[form.dtype]
            found.append((generator.standard_normal(shape) * 1.5).astype(dtype))
    return found


FORMS = {
    "plain": Form(),
    "named": Form(named=True),
    "collapsed": Form(collapsed=True, queries=5, keys=19),
    "swapped": Form(swapped=True, queries=33, keys=70, heads=3),
    "swapped and collapsed": Form(swapped=True, collapsed=True, queries=18, keys=66),
    "one query": Form(queries=1, keys=37),
    "one head": Form(heads=1, batch=1, queries=20, keys=9),
    "grouped": Form(groups=3, queries=9, keys=40),
    "grouped and collapsed": Form(groups=2, collapsed=True, swapped=True, queries=70, keys=40),
    "wide": Form(depth=80, width=96, queries=17, keys=33),
    "narrow values": Form(depth=16, width=24, queries=17, keys=33),
    "causal": Form(mask="causal", queries=70, keys=70, hidden="0xFF800000"),
    "causal with a large number": Form(mask="causal", queries=37, keys=37, hidden="-3.4028234663852886E+38"),
    "causal with a past": Form(mask="causal", queries=5, keys=70, past=65),
    "causal and grouped": Form(mask="causal", groups=2, queries=8, keys=40, past=32),
    "causal by a tensor": Form(mask="ahead", queries=70, keys=75, past=5),
    "added mask": Form(mask="float", queries=34, keys=71),
    "added row": Form(mask="rows", queries=34, keys=71, collapsed=True),
    "truth": Form(mask="bool", queries=34, keys=71),
    "truth and causal": Form(mask="both", queries=71, keys=71),
    "decoding": Form(queries=1, keys=1500, heads=3, depth=32, width=32),
    "decoding in groups": Form(groups=4, queries=1, keys=1400, depth=24, width=40, batch=1),
    "decoding some": Form(groups=2, queries=3, keys=999, mask="causal", past=996, swapped=True),
    "decoding masked": Form(groups=2, queries=1, keys=999, mask="rows"),
    "one fresh key": Form(queries=1, keys=1025, fresh=1, depth=32, width=32, batch=1),
    "one fresh key of groups": Form(groups=3, queries=1, keys=90, fresh=1, swapped=True, collapsed=True, batch=1),
    "many fresh keys": Form(queries=70, keys=150, fresh=70, mask="causal", past=80),
    "fresh keys and a mask": Form(queries=5, keys=99, fresh=5, mask="rows", swapped=True),
    "decoding with fresh keys": Form(groups=4, queries=2, keys=1200, fresh=2, mask="causal", past=1198, swapped=True),
    "dynamic": Form(dynamic=True, queries=21, keys=45),
    "dynamic and collapsed": Form(dynamic=True, collapsed=True, swapped=True, queries=21, keys=45),
    "dynamic and causal": Form(dynamic=True, mask="causal", queries=45, keys=45),
    "dynamic and masked": Form(dynamic=True, mask="rows", queries=20, keys=37),
}
