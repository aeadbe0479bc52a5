"""Rewrites IREE's syntax of operations on tensors to MLIR's generic form, which upstream's parser accepts.

    %1 = flow.tensor.splat %v : tensor<?x4xf32>{%n}
        →  %1 = "flow.tensor.splat"(%v, %n) : (f32, index) -> tensor<?x4xf32>
    %2 = hal.tensor.import on(#hal.device.promise<@a>) wait(%f) => %view "x" : !hal.buffer_view -> tensor<4xf32>
        →  %2 = "hal.tensor.import"(%view) {stream.affinity = #hal.device.promise<@a>, name = "x"} : …

`resolve_flow.py` then replaces them by upstream's operations. Extents in braces are parsed and dropped, because the
tensors have them, except where a tensor is created (`splat`, `empty`) or reshaped. Fences are dropped: a call waits for
its inputs, and readers of its results wait for them.

The grammar is that of IREE's Flow, HAL and Util dialects: https://github.com/iree-org/iree,
compiler/src/iree/compiler/Dialect/{Flow,HAL,Util}/IR.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from motet.compiler.frontends.normaliser import Source

AFFINITY = "stream.affinity"
BUFFER_VIEW = "!hal.buffer_view"


@dataclass
class GenericOperation:
    """An operation in MLIR's generic form, as far as it is parsed, and the index of the next token."""

    source: Source
    name: str
    start: int  # the token of the operation's name
    index: int
    operands: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # names and types
    results: list[str] = field(default_factory=list[str])
    attributes: list[str] = field(default_factory=list[str])

    def take(self, text: str) -> bool:
        """Consumes `text` if it is next; returns whether it was."""
        found = self.source.at(self.index) == text
        self.index += found
        return found

    def expect(self, text: str) -> None:
        if not self.take(text):
            there = self.source.at(self.index) or "the end"
            raise self.source.error(f"{self.name}: expected `{text}`; there is `{there}`", self.index)

    def value(self) -> str:
        """Parses the name of a value."""
        text = self.source.at(self.index)
        if not text.startswith("%"):
            raise self.source.error(f"{self.name}: expected a value, `%…`; there is `{text or 'the end'}`", self.index)
        self.index += 1
        return text

    def values(self, close: str) -> list[str]:
        """Parses values, separated by commas, up to `close`."""
        found: list[str] = []
        while not self.take(close):
            found.append(self.value())
            if not self.take(","):
                self.expect(close)
                break
        return found

    def type(self) -> str:
        """Parses a type."""
        if not self.source.at(self.index):
            raise self.source.error(f"{self.name}: expected a type; the text ends", self.index)
        end = self.source.type_end(self.index)
        text = self.source.slice(self.index, end)
        self.index = end
        return text

    def extents(self) -> list[str]:
        """Parses `{%n, %m}` after a type; returns an empty list if absent."""
        if self.source.at(self.index) != "{" or not self.source.at(self.index + 1).startswith("%"):
            return []
        self.index += 1
        return self.values("}")

    def dictionary(self) -> None:
        """Parses `{…}`, the optional attributes."""
        if self.source.at(self.index) != "{":
            return
        end = self.source.group_end(self.index)
        inner = self.source.slice(self.index + 1, end - 1)
        self.attributes += [inner] if inner else []
        self.index = end

    def sized(self) -> tuple[str, list[str]]:
        """Parses a type and its extents."""
        kind = self.type()
        return kind, self.extents()

    def indices(self, values: list[str]) -> None:
        self.operands += [(value, "index") for value in values]

    def affinity(self) -> None:
        """Parses the optional `on(#…)`."""
        if self.take("on"):
            self.expect("(")
            end = self.source.group_end(self.index - 1)
            self.attributes.append(f"{AFFINITY} = {self.source.slice(self.index, end - 1)}")
            self.index = end

    def fence(self) -> None:
        """Parses the optional `wait(%fence) =>`."""
        if self.take("wait"):
            self.index = self.source.group_end(self.index)
            self.arrow()

    def arrow(self) -> None:
        """Parses `=>`, which is two tokens."""
        self.expect("=")
        self.expect(">")

    def generic(self) -> str:
        """The text of the operation in generic form."""
        attributes = f" {{{', '.join(self.attributes)}}}" if self.attributes else ""
        kinds = ", ".join(kind for _, kind in self.operands)
        values = ", ".join(value for value, _ in self.operands)
        return f"\"{self.name}\"({values}){attributes} : ({kinds}) -> ({', '.join(self.results)})"


