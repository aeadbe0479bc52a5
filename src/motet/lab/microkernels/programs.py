"""The program that computes the meaning of a microkernel, as MLIR: one linalg.generic on tensors."""

from __future__ import annotations

from collections.abc import Mapping

from motet.compiler.ir.affine import Affine
from motet.compiler.kernels.kernel import Access, Scalar
from motet.compiler.kernels.microkernel import MicroMeaning

_CONVERSIONS = ("extf", "truncf", "extsi", "trunci", "fptosi", "sitofp")


def program_of(meaning: MicroMeaning, extents: Mapping[str, int]) -> str:
    """A program whose inputs are the operands, and whose result is the result's new value, for `extents` of the
    dimensions."""
    stage = meaning.stage
    types = [_tensor(access, dtype, meaning, extents) for access, dtype in
             zip(meaning.accesses, meaning.dtypes, strict=True)]
    arguments = ", ".join(f"%{name}: {kind}" for name, kind in zip(meaning.operands, types, strict=True))
    dims = ", ".join(f"d{n}" for n in range(len(meaning.dims)))
    maps = ", ".join(
        f"affine_map<({dims}) -> ({', '.join(map(_entry, access.map))})>" for access in meaning.accesses
    )
    iterators = ", ".join(f'"{kind}"' for kind in stage.iterators)
    inputs, last = meaning.operands[:-1], meaning.operands[-1]
    ins = f"ins({', '.join(f'%{name}' for name in inputs)} : {', '.join(types[:-1])}) " if inputs else ""
    blocks = ", ".join(f"%v{n}: {dtype}" for n, dtype in enumerate(meaning.dtypes))
    lines = [f"    {_scalar(scalar, n, meaning)}" for n, scalar in enumerate(stage.body, start=len(meaning.operands))]
    return "\n".join([
        f"func.func @main({arguments}) -> {types[-1]} {{",
        f"  %r = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} "
        f"{ins}outs(%{last} : {types[-1]}) {{",
        f"  ^bb0({blocks}):", *lines, f"    linalg.yield %v{stage.yields[0]} : {meaning.dtypes[-1]}",
        f"  }} -> {types[-1]}", f"  return %r : {types[-1]}", "}", "",
    ])


def _tensor(access: Access, dtype: str, meaning: MicroMeaning, extents: Mapping[str, int]) -> str:
    sizes = {d: extents[name] for d, name in enumerate(meaning.dims)}
    shape = [str(1 + sum(c * (sizes[d] - 1) for d, c in entry.terms)) for entry in access.map]
    return f"tensor<{'x'.join([*shape, dtype])}>"


def _entry(entry: Affine) -> str:
    return " + ".join(f"d{d} * {c}" if c != 1 else f"d{d}" for d, c in entry.terms)


def _scalar(scalar: Scalar, number: int, meaning: MicroMeaning) -> str:
    if scalar.op == "arith.constant":
        return f"%v{number} = arith.constant {scalar.value} : {scalar.dtype}"
    operands = ", ".join(f"%v{each}" for each in scalar.operands)
    if scalar.op.partition(".")[2] in _CONVERSIONS:
        return f"%v{number} = {scalar.op} {operands} : {_dtype(scalar.operands[0], meaning)} to {scalar.dtype}"
    return f"%v{number} = {scalar.op} {operands} : {scalar.dtype}"


def _dtype(value: int, meaning: MicroMeaning) -> str:
    count = len(meaning.operands)
    return meaning.dtypes[value] if value < count else meaning.stage.body[value - count].dtype
