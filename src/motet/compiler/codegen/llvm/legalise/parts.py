"""Values in parts: vectors of any number of lanes as vectors of those that a language has.

A vector of `n` lanes is split in the same way whatever its elements are, so that an instruction on lanes is split into
instructions on parts. Part `i` of `%x` is called `%x.part{i}`: readers that come first (phis) need no table. Vectors of
pointers are split into scalars.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from motet.compiler.codegen.llvm.ir import IrValue, Type, elements_of

_NAME = re.compile(r'%(?:"[^"]*"|[-\w.$]+)')

# Of each lane of a vector to be made: the part that it is in, and its lane there; None for an undefined one.
Lane = tuple[IrValue, int] | None


@dataclass
class PartWriter:
    """Writes the lines of a function. `lanes` are the numbers of lanes that vectors may have, the largest first."""

    lanes: tuple[int, ...]
    lines: list[str] = field(default_factory=list[str])
    entry: list[str] = field(default_factory=list[str])  # for the beginning of the function
    declared: dict[str, str] = field(default_factory=dict[str, str])
    others: dict[str, str] = field(default_factory=dict[str, str])  # names that stand for other values
    count: int = 0

    # -- lines -----------------------------------------------------------------------------------

    def emit(self, kind: Type, text: str, name: str = "") -> IrValue:
        """Add `name = text`, whose result is of type `kind`."""
        if not name:
            self.count += 1
            name = f"%narrow.{self.count}"
        self.lines.append(f"  {name} = {text}")
        return IrValue(kind, name)

    def call(self, name: str, kind: Type, arguments: Sequence[IrValue], result: str = "", flags: str = "") -> IrValue:
        self.declare(name, kind, arguments)
        return self.emit(kind, f"call {flags}{kind} @{name}({', '.join(map(str, arguments))})", result)

    def declare(self, name: str, kind: Type, arguments: Sequence[IrValue]) -> None:
        self.declared[name] = f"declare {kind} @{name}({', '.join(str(argument.type) for argument in arguments)})"

    def same(self, name: str, value: IrValue) -> None:
        """Let `name` stand for `value`."""
        self.others[name] = value.text

    def text(self) -> list[str]:
        """The lines, with the values that names stand for."""
        labelled = 1 if self.lines and self.lines[0].split(";")[0].rstrip().endswith(":") else 0
        lines = [*self.lines[:labelled], *self.entry, *self.lines[labelled:]]
        if not self.others:
            return lines

        def value_of(match: re.Match[str]) -> str:
            text = match[0]
            while text in self.others:
                text = self.others[text]
            return text

        return [_NAME.sub(value_of, line) for line in lines]

    # -- parts -----------------------------------------------------------------------------------

    def is_whole(self, kind: Type) -> bool:
        """Whether values of type `kind` stay as they are."""
        return kind.lanes == 0 or (kind.lanes in self.lanes and not kind.is_pointer)

    def widths(self, kind: Type) -> list[int]:
        """The lanes of each part of a vector."""
        if kind.is_pointer:
            return [1] * kind.lanes
        found: list[int] = []
        left = kind.lanes
        for lanes in (*self.lanes, 1):
            found += [lanes] * (left // lanes)
            left %= lanes
        return found

    def parts(self, value: IrValue) -> list[IrValue]:
        """The parts of a vector; a scalar is one part."""
        kind = value.type
        if self.is_whole(kind):
            return [value]
        widths = self.widths(kind)
        if value.is_local:
            return [IrValue(kind.of(width), part_name(value.text, i)) for i, width in enumerate(widths)]
        elements, found = elements_of(value), []
        for width in widths:
            own, elements = elements[:width], elements[width:]
            found.append(constant(own))
        return found

    def part_names(self, name: str, kind: Type) -> list[tuple[str, Type]]:
        """The names and types of the parts of a result."""
        return [(part.text, part.type) for part in self.parts(IrValue(kind, name))]

    def lanes_of(self, value: IrValue) -> list[Lane]:
        """Where each lane of a vector is."""
        if value.is_undefined:
            return [None] * value.type.lanes
        found: list[Lane] = []
        for part in self.parts(value):
            found += [(part, lane) for lane in range(max(part.type.lanes, 1))]
        return found

    def define(self, name: str, kind: Type, lanes: Sequence[Lane]) -> None:
        """Define the parts of the result `name` by lanes."""
        start = 0
        for own, part in self.part_names(name, kind):
            width = max(part.lanes, 1)
            self.same(own, self.gather(part, lanes[start : start + width]))
            start += width

    def gather(self, kind: Type, lanes: Sequence[Lane]) -> IrValue:
        """A part of type `kind`, made of `lanes`."""
        if kind.lanes == 0:
            return IrValue(kind, "poison") if lanes[0] is None else self.lane(*lanes[0])
        sources = list(dict.fromkeys(lane[0] for lane in lanes if lane is not None))
        if not sources:
            return IrValue(kind, "poison")
        vectors = [source for source in sources if source.type.lanes]
        if len(vectors) == 1 and vectors[0].type == kind and _in_order(lanes, vectors[0]):
            made = vectors[0]
        elif len(vectors) == 2 and vectors[0].type == vectors[1].type:
            made = self.shuffle(kind, vectors[0], vectors[1], [
                -1 if lane is None or lane[0] not in vectors else lane[1] + vectors.index(lane[0]) * lane[0].type.lanes
                for lane in lanes
            ])
        else:
            made = self._merged(kind, vectors, lanes)
        for place, lane in enumerate(lanes):
            if lane is not None and lane[0].type.lanes == 0:
                made = self.emit(kind, f"insertelement {made}, {lane[0]}, i32 {place}")
        return made

    def _merged(self, kind: Type, vectors: Sequence[IrValue], lanes: Sequence[Lane]) -> IrValue:
        made = IrValue(kind, "poison")
        for number, vector in enumerate(vectors):
            own = [lane[1] if lane is not None and lane[0] == vector else -1 for lane in lanes]
            found = self.shuffle(kind, vector, IrValue(vector.type, "poison"), own)
            if number == 0:
                made = found
                continue
            merge = [len(lanes) + place if lane >= 0 else place for place, lane in enumerate(own)]
            made = self.shuffle(kind, made, found, merge)
        return made

    def shuffle(self, kind: Type, first: IrValue, second: IrValue, mask: Sequence[int]) -> IrValue:
        listing = ", ".join("i32 poison" if lane < 0 else f"i32 {lane}" for lane in mask)
        return self.emit(kind, f"shufflevector {first}, {second}, <{len(mask)} x i32> <{listing}>")

    def lane(self, part: IrValue, lane: int) -> IrValue:
        """An element of a part."""
        if part.type.lanes == 0:
            return part
        if not part.is_local:
            return elements_of(part)[lane]
        return self.emit(part.type.of(1), f"extractelement {part}, i32 {lane}")

    def scalars(self, value: IrValue) -> list[IrValue]:
        """The elements of a vector; undefined ones are zero."""
        return [
            IrValue(value.type.of(1), value.type.zero) if lane is None else self.lane(*lane)
            for lane in self.lanes_of(value)
        ]


def part_name(name: str, number: int) -> str:
    """The name of a part of the value `name`."""
    return f'{name[:-1]}.part{number}"' if name.endswith('"') else f"{name}.part{number}"


def constant(elements: Sequence[IrValue]) -> IrValue:
    """A constant of the given elements."""
    kind = elements[0].type
    if len(elements) == 1:
        return elements[0]
    return IrValue(Type(kind.element, len(elements)), f"<{', '.join(map(str, elements))}>")


def splat(kind: Type, text: str) -> IrValue:
    """The constant all of whose elements are `text`."""
    return IrValue(kind, f"splat ({kind.of(1)} {text})" if kind.lanes else text)


def _in_order(lanes: Sequence[Lane], vector: IrValue) -> bool:
    """Whether the lanes that are not scalars are those of `vector`, each at its place."""
    return all(
        lane is None or not lane[0].type.lanes or lane == (vector, place) for place, lane in enumerate(lanes)
    )
