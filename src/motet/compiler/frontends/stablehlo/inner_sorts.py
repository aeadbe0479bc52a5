"""Writes sorts in the bodies of loops and branches as odd-even transposition sorts.

    tm_tensor.sort outs(%x) { %a <= %b }   →   for each line, n times: for every second element of %x, from the first or
                                               from the second one on: exchange it with the next one if that is less

A kernel with loops cannot contain a sort kernel. Neighbours are exchanged only if they are in the wrong order, so the
sort is stable; NaN is greater than all numbers. It takes n² steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from motet.compiler.frontends.stablehlo.writing import StablehloText, V


def sort_by_exchange(w: StablehloText, tensors: Sequence[V], dimension: int, element: str, descending: bool) -> list[V]:
    """`tensors` sorted by the first one; integers are unsigned if `element` is."""
    shape = tensors[0].shape
    n = shape[dimension]
    folded = (prod(shape[:dimension]), n, prod(shape[dimension + 1 :]))
    given = [w.reshape(tensor, folded) for tensor in tensors]
    zero, one, two, outer, inner, count, last = (
        w.line(f"arith.constant {number} : index", (), "index").name
        for number in (0, 1, 2, folded[0], folded[2], n, n - 1)
    )
    kinds = ", ".join(value.kind for value in given)
    steps = [
        f"scf.for %o = {zero} to {outer} step {one}",
        f"scf.for %s = {zero} to {inner} step {one}",
        f"scf.for %p = {zero} to {count} step {one}",
        f"scf.for %j = %begin to {last} step {two}",
    ]
    text, before = "", [value.name for value in given]
    for depth, step in enumerate(steps):
        names = [f"%t{depth}_{number}" for number in range(len(given))]
        carried = ", ".join(f"{name} = {value}" for name, value in zip(names, before, strict=True))
        made = "" if depth == 0 else f"%r{depth}:{len(given)} = "
        begin = f"%begin = arith.remui %p, {two} : index\n" if depth == 3 else ""
        text += f"{begin}{made}{step} iter_args({carried}) -> ({kinds}) {{\n"
        before = names
    text += _exchange(given, before, one, _comes_before(given[0].element, element, descending))
    for depth in range(3, 0, -1):
        results = ", ".join(f"%r{depth}#{number}" for number in range(len(given)))
        text += f"}}\nscf.yield {results} : {kinds}\n"
    text += "}"
    sorted_ = w.lines(text, given)
    return [w.reshape(value, shape) for value in sorted_]


def _exchange(given: Sequence[V], names: Sequence[str], one: str, order: str) -> str:
    """The text that puts elements %j and %k = %j + 1 in order."""
    lines = [f"%k = arith.addi %j, {one} : index"]
    for number, (value, name) in enumerate(zip(given, names, strict=True)):
        lines += [
            f"%a{number} = tensor.extract {name}[%o, %j, %s] : {value.kind}",
            f"%b{number} = tensor.extract {name}[%o, %k, %s] : {value.kind}",
        ]
    lines.append(order)
    for number, (value, name) in enumerate(zip(given, names, strict=True)):
        lines += [
            f"%low{number} = arith.select %wrong, %b{number}, %a{number} : {value.element}",
            f"%high{number} = arith.select %wrong, %a{number}, %b{number} : {value.element}",
            f"%half{number} = tensor.insert %low{number} into {name}[%o, %j, %s] : {value.kind}",
            f"%full{number} = tensor.insert %high{number} into %half{number}[%o, %k, %s] : {value.kind}",
        ]
    values = ", ".join(f"%full{number}" for number in range(len(given)))
    kinds = ", ".join(value.kind for value in given)
    return "\n".join([*lines, f"scf.yield {values} : {kinds}"]) + "\n"


def _comes_before(kind: str, element: str, descending: bool) -> str:
    """The text that computes %wrong: whether %b0 must come before %a0."""
    if kind.startswith("i"):
        sign = "u" if element.startswith("ui") else "s"
        return f"%wrong = arith.cmpi {sign}{'gt' if descending else 'lt'}, %b0, %a0 : {kind}"
    higher, lower = ("%b0", "%a0") if descending else ("%a0", "%b0")
    return (
        f"%above = arith.cmpf ogt, {higher}, {lower} : {kind}\n"
        f"%odd = arith.cmpf uno, {higher}, {higher} : {kind}\n"
        f"%plain = arith.cmpf ord, {lower}, {lower} : {kind}\n"
        f"%only = arith.andi %odd, %plain : i1\n%wrong = arith.ori %above, %only : i1"
    )