def read_tensor_operation(source: Source, index: int) -> GenericOperation:
    """Parses the operation whose name, a key of `OPERATIONS`, is at `index`. Raises CompileError with the place."""
    name = source.at(index)
    reading = GenericOperation(source, name, index, index + 1)
    OPERATIONS[name](reading)
    return reading


# -- flow ----------------------------------------------------------------------------------------


def _constant(reading: GenericOperation) -> None:
    """`dense<…> : TYPE [-> TYPE]`."""
    reading.dictionary()
    begin = reading.index
    source = reading.source
    while source.at(reading.index) not in (":", ""):
        reading.index = (
            source.group_end(reading.index) if source.at(reading.index) in ("<", "[", "(") else reading.index + 1
        )
    reading.expect(":")
    kind = reading.type()
    reading.attributes.append(f"value = {source.slice(begin, reading.index)}")
    reading.results = [reading.type() if reading.take("->") else kind]


def _made(reading: GenericOperation) -> None:
    """`[%value] : TYPE{extents}`."""
    value = reading.value() if reading.source.at(reading.index).startswith("%") else None
    reading.expect(":")
    kind, extents = reading.sized()
    reading.dictionary()
    if value is not None:
        reading.operands.append((value, _element(kind)))
    reading.indices(extents)
    reading.results = [kind]


def _reshape(reading: GenericOperation) -> None:
    """`%x : TYPE{extents} -> TYPE{extents}`."""
    value = reading.value()
    reading.expect(":")
    kind, _ = reading.sized()
    reading.operands.append((value, kind))
    reading.expect("->")
    result, extents = reading.sized()
    reading.dictionary()
    reading.indices(extents)
    reading.results = [result]


def _clone(reading: GenericOperation) -> None:
    """`%x : TYPE{extents}`."""
    value = reading.value()
    reading.expect(":")
    kind, _ = reading.sized()
    reading.dictionary()
    reading.operands.append((value, kind))
    reading.results = [kind]


def _load(reading: GenericOperation) -> None:
    """`%x[%i, …] : TYPE{extents}`."""
    value = reading.value()
    places = reading.values("]") if reading.take("[") else []
    reading.expect(":")
    kind, _ = reading.sized()
    reading.dictionary()
    reading.operands.append((value, kind))
    reading.indices(places)
    reading.results = [_element(kind)]


def _store(reading: GenericOperation) -> None:
    """`%value, %x[%i, …] : TYPE{extents}`."""
    value = reading.value()
    reading.expect(",")
    into = reading.value()
    places = reading.values("]") if reading.take("[") else []
    reading.expect(":")
    kind, _ = reading.sized()
    reading.dictionary()
    reading.operands += [(value, _element(kind)), (into, kind)]
    reading.indices(places)
    reading.results = [kind]


def _slice(reading: GenericOperation) -> None:
    """`%x[%start, … for %length, …] : TYPE{extents} -> TYPE{extents}`."""
    value = reading.value()
    reading.expect("[")
    places: list[str] = []
    while reading.source.at(reading.index).startswith("%"):
        places.append(reading.value())
        if not reading.take(","):
            break
    reading.expect("for")
    places += reading.values("]")
    reading.expect(":")
    kind, _ = reading.sized()
    reading.expect("->")
    result, _ = reading.sized()
    reading.dictionary()
    reading.operands.append((value, kind))
    reading.indices(places)
    reading.results = [result]


def _update(reading: GenericOperation) -> None:
    """`%x, %into[%start, …] : TYPE{extents} -> [%into as] TYPE{extents}`."""
    value = reading.value()
    reading.expect(",")
    into = reading.value()
    places = reading.values("]") if reading.take("[") else []
    reading.expect(":")
    kind, _ = reading.sized()
    reading.expect("->")
    if reading.take(into):
        reading.expect("as")
    result, _ = reading.sized()
    reading.dictionary()
    reading.operands += [(value, kind), (into, result)]
    reading.indices(places)
    reading.results = [result]


# -- util ----------------------------------------------------------------------------------------


def _barrier(reading: GenericOperation) -> None:
    """`%x, %y : TYPE, TYPE`."""
    reading.dictionary()
    values = reading.values(":")
    kinds = [reading.type()]
    while reading.take(","):
        kinds.append(reading.type())
    _join(reading, values, kinds)


def _join(reading: GenericOperation, values: list[str], kinds: list[str]) -> None:
    if len(values) != len(kinds):
        raise reading.source.error(
            f"{reading.name}: {len(values)} values and {len(kinds)} types; expected a type for each", reading.start
        )
    reading.operands += list(zip(values, kinds, strict=True))
    reading.results = kinds


