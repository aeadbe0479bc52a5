"""Meshes, shardings and collectives in a program: Motet's syntax, its parsing and printing.

    module attributes {motet.mesh = "data=2,model=4"} {
      func.func @f(%x: tensor<8x16xf32> {motet.sharding = "[data][]"}) {
        %1 = "motet.shard"(%0) {motet.sharding = "[data][model]"} : (tensor<8x32xf32>) -> tensor<8x32xf32>

A mesh has named axes; its devices are numbered with the last axis fastest. A sharding names, for each dimension of a
tensor, the axes that it is divided over, the outermost first; on axes that it does not name, the tensor is repeated.

Between `motet.to_local` and `motet.to_global`, values are those of one device, of its own shape, and collectives move
them among devices:

    %l = "motet.to_local"(%x) {motet.sharding = "[data][model]"} : (tensor<8x16xf32>) -> tensor<4x4xf32>
    %s = "motet.all_reduce"(%l) {groups = [array<i64: 0, 1, 2, 3>, …], reduction = "add"}
    %g = "motet.all_gather"(%l) {groups, dimension = 1 : i64}          %b = "motet.broadcast"(%l) {groups}
    %r = "motet.reduce_scatter"(%l) {groups, dimension, reduction}
    %a = "motet.all_to_all"(%l) {groups, split, concat}
    %p = "motet.permute"(%l) {groups = [array<i64: 0, 1>, …]}          from the first to the second device of each
    %i = "motet.device_index"() : () -> tensor<i32>
    %y = "motet.to_global"(%s) {motet.sharding = "[data][]"} : (tensor<4x4xf32>) -> tensor<8x4xf32>
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from motet.compiler.ir._mlir import ir

MESH = "motet.mesh"
SHARDING = "motet.sharding"
SHARD_OP = "motet.shard"
TO_LOCAL, TO_GLOBAL = "motet.to_local", "motet.to_global"
DEVICE_INDEX = "motet.device_index"
ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "motet.all_reduce", "motet.all_gather", "motet.reduce_scatter"
ALL_TO_ALL, BROADCAST, PERMUTE = "motet.all_to_all", "motet.broadcast", "motet.permute"
COLLECTIVES = (ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, PERMUTE)
GROUPS, REDUCTION, DIMENSION, SPLIT, CONCAT = "groups", "reduction", "dimension", "split", "concat"

_AXIS = r"[A-Za-z_][\w.\-]*"
Groups = list[list[int]]


@dataclass(frozen=True)
class DeviceMesh:
    """Named axes with their numbers of devices."""

    axes: tuple[tuple[str, int], ...]

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.axes]

    @property
    def devices(self) -> int:
        return math.prod(size for _, size in self.axes)

    def size(self, names: Sequence[str]) -> int:
        """The devices along some axes."""
        sizes = dict(self.axes)
        return math.prod(sizes[name] for name in names)

    def coordinates(self) -> Iterator[dict[str, int]]:
        """Where each device is, by axis, in the order of their numbers."""
        for place in product(*(range(size) for _, size in self.axes)):
            yield dict(zip(self.names, place, strict=True))

    def position(self, device: int, names: Sequence[str]) -> int:
        """The number of a device among those along some axes."""
        place, sizes = list(self.coordinates())[device], dict(self.axes)
        found = 0
        for name in names:
            found = found * sizes[name] + place[name]
        return found

    def groups(self, names: Sequence[str]) -> Groups:
        """The devices along some axes, which have the same place on all others, in their order along them."""
        found: dict[tuple[int, ...], list[tuple[tuple[int, ...], int]]] = {}
        for device, place in enumerate(self.coordinates()):
            others = tuple(place[name] for name in self.names if name not in names)
            found.setdefault(others, []).append((tuple(place[name] for name in names), device))
        return [[device for _, device in sorted(group)] for group in found.values()]

    def __str__(self) -> str:
        return ",".join(f"{name}={size}" for name, size in self.axes)


def parse_mesh(text: str) -> DeviceMesh:
    """Parses `data=2,model=4`. Raises ValueError with the reason."""
    axes: dict[str, int] = {}
    for part in text.split(","):
        match = re.fullmatch(rf"\s*({_AXIS})\s*=\s*(\d+)\s*", part)
        if match is None or int(match[2]) < 1:
            raise ValueError(f"mesh '{text}': expected AXIS=DEVICES,…, such as data=2,model=4")
        if match[1] in axes:
            raise ValueError(f"mesh '{text}': axis {match[1]} occurs twice")
        axes[match[1]] = int(match[2])
    return DeviceMesh(tuple(axes.items()))


@dataclass(frozen=True)
class TensorSharding:
    """The axes that each dimension is divided over."""

    dimensions: tuple[tuple[str, ...], ...]

    @property
    def axes(self) -> list[str]:
        return [name for names in self.dimensions for name in names]

    def local(self, shape: Sequence[int], mesh: DeviceMesh) -> list[int]:
        """The shape of the part of a device. Extents must be multiples."""
        return [extent // mesh.size(names) for extent, names in zip(shape, self.dimensions, strict=True)]

    def whole(self, shape: Sequence[int], mesh: DeviceMesh) -> list[int]:
        """The shape of the tensor whose parts have `shape`."""
        return [extent * mesh.size(names) for extent, names in zip(shape, self.dimensions, strict=True)]

    def __str__(self) -> str:
        return "".join(f"[{','.join(names)}]" for names in self.dimensions)


def replicated(rank: int) -> TensorSharding:
    return TensorSharding(((),) * rank)


def parse_sharding(text: str) -> TensorSharding:
    """Parses the output of `str`. Raises ValueError with the reason."""
    if re.fullmatch(rf"(\[({_AXIS}(,{_AXIS})*)?\])*", text) is None:
        raise ValueError(f"sharding '{text}': expected [AXIS,…] for each dimension")
    return TensorSharding(tuple(
        tuple(name for name in part.split(",") if name) for part in re.findall(r"\[([^\]]*)\]", text)
    ))


def sharding_of(operation: ir.Operation) -> TensorSharding:
    """The sharding that an operation names."""
    return parse_sharding(ir.StringAttr(operation.attributes[SHARDING]).value)


def groups_of(operation: ir.Operation) -> Groups:
    """The devices of each group of a collective."""
    return [list(ir.DenseI64ArrayAttr(each)) for each in ir.ArrayAttr(operation.attributes[GROUPS])]


def groups_attribute(groups: Groups) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.DenseI64ArrayAttr.get(group) for group in groups])


def number_of(operation: ir.Operation, name: str) -> int:
    """A number that a collective has as attribute."""
    return ir.IntegerAttr(operation.attributes[name]).value


def mesh_of(module: ir.Module) -> DeviceMesh | None:
    """The mesh of a module; None if it names none."""
    attributes = module.operation.attributes
    return parse_mesh(ir.StringAttr(attributes[MESH]).value) if MESH in attributes else None
