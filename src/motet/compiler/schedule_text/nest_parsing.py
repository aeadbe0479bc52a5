"""Parses the nest of one stage: loops with their flags, copies of operands and results, and parts of dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from motet.compiler.kernels.schedule import Nest, NestCopy, NestLoop, NestRegion
from motet.compiler.schedule_text.other_names import OF_LOOPS
from motet.compiler.schedule_text.plain import Plain
from motet.errors import ScheduleError

_PART = re.compile(r"(\w+)\[(\d*):(\d*)(:?)\]")
_FLAGS = ("parallelize", "vectorize", "unroll", "split_reduction", "tensorize", "pack", "buffer", "partial", "full")


@dataclass(frozen=True)
class StageNames:
    """The names that the nest of a stage may contain: dimensions, all values, the operands in order, those that the
    stage reads, and those that it writes."""

    dims: tuple[str, ...]
    values: tuple[str, ...]
    operands: tuple[str, ...]
    read: frozenset[str]
    written: frozenset[str]


@dataclass
class _Open:
    """A nest being read; `around` is the nest whose region it is."""

    names: StageNames
    around: _Open | None = None
    loops: list[NestLoop] = field(default_factory=list[NestLoop])
    regions: list[NestRegion] = field(default_factory=list[NestRegion])
    packs: list[NestCopy] = field(default_factory=list[NestCopy])
    buffers: list[NestCopy] = field(default_factory=list[NestCopy])

    def holder(self, label: str) -> _Open:
        """The nest, this one or one around, that has the loop labelled `label`; this one if none has."""
        nest: _Open | None = self
        while nest is not None:
            if any(loop.label == label for loop in nest.loops):
                return nest
            nest = nest.around
        return self

    def closed(self) -> Nest:
        return Nest(self.loops, self.regions, self.packs, self.buffers)


def parse_nest(content: dict[str, Plain], names: StageNames) -> Nest:
    """The nest that a mapping describes. Raises ScheduleError for names that the stage does not have."""
    return _parse(content, names, None, "").closed()


def _parse(content: dict[str, Plain], names: StageNames, around: _Open | None, part_of: str) -> _Open:
    """A nest; the part of dimension `part_of` is its outermost loop, unless the content has that loop."""
    nest = _Open(names, around)
    copies: list[tuple[str, Plain, str]] = []
    if part_of and part_of not in content:
        nest.loops.append(NestLoop(part_of))
    for key, value in content.items():
        if (part := _PART.fullmatch(key)) is not None:
            _add_region(nest, part, value, key)
        elif key in names.values and key not in names.dims:
            copies.append((key, value, nest.loops[-1].label if nest.loops else ""))
        else:
            if nest.regions:
                raise ScheduleError("split", key, "a loop follows the parts of a dimension", "loops before all parts")
            _add_loop(nest, key, value)
    for key, value, last in copies:
        _add_copies(nest, key, value, last)
    return nest


def _add_region(nest: _Open, part: re.Match[str], value: Plain, key: str) -> None:
    dim, begin, end, sized = part.groups()
    if dim not in nest.names.dims:
        raise ScheduleError("split", key, f"the stage has no dimension {dim}", f"one of {_listed(nest.names.dims)}")
    if not isinstance(value, dict):
        raise ScheduleError("split", key, "it has no loops", f'"{key}": {{…}} with the loops of the part')
    last = nest.regions[-1].end if nest.regions else 0
    first = int(begin) if begin else last
    if first is None:
        raise ScheduleError("split", key, "the part before has no end", f"parts as {dim}[0:8], {dim}[8:]")
    stop = (first + int(end) if sized else int(end)) if end else None
    inner = _parse(value, nest.names, nest, dim)
    nest.regions.append(NestRegion(dim, first, stop, inner.closed()))


def _add_loop(nest: _Open, key: str, value: Plain) -> None:
    dim, sign, size = key.partition("#")
    if dim not in nest.names.dims:
        legal = f"one of {_listed((*nest.names.dims, *nest.names.values))}"
        raise ScheduleError("loop", key, f"the stage has no dimension or value {dim}", legal)
    if sign and not re.fullmatch(r"[1-9]\d{0,17}", size):
        raise ScheduleError("tile", key, f"{size or 'nothing'} is no size", f"a number from 1, as {dim}#16")
    loop = NestLoop(dim, int(size) if sign else None)
    if any(loop.label == other.label for other in nest.loops):
        raise ScheduleError("loop", key, "it is twice in one nest", "each loop once")
    flags = _flags(value, key)
    nest.loops.append(_with_flags(loop, flags))
    for name in ("pack", "buffer"):
        if name in flags and flags[name] is not False:
            _add_copy_of_loop(nest, loop.label, name, flags[name])


def _with_flags(loop: NestLoop, flags: dict[str, Plain]) -> NestLoop:
    """`loop` with the flags that describe how its iterations run."""
    label = loop.label
    parallel = _wanted(flags, "parallelize", label)
    vector = _wanted(flags, "vectorize", label)
    unroll = flags.get("unroll", False)
    if unroll is None or unroll is True:
        unroll = 0
    elif unroll is False:
        unroll = None
    elif not isinstance(unroll, int) or unroll < 1:
        raise ScheduleError("unroll", label, f"{unroll} is no number of copies", "a number from 1, or none for all")
    kernel = flags.get("tensorize", "")
    if not isinstance(kernel, str) or ("tensorize" in flags and not kernel):
        raise ScheduleError("tensorize", label, "it names no microkernel", '{"tensorize": NAME}')
    split = _wanted(flags, "split_reduction", label)
    return msgspec.structs.replace(
        loop, parallel=parallel, vectorize=vector, unroll=unroll, tensorize=kernel, split_reduction=split
    )


def _flags(value: Plain, key: str) -> dict[str, Plain]:
    """The flags of a loop, also from a list of them or from text as `unroll=4 vectorize`."""
    if isinstance(value, str):
        words = (word.partition("=") for word in value.split())
        value = {name: (int(given) if given.isdigit() else given) if sign else None for name, sign, given in words}
    elif isinstance(value, list) and all(isinstance(each, str) for each in value):
        value = {str(each): None for each in value}
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ScheduleError("loop", key, f"{value!r} are no flags", 'flags as {"unroll": 4}, or {} for none')
    for name in value:
        if name not in _FLAGS:
            legal = OF_LOOPS.get(name, f"one of {', '.join(_FLAGS)}")
            raise ScheduleError(name, key, "there is no such primitive of a loop", legal)
    return value


def _wanted(flags: dict[str, Plain], name: str, label: str) -> bool:
    value = flags.get(name, False)
    if value is not None and not isinstance(value, bool):
        raise ScheduleError(name, label, f"it has the value {value}", f'{{"{name}"}} without a value')
    return value is not False


def _add_copy_of_loop(nest: _Open, label: str, kind: str, value: Plain) -> None:
    """A copy that is written at its loop: `k: {pack: B}`, or in XTC's form `{pack: [1, default, true]}`."""
    if kind == "buffer":
        results = sorted(nest.names.written)
        value = results[0] if value in (None, True, "default") else value
        if not isinstance(value, str) or (len(results) > 1 and value not in results):
            raise ScheduleError("buffer", label, "it names no result", f"one of {', '.join(results)}")
        nest.buffers.append(NestCopy(value, label))
        return
    padding = 0
    if isinstance(value, list) and len(value) == 3:
        value, padding = value[0], 1 if value[2] is True else 0
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(nest.names.operands):
        value = nest.names.operands[value]
    if not isinstance(value, str):
        raise ScheduleError("pack", label, "it names no operand", f"one of {_listed(nest.names.operands)}")
    nest.packs.append(NestCopy(value, label, padding))