# -- hal -----------------------------------------------------------------------------------------


def _import(reading: GenericOperation) -> None:
    """`[on(#…)] [wait(%fence) =>] [consume] %view ["name"] : TYPE -> [TYPE as] TYPE{extents}`."""
    reading.affinity()
    reading.fence()
    reading.take("consume")
    value = reading.value()
    _named(reading)
    reading.expect(":")
    kind = reading.type()
    reading.expect("->")
    result = reading.type()
    result = reading.type() if reading.take("as") else result
    reading.extents()
    reading.dictionary()
    reading.operands.append((value, kind))
    reading.results = [result]


def _export(reading: GenericOperation) -> None:
    """`[on(#…)] %x ["name"] [into(%storage : TYPE)] : [TYPE as] TYPE{extents} -> TYPE`."""
    reading.affinity()
    value = reading.value()
    _named(reading)
    storage = None
    if reading.take("into"):
        reading.expect("(")
        storage = reading.value()
        kind = reading.type() if reading.take(":") else BUFFER_VIEW
        reading.expect(")")
        storage = (storage, kind)
    reading.expect(":")
    kind = reading.type()
    kind = reading.type() if reading.take("as") else kind
    reading.extents()
    reading.expect("->")
    reading.results = [reading.type()]
    reading.dictionary()
    reading.operands += [(value, kind), *([storage] if storage else [])]


def _alias(reading: GenericOperation) -> None:
    """`[on(#…)] [wait(%fence) =>] %x : TYPE{extents} to %storage : TYPE`; `from` for transients."""
    reading.affinity()
    reading.fence()
    value = reading.value()
    reading.expect(":")
    kind, _ = reading.sized()
    reading.operands.append((value, kind))
    reading.expect("to" if reading.name == "hal.tensor.alias" else "from")
    storage = reading.value()
    reading.expect(":")
    reading.operands.append((storage, reading.type()))
    reading.dictionary()
    reading.results = [kind]


def _join_fence(reading: GenericOperation) -> None:
    """`join(%x, … : TYPE, …) => %fence : !hal.fence`; the end of the call signals the fence."""
    reading.expect("join")
    reading.expect("(")
    values = reading.values(":")
    kinds = [reading.type()]
    while reading.take(","):
        kinds.append(reading.type())
    reading.expect(")")
    reading.arrow()
    reading.value()
    reading.expect(":")
    reading.type()
    reading.dictionary()
    _join(reading, values, kinds)


def _dim(reading: GenericOperation) -> None:
    """`<%view : TYPE>[0] : index`."""
    reading.expect("<")
    value = reading.value()
    reading.expect(":")
    reading.operands.append((value, reading.type()))
    reading.expect(">")
    reading.expect("[")
    reading.attributes.append(f"index = {reading.source.at(reading.index)} : index")
    reading.index += 1
    reading.expect("]")
    reading.expect(":")
    reading.results = [reading.type()]


def _named(reading: GenericOperation) -> None:
    text = reading.source.at(reading.index)
    if text.startswith('"'):
        reading.attributes.append(f"name = {text}")
        reading.index += 1


def _element(kind: str) -> str:
    """The element type of a tensor type, as text."""
    inner = kind[kind.index("<") + 1 : kind.rindex(">")]
    while True:
        head, mark, tail = inner.partition("x")
        if not mark or not (head.strip() == "?" or head.strip().isdigit()):
            return inner.split(",")[0].strip() if "<" not in inner else inner
        inner = tail


OPERATIONS: Mapping[str, Callable[[GenericOperation], None]] = MappingProxyType({
    "flow.tensor.constant": _constant,
    "flow.tensor.dynamic_constant": _constant,
    "flow.tensor.splat": _made,
    "flow.tensor.empty": _made,
    "flow.tensor.alloca": _made,
    "flow.tensor.reshape": _reshape,
    "flow.tensor.bitcast": _reshape,
    "flow.tensor.clone": _clone,
    "flow.tensor.load": _load,
    "flow.tensor.store": _store,
    "flow.tensor.slice": _slice,
    "flow.tensor.update": _update,
    "util.optimization_barrier": _barrier,
    "util.unfoldable_constant": _constant,
    "hal.tensor.import": _import,
    "hal.tensor.export": _export,
    "hal.tensor.alias": _alias,
    "hal.tensor.transients": _alias,
    "hal.tensor.barrier": _join_fence,
    "hal.buffer_view.dim": _dim,
})

__all__ = ["OPERATIONS", "GenericOperation", "read_tensor_operation"]
