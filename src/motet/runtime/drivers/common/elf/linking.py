"""Links relocatable objects for an address, without a linker.

Sections are placed in three regions of one image: code (read and execute), constants with the global offset table
(read), and data (read and write). Calls of imported functions go through stubs, so that the functions may be at any
address.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from motet.errors import ArtifactError
from motet.runtime.drivers.common import pages
from motet.runtime.drivers.common.elf import objects as elf
from motet.runtime.drivers.common.elf import relocations as relocate
from motet.runtime.drivers.common.elf.structures import (
    SHN_ABS,
    SHN_COMMON,
    SHN_UNDEF,
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    ElfSymbol,
)

_TEXT, _CONSTANTS, _DATA = range(3)


@dataclass(frozen=True)
class LoadedImage:
    """A linked program: `regions` are (offset, bytes, protection); `symbols` maps global names to offsets."""

    size: int
    regions: tuple[tuple[int, int, int], ...]
    symbols: dict[str, int]


def object_name(names: Sequence[str], index: int) -> str:
    return names[index] if index < len(names) else f"object {index}"


@dataclass
class _Slots:
    """The global offset table and the stubs, by global name, or by (object, symbol) for a local symbol."""

    slots: dict[str | tuple[int, int], int] = field(default_factory=dict[str | tuple[int, int], int])
    stubs: dict[str, int] = field(default_factory=dict[str, int])


class _Patch(NamedTuple):
    """A relocation of a section of an object."""

    item: int
    section: int
    entry: elf.Relocation
    kind: relocate.RelocationKind


class Linker:
    """Lays out the sections of `objects` (`size` bytes in all) and writes them, relocated, for an address."""

    def __init__(self, objects: Sequence[elf.Object], names: Sequence[str], machine: str) -> None:
        if machine not in relocate.MACHINES:
            raise ArtifactError(f"object code: cannot be loaded on {machine}; expected "
                                f"one of {', '.join(relocate.MACHINES)}")
        self.objects = objects
        self.where = [object_name(names, i) for i in range(len(objects))]
        for where, item in zip(self.where, objects, strict=True):
            if item.machine != machine:
                raise ArtifactError(f"{where}: code for {item.machine}; expected {machine}; "
                                    "compile for this machine's target")
        self.machine = relocate.MACHINES[machine]
        self.definitions = self._collect_definitions()
        self.table = _Slots()
        self.patches = self._collect_patches()
        self._collect_imports()
        self._place()

    # -- symbols ---------------------------------------------------------------------------------

    def _collect_definitions(self) -> dict[str, tuple[int, ElfSymbol]]:
        """Collect global symbols. A strong definition overrides a weak or common one; two strong ones are an error."""
        result: dict[str, tuple[int, ElfSymbol]] = {}
        for index, item in enumerate(self.objects):
            for symbol in item.symbols:
                if symbol.binding == STB_LOCAL or symbol.section == SHN_UNDEF or not symbol.name:
                    continue
                known = result.get(symbol.name)
                if known is None or _strength(symbol) > _strength(known[1]):
                    result[symbol.name] = (index, symbol)
                elif _strength(symbol) == _strength(known[1]) == 2:
                    raise ArtifactError(f"{self.where[index]}: symbol '{symbol.name}' is defined in "
                                        f"{self.where[known[0]]} too; expected one definition")
        return result

    def _collect_patches(self) -> list[_Patch]:
        return [
            _Patch(index, number, entry, self._kind(index, number, entry))
            for index, item in enumerate(self.objects)
            for number, entries in item.relocations.items()
            for entry in entries if entry.type not in self.machine.ignored
        ]

    def _collect_imports(self) -> None:
        for index, _, entry, kind in self.patches:
            if kind.way not in ("table", "call"):
                continue
            symbol = self.objects[index].symbols[entry.symbol]
            imported = symbol.section == SHN_UNDEF and symbol.name not in self.definitions
            if kind.way == "table" or imported:
                key = symbol.name if symbol.binding != STB_LOCAL else (index, entry.symbol)
                self.table.slots.setdefault(key, len(self.table.slots))
            if kind.way == "call" and imported:
                self.table.stubs.setdefault(symbol.name, len(self.table.stubs))

    def _kind(self, index: int, number: int, entry: elf.Relocation) -> relocate.RelocationKind:
        kind = self.machine.kinds.get(entry.type)
        section = self.objects[index].sections[number]
        if kind is None:
            raise ArtifactError(
                f"{self.where[index]}: relocation of type {entry.type} in section {section.name} is not "
                "supported; compile with the position-independent relocation model"
            )
        if section.zero or entry.offset + kind.field.size > section.size:
            raise ArtifactError(
                f"{self.where[index]}: {kind.name} at {entry.offset:#x} lies outside section {section.name} "
                f"of {section.size:,} bytes; the file is damaged, build it again"
            )
        return kind

    # -- layout of the image ---------------------------------------------------------------------

    def _place(self) -> None:
        self.offsets: dict[tuple[int, int], int] = {}
        self.common: dict[str, int] = {}
        ends: list[tuple[int, int]] = []
        end = 0
        for region in (_TEXT, _CONSTANTS, _DATA):
            begin = end = pages.round_up(end, pages.PAGE)
            for index, item in enumerate(self.objects):
                for number, section in item.sections.items():
                    if _region(section) == region:
                        end = pages.round_up(end, section.alignment)
                        self.offsets[index, number] = end
                        end += section.size
            end = self._place_extra(region, end)
            ends.append((begin, end))
        self.size = max(pages.round_up(end, pages.PAGE), pages.PAGE)
        protections = (pages.READ | pages.EXECUTE, pages.READ, pages.READ | pages.WRITE)
        self.regions = tuple(
            (begin, pages.round_up(end - begin, pages.PAGE), protection)
            for (begin, end), protection in zip(ends, protections, strict=True) if end > begin
        )

    def _place_extra(self, region: int, end: int) -> int:
        if region == _TEXT:
            self.stubs_at = pages.round_up(end, 16)
            return self.stubs_at + len(self.table.stubs) * len(self.machine.stub)
        if region == _CONSTANTS:
            self.slots_at = pages.round_up(end, 8)
            return self.slots_at + len(self.table.slots) * 8
        for name, (index, symbol) in self.definitions.items():
            if symbol.section == SHN_COMMON:
                if symbol.value > pages.PAGE or symbol.size > 1 << 40:
                    raise ArtifactError(
                        f"{self.where[index]}: common symbol '{name}' of {symbol.size:,} bytes aligned to "
                        f"{symbol.value:,}; the file is damaged, build it again"
                    )
                end = pages.round_up(end, max(symbol.value, 1))
                self.common[name] = end
                end += symbol.size
        return end

    # -- relocation ------------------------------------------------------------------------------

    def link(self, image: memoryview, base: int, find: Callable[[str], int | None]) -> LoadedImage:
        """Write all sections to `image`, `size` zero bytes that will be at `base`, a multiple of the page size."""
        for (index, number), offset in self.offsets.items():
            section = self.objects[index].sections[number]
            if not section.zero:
                image[offset : offset + section.size] = section.data
        imports = self._imports(find)
        self._write_slots(image, base, imports)
        highs: dict[int, int] = {}
        late: list[_Patch] = []
        for patch in self.patches:
            if patch.kind.way == "low":
                late.append(patch)
                continue
            at = self.offsets[patch.item, patch.section] + patch.entry.offset
            target = self._target(patch, base, imports) + patch.entry.addend
            highs[base + at] = target - base - at
            self._apply(patch, image, at, base, target)
        for patch in late:
            high = self._address(patch.item, patch.entry.symbol, base, imports)
            if high not in highs:
                raise ArtifactError(
                    f"{self.where[patch.item]}: {patch.kind.name} at {patch.entry.offset:#x} has no matching high "
                    "part; the file is damaged, build it again"
                )
            at = self.offsets[patch.item, patch.section] + patch.entry.offset
            self._apply(patch, image, at, base, highs[high])
        symbols = {
            name: self._defined(index, symbol, 0) for name, (index, symbol) in self.definitions.items()
            if symbol.section != SHN_ABS
        }
        return LoadedImage(self.size, self.regions, symbols)

    def _imports(self, find: Callable[[str], int | None]) -> dict[str, int]:
        """The addresses of the undefined symbols that relocations use."""
        result: dict[str, int] = {}
        for index, number in sorted({(patch.item, patch.entry.symbol) for patch in self.patches}):
            symbol = self.objects[index].symbols[number]
            known = symbol.name in self.definitions or symbol.name in result
            if symbol.section != SHN_UNDEF or known:
                continue
            address = find(symbol.name) if symbol.name else 0
            if address is None and symbol.binding != STB_WEAK:
                raise ArtifactError(
                    f"{self.where[index]}: undefined symbol '{symbol.name}': neither an object, nor the "
                    "runtime, nor the C and mathematics libraries define it"
                )
            result[symbol.name] = address or 0
        return result

    def _write_slots(self, image: memoryview, base: int, imports: Mapping[str, int]) -> None:
        for key, slot in self.table.slots.items():
            if isinstance(key, tuple):
                address = self._address(*key, base, imports)
            elif key in self.definitions:
                address = self._defined(*self.definitions[key], base)
            else:
                address = imports[key]
            struct.pack_into("<Q", image, self.slots_at + slot * 8, address & (1 << 64) - 1)
        code = self.machine.stub
        for name, stub in self.table.stubs.items():
            at = self.stubs_at + stub * len(code)
            image[at : at + len(code)] = code
            slot = base + self.slots_at + self.table.slots[name] * 8
            for offset, number, addend in self.machine.slots:
                self.machine.kinds[number].patch(image, at + offset, base + at + offset, slot + addend)

    def _target(self, patch: _Patch, base: int, imports: Mapping[str, int]) -> int:
        index, _, entry, kind = patch
        symbol = self.objects[index].symbols[entry.symbol]
        if kind.way == "table":
            key = symbol.name if symbol.binding != STB_LOCAL else (index, entry.symbol)
            return base + self.slots_at + self.table.slots[key] * 8
        if kind.way == "call" and symbol.section == SHN_UNDEF and symbol.name in self.table.stubs:
            return base + self.stubs_at + self.table.stubs[symbol.name] * len(self.machine.stub)
        return self._address(index, entry.symbol, base, imports)

    def _address(self, index: int, number: int, base: int, imports: Mapping[str, int]) -> int:
        symbol = self.objects[index].symbols[number]
        if symbol.binding != STB_LOCAL and symbol.name in self.definitions:
            return self._defined(*self.definitions[symbol.name], base)
        if symbol.section == SHN_UNDEF:
            return imports[symbol.name]
        return self._defined(index, symbol, base)

    def _defined(self, index: int, symbol: ElfSymbol, base: int) -> int:
        if symbol.section == SHN_ABS:
            return symbol.value
        if symbol.section == SHN_COMMON:
            return base + self.common[symbol.name]
        section = self.objects[index].sections.get(symbol.section)
        if section is None or symbol.value > section.size:
            raise ArtifactError(
                f"{self.where[index]}: symbol '{symbol.name}' lies outside the sections that are loaded; "
                "the file is damaged, build it again"
            )
        return base + self.offsets[index, symbol.section] + symbol.value

    def _apply(self, patch: _Patch, image: memoryview, at: int, base: int, target: int) -> None:
        try:
            patch.kind.patch(image, at, base + at, target)
        except relocate.OutOfRangeError as error:
            symbol = self.objects[patch.item].symbols[patch.entry.symbol]
            raise ArtifactError(
                f"{self.where[patch.item]}: {patch.kind.name} to '{symbol.name}' cannot hold {error.value:#x}; "
                "compile with the position-independent relocation model and the small code model"
            ) from None


def _strength(symbol: ElfSymbol) -> int:
    if symbol.section == SHN_COMMON:
        return 1
    return 2 if symbol.binding == STB_GLOBAL else 0


def _region(section: elf.Section) -> int:
    if section.flags & elf.SHF_EXECINSTR:
        return _TEXT
    return _DATA if section.flags & elf.SHF_WRITE else _CONSTANTS
