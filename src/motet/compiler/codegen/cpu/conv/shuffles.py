"""Vectors whose elements are separated by their number modulo a step, and the reverse."""

from __future__ import annotations

from llvmlite import ir

from motet.compiler.codegen.cpu.emit.builder import I32
from motet.compiler.codegen.cpu.gemm.microkernel import TileFrame


def separated(f: TileFrame, vectors: list[ir.Value]) -> list[ir.Value]:
    """For each residue, the elements of `vectors`, one after the other, whose number has it modulo their count."""
    count = len(vectors)
    if count == 1:
        return vectors
    lanes = vectors[0].type.count
    result: list[ir.Value] = []
    for residue in range(count):
        places = [divmod(lane * count + residue, lanes) for lane in range(lanes)]
        value = vectors[0]
        picked = [place if number == 0 else 0 for number, place in places]
        for number in range(count):
            lanes_of = [
                lanes + place if own == number else (picked[lane] if number == 0 else lane)
                for lane, (own, place) in enumerate(places)
            ]
            value = f.shuffle_vector(value, vectors[number], ir.Constant(ir.VectorType(I32, lanes), lanes_of))
        result.append(value)
    return result


def alternating(f: TileFrame, vectors: list[ir.Value]) -> list[ir.Value]:
    """The elements of `vectors` in turn: the first of each, then the second of each, …"""
    count = len(vectors)
    if count == 1:
        return vectors
    lanes = vectors[0].type.count
    kind = ir.VectorType(I32, lanes)
    if count % 2 == 0:
        even, odd = alternating(f, vectors[::2]), alternating(f, vectors[1::2])
        half = [lane // 2 + (lanes if lane % 2 else 0) for lane in range(lanes)]
        low, high = ir.Constant(kind, half), ir.Constant(kind, [place + lanes // 2 for place in half])
        return [f.shuffle_vector(a, b, mask) for a, b in zip(even, odd, strict=True) for mask in (low, high)]
    result: list[ir.Value] = []
    for part in range(count):
        places = [divmod(part * lanes + lane, count) for lane in range(lanes)]  # (element, vector)
        first = ir.Constant(kind, [place if owner == 0 else 0 for place, owner in places])
        value = f.shuffle_vector(vectors[0], vectors[0], first)
        for number in range(1, count):
            picked = [lanes + place if owner == number else lane for lane, (place, owner) in enumerate(places)]
            value = f.shuffle_vector(value, vectors[number], ir.Constant(kind, picked))
        result.append(value)
    return result
