"""Writes StableHLO's select_and_scatter as a windowed search for the selected elements and a scatter.

    stablehlo.select_and_scatter %x, %s, %z    →    %k = stablehlo.reduce_window %x, positions, validity { select }
                                                    stablehlo.scatter everywhere %z, %k, %s { scatter }

Padding is never selected: a valid candidate precedes an invalid one.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from motet.compiler.frontends.stablehlo.writing import StablehloText, tensor_type
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.loops import copy_body


def select_then_scatter(module: ir.Module) -> None:
    """Rewrites each `stablehlo.select_and_scatter` in place."""
    for op in find_operations(module, "stablehlo.select_and_scatter"):
        _write(op)


def _write(op: ir.Operation) -> None:
    w = StablehloText(op)
    x, source, initial = w.operands
    if not prod(x.shape) or not prod(source.shape):
        w.replace([w.broadcast(initial, x.shape, [])])
        return
    count = prod(x.shape)
    kind = "i32" if 0 <= count < 2**31 else "i64"
    end = 2**31 - 1 if kind == "i32" else 2**63 - 1  # no place
    places = w.reshape(w.iota((count,), kind, 0), x.shape)
    outside = w.constant(end, (), kind)
    number = w.constant("true" if x.element == "i1" else 0 if "i" in x.element else 0.0, (), x.element)
    attributes = ", ".join(
        f"{name} = {op.attributes[name]}"
        for name in ("window_dimensions", "window_strides", "padding") if name in op.attributes
    )
    names = f"{x.name}, {places.name}, {number.name}, {outside.name}"
    a, k, truth = tensor_type((), x.element), tensor_type((), kind), tensor_type((), "i1")
    results = f"{tensor_type(source.shape, x.element)}, {tensor_type(source.shape, kind)}"
    text = (
        f'"stablehlo.reduce_window"({names}) <{{{attributes}}}> ({{\n'
        f"^bb0(%a: {a}, %i: {k}, %b: {a}, %j: {k}):\n"
        f"  %selected = stablehlo.compare EQ, %a, %b : ({a}, {a}) -> {truth}\n"  # replaced by the `select` body
        f"  %end = stablehlo.constant dense<{end}> : {k}\n"
        f"  %off_a = stablehlo.compare GE, %i, %end : ({k}, {k}) -> {truth}\n"
        f"  %off_b = stablehlo.compare GE, %j, %end : ({k}, {k}) -> {truth}\n"
        f"  %on_a = stablehlo.not %off_a : {truth}\n"
        f"  %chosen = stablehlo.or %selected, %off_b : {truth}\n"
        f"  %first = stablehlo.and %chosen, %on_a : {truth}\n"
        f"  %value = stablehlo.select %first, %a, %b : {truth}, {a}\n"
        f"  %place = stablehlo.select %first, %i, %j : {truth}, {k}\n"
        f"  stablehlo.return %value, %place : {a}, {k}\n}}) : ({x.kind}, {places.kind}, {a}, {k}) -> ({results})"
    )
    found = w.lines(text, [source, replace(source, element=kind)])[1]
    updates = prod(source.shape)
    indices, flat = w.reshape(found, (updates, 1)), w.flat(source)
    start = w.broadcast(initial, (count,), [])
    element = tensor_type((), x.element)
    scattered = w.line(
        f'"stablehlo.scatter"({start.name}, {indices.name}, {flat.name}) <{{scatter_dimension_numbers = '
        "#stablehlo.scatter<inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>, "
        "indices_are_sorted = false, unique_indices = false}> ({\n"
        f"^bb0(%a: {element}, %b: {element}):\n  stablehlo.return %a : {element}\n}}) : "
        f"({start.kind}, {indices.kind}, {flat.kind}) -> {start.kind}",
        (count,), x.element,
    )  # fmt: skip
    select, scatter = (region.blocks[0] for region in op.regions)
    w.replace([w.reshape(scattered, x.shape)], lambda written: _fill(written, select, scatter))


def _fill(written: list[ir.Operation], select: ir.Block, scatter: ir.Block) -> None:
    """Inserts the two bodies in place of the placeholders in the text."""
    for new in written:
        if new.name == "stablehlo.reduce_window":
            block = new.regions[0].blocks[0]
            stand_in = block.operations[0].operation
            with ir.InsertionPoint(stand_in):
                (selected,) = copy_body(select, [block.arguments[0], block.arguments[2]])
            stand_in.results[0].replace_all_uses_with(selected)
            stand_in.erase()
        elif new.name == "stablehlo.scatter":
            block = new.regions[0].blocks[0]
            end = block.operations[0].operation
            with ir.InsertionPoint(end):
                end.operands[0] = copy_body(scatter, list(block.arguments))[0]


__all__ = ["select_then_scatter"]