def _add_copies(nest: _Open, name: str, value: Plain, last: str) -> None:
    """The copies of value `name`: `B: {pack: k}`, `B: {pack: {at: k, padding: 4}}`, or `B: {pack}` at the last
    loop."""
    if value is None or isinstance(value, str):
        value = dict.fromkeys(value.split() if value else ())
    elif isinstance(value, list):
        value = {str(each): None for each in value}
    lists: dict[str, Callable[[_Open], list[NestCopy]]] = {"pack": lambda n: n.packs, "buffer": lambda n: n.buffers}
    if not isinstance(value, dict) or not value or not value.keys() <= lists.keys():
        raise ScheduleError("copy", name, "neither pack nor buffer", f'{name}: {{"pack": LOOP}} or {{"buffer": LOOP}}')
    for kind, given in value.items():
        at, padding = (given.get("at", last), given.get("padding", 0)) if isinstance(given, dict) else (given, 0)
        at = last if at is None or at is True else at
        if isinstance(given, dict) and not given.keys() <= {"at", "padding"}:
            raise ScheduleError(kind, name, f"it has the entries {', '.join(given)}", "at and padding")
        if not isinstance(at, str) or not at:
            raise ScheduleError(kind, name, "it names no loop, and none stands before it", f'{{"{kind}": LOOP}}')
        if not isinstance(padding, int) or isinstance(padding, bool) or padding < 0:
            raise ScheduleError(kind, name, f"padding is {padding}", "a number of elements from 0")
        holder = nest.holder(at)
        lists[kind](holder).append(NestCopy(name, at, padding))


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(dict.fromkeys(names)) or "none"
