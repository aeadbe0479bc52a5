"""Rewrites IREE's syntax of devices to MLIR that upstream's parser accepts.

    util.global private @cpu = #hal.device.alias<"local"> : !hal.device
        →  "util.global"() {sym_name = "cpu", …, initial_value = #hal.device.alias<"local">, type = …} : () -> ()
    util.func public @f(…) {…}; util.call; util.return
        →  func.func @f(…) {…}; func.call; func.return
    %1 = flow.tensor.transfer %0 : tensor<?xf32>{%n} to #hal.device.promise<@cpu>
        →  %1 = "motet.transfer"(%0) {to = #hal.device.promise<@cpu>} : (tensor<?xf32>) -> tensor<?xf32>

Attributes stay unchanged and are checked here, with their place in the text. Aliases inside them, which the parser does
not resolve, are replaced by their definitions. `placement/read_devices.py` interprets them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable

from motet.compiler.frontends.iree.tensor_spellings import OPERATIONS, read_tensor_operation
from motet.compiler.frontends.normaliser import Edit, Source
from motet.compiler.ir.devices import INITIALIZER
from motet.compiler.ir.hal_attributes import (
    AFFINITIES,
    DEVICES,
    EXPECTED_AFFINITY,
    KINDS,
    AttributeReader,
    SpellingError,
)

_log = logging.getLogger("motet")

_PREFIX = "#hal.device."
_TRANSFERS = {"flow.tensor.transfer": "to", "flow.tensor.barrier": "on"}
# Operations with the same syntax as another one, by name.
_RENAMED = {"util.return": "func.return", "util.initializer.return": "func.return", "util.call": "func.call"}
_INDIRECT = ("util.global.load.indirect", "util.global.store.indirect")
_LOWERED = ("hal.", "stream.", "flow.", "vm.")


def device_edits(source: Source) -> list[Edit]:
    """The edits for all devices in `source`. Raises CompileError at the place of an error."""
    return _Spellings(source).edits()


class _Spellings:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.aliases = _aliases(source)
        self.offsets = {name: source.tokens[index].start for name, index in self.aliases.items()}
        self.globals: dict[str, int] = {}  # name → the token of its first definition
        self.initializers = 0
        self.rules: dict[str, Callable[[int], list[Edit]]] = {
            "util.func": self._function,
            "util.global": self._global,
            "util.global.load": self._load,
            "util.global.store": self._store,
            "util.initializer": self._initializer,
            **dict.fromkeys(_INDIRECT, self._refuse_indirect),
            "hal.device.targets": self._targets,
            "flow.tensor.trace": self._trace,
            **dict.fromkeys(_TRANSFERS, self._transfer),
        }

    def edits(self) -> list[Edit]:
        found: list[Edit] = []
        index = 0
        while index < len(self.source.tokens):
            text = self.source.at(index)
            if text.startswith("#hal."):
                end = self._attribute(index)
                found += self._without_aliases(index + 1, end)
                index = end
                continue
            if text in OPERATIONS and self._names_operation(index):
                reading = read_tensor_operation(self.source, index)
                found.append(self._replace(index, reading.index, self._plain(reading.generic())))
                index = reading.index
                continue
            if text in _RENAMED:
                found.append(self._replace(index, index + 1, _RENAMED[text]))
            elif rule := self.rules.get(text):
                found += rule(index)
            elif text.startswith(_LOWERED) and self._names_operation(index):
                self._refuse_operation(index)
            index += 1
        return found

    # -- attributes ------------------------------------------------------------------------------

    def _attribute(self, index: int) -> int:
        """Checks the attribute at `index`; returns the token after it."""
        text = self.source.at(index)
        end = self.source.group_end(index + 1) if self.source.at(index + 1) == "<" else index + 1
        if not text.startswith(_PREFIX):
            return end
        kind = text.removeprefix(_PREFIX)
        reader = AttributeReader(self.source.text, self.source.tokens[index].start, self.offsets)
        try:
            if kind in DEVICES:
                reader.device()
            elif kind in AFFINITIES:
                reader.affinity()
            elif kind == "topology":
                reader.links()
            else:
                expected = f"expected {_PREFIX} and one of {', '.join(KINDS)}"
                raise SpellingError(f"{text}: unknown; {expected}", self.source.tokens[index].start)
        except SpellingError as error:
            raise self.source.error_at(str(error), error.offset) from None
        for remark in reader.remarks:
            _log.warning("%s: %s", self.source.location(self.source.tokens[index].start), remark)
        return end

    def _without_aliases(self, begin: int, end: int) -> list[Edit]:
        return [
            self._replace(i, i + 1, self._expanded(self.aliases[name]))
            for i in range(begin, end)
            if (name := self.source.at(i)[1:]) in self.aliases and self.source.at(i).startswith("#")
        ]

    def _expanded(self, index: int) -> str:
        """The text of the attribute at `index` with aliases expanded."""
        end = self._value_end(index)
        pieces: list[str] = []
        for i in range(index, end):
            name = self.source.at(i)[1:]
            known = self.source.at(i).startswith("#") and self.aliases.get(name, index) < index
            pieces.append(self._expanded(self.aliases[name]) if known else self.source.at(i))
        return " ".join(pieces).replace(" <", "<", 1)

    def _plain(self, text: str) -> str:
        """`text` with aliases expanded."""
        def stands_for(match: re.Match[str]) -> str:
            index = self.aliases.get(match[1])
            return match[0] if index is None else self._expanded(index)

        return re.sub(r"#([A-Za-z_]\w*)(?![\w.<])", stands_for, text) if "#" in text else text

    def _value_end(self, index: int) -> int:
        """The token after the attribute value at `index`, including its type."""
        if self.source.at(index) == "-":
            index += 1
        if self.source.at(index) in ("[", "{", "("):
            return self.source.group_end(index)
        end = index + 1
        if self.source.at(end) == "<":
            end = self.source.group_end(end)
        return self.source.type_end(end + 1) if self.source.at(end) == ":" else end

    # -- operations ------------------------------------------------------------------------------

    def _function(self, index: int) -> list[Edit]:
        """`util.func public @f`: becomes a function; public is the default."""
        public = self.source.at(index + 1) == "public"
        return [self._replace(index, index + 1 + public, "func.func")]

    def _global(self, index: int) -> list[Edit]:
        """`util.global [VISIBILITY] [mutable] @x [{…}] [: TYPE] [= VALUE [: TYPE]]`."""
        source = self.source
        i = index + 1
        entries: list[str] = []
        if source.at(i) in ("public", "private", "nested"):
            entries.append(f'sym_visibility = "{source.at(i)}"')
            i += 1
        if source.at(i) == "mutable":
            entries.append("is_mutable")
            i += 1
        i, name = self._symbol(i)
        self._declare(name, index)
        head = ", ".join([f'sym_name = "{name}"', *entries])
        edits: list[Edit] = []
        begin = index
        text = f'"util.global"() {{{head}'
        if source.at(i) == "{":
            close = source.group_end(i)
            edits.append(self._replace(index, i + 1, text + (", " if close > i + 2 else "")))
            begin, i, text = close - 1, close, ""
        kind = ""
        if source.at(i) == ":":
            end = source.type_end(i + 1)
            kind, i = source.slice(i + 1, end), end
        if source.at(i) != "=":
            if not kind:
                raise source.error(f"util.global @{name}: expected `=` and a value, or `:` and a type", i)
            edits.append(self._replace(begin, i, f"{text}, type = {kind}}} : () -> ()"))
            return edits
        edits.append(self._replace(begin, i + 1, f"{text}, initial_value = "))
        end = self._value_end(i + 1)
        last = source.tokens[end - 1].end
        edits.append(Edit(last, last, (f", type = {kind}" if kind else "") + "} : () -> ()"))
        return edits

    def _declare(self, name: str, index: int) -> None:
        if name in self.globals:
            first = self.source.location(self.source.tokens[self.globals[name]].start)
            raise self.source.error(
                f"util.global @{name}: the name is taken, by the one at {first}; expected each name once", index
            )
        self.globals[name] = index

    def _load(self, index: int) -> list[Edit]:
        """`util.global.load [immutable] @x : TYPE`."""
        i = index + 1 + (self.source.at(index + 1) == "immutable")
        i, name = self._symbol(i)
        if self.source.at(i) == "{":
            i = self.source.group_end(i)
        if self.source.at(i) != ":":
            raise self.source.error(f"util.global.load @{name}: expected `:` and a type", i)
        return [self._replace(index, i + 1, f'"util.global.load"() {{global = @{name}}} : () ->')]

    def _store(self, index: int) -> list[Edit]:
        """`util.global.store %x, @x : TYPE`."""
        source, value = self.source, self.source.at(index + 1)
        if not value.startswith("%") or source.at(index + 2) != ",":
            raise source.error("util.global.store: expected a value, `,` and the name of a global", index + 1)
        i, name = self._symbol(index + 3)
        if source.at(i) == "{":
            i = source.group_end(i)
        if source.at(i) != ":":
            raise source.error(f"util.global.store @{name}: expected `:` and a type", i)
        end = source.type_end(i + 1)
        kind = source.slice(i + 1, end)
        return [self._replace(index, end, f'"util.global.store"({value}) {{global = @{name}}} : ({kind}) -> ()')]

    def _initializer(self, index: int) -> list[Edit]:
        """`util.initializer [attributes {…}] {…}`: becomes a separate function, which `resolve-globals` reads."""
        begin = index + 1
        if self.source.at(begin) == "attributes":
            begin = self.source.group_end(begin + 1)
        if self.source.at(begin) != "{":
            raise self.source.error("util.initializer: expected `{` and its operations", begin)
        self.initializers += 1
        text = f'func.func private @"{INITIALIZER}{self.initializers}"() '
        return [Edit(self.source.tokens[index].start, self.source.tokens[begin].start, text)]

    def _transfer(self, index: int) -> list[Edit]:
        """`flow.tensor.transfer %x : TYPE{%extents} to AFFINITY [attributes {…}]`."""
        source, name = self.source, self.source.at(index)
        word = _TRANSFERS[name]
        operand, colon = source.at(index + 1), index + 2
        if not operand.startswith("%") or source.at(colon) != ":":
            raise source.error(f"{name}: expected a tensor, `:` and its type", index + 1)
        end = source.type_end(colon + 1)
        kind = source.slice(colon + 1, end)
        target = source.group_end(end) if source.at(end) == "{" else end
        if source.at(target) != word:
            raise source.error(f"{name}: expected `{word}` and where to; there is `{source.at(target)}`", target)
        target += 1
        if not source.at(target).startswith("#"):
            raise source.error(f"{name}: {EXPECTED_AFFINITY}; there is {source.at(target) or 'the end'}", target)
        self._check_affinity(target)
        after = self._value_end(target)
        tail = f"}} : ({kind}) -> {kind}"
        edits = [self._replace(index, target, f'"motet.transfer"({operand}) {{to = ')]
        if source.at(after) == "attributes" and source.at(after + 1) == "{":
            close = source.group_end(after + 1) - 1
            edits.append(self._replace(after, after + 2, ", " if close > after + 2 else ""))
            edits.append(self._replace(close, close + 1, tail))
        else:
            place = source.tokens[after - 1].end
            edits.append(Edit(place, place, tail))
        return edits

    def _trace(self, index: int) -> list[Edit]:
        """`flow.tensor.trace "name" = [%x : TYPE, …]`, which prints values."""
        if self.source.at(index + 2) != "=" or self.source.at(index + 3) != "[":
            raise self.source.error('flow.tensor.trace: expected "name" = [%value : TYPE, …]', index)
        where = self.source.location(self.source.tokens[index].start)
        _log.warning("%s: flow.tensor.trace is left out: nothing is printed while a program runs", where)
        return [self._replace(index, self.source.group_end(index + 3), "")]

    def _check_affinity(self, index: int) -> None:
        reader = AttributeReader(self.source.text, self.source.tokens[index].start, self.offsets)
        try:
            reader.affinity()
        except SpellingError as error:
            raise self.source.error_at(f"{self.source.at(index)}: {error}", error.offset) from None

    def _targets(self, index: int) -> list[Edit]:
        """`hal.device.targets = {z = …, a = …}` becomes `[{z = …}, {a = …}]`: a dictionary has no order."""
        source = self.source
        if source.at(index + 1) != "=" or source.at(index + 2) != "{":
            return []
        close = source.group_end(index + 2) - 1
        if close == index + 3:
            return [self._replace(index + 2, close + 1, "[]")]
        edits = [self._replace(index + 2, index + 3, "[{"), self._replace(close, close + 1, "}]")]
        i = index + 3
        while i < close:
            if source.at(i) == ",":
                edits.append(self._replace(i, i + 1, "}, {"))
            i = source.group_end(i) if source.at(i) in ("[", "{", "(", "<") else i + 1
        return edits

    def _names_operation(self, index: int) -> bool:
        """Whether a dotted word names an operation rather than an attribute or a part of one."""
        before, after = self.source.at(index - 1), self.source.at(index + 1)
        return before not in (",", "{", ".", "!") and after not in ("=", ",", "}")

    def _refuse_operation(self, index: int) -> None:
        raise self.source.error(
            f"{self.source.at(index)}: an operation of a program that is lowered already; of the dialects hal, flow "
            f"and stream, a program has attributes, flow.tensor.transfer, {', '.join(sorted(OPERATIONS))}", index
        )

    def _refuse_indirect(self, index: int) -> list[Edit]:
        raise self.source.error(
            f"{self.source.at(index)}: addresses of globals are not supported; expected "
            "util.global.load @name and util.global.store %value, @name", index
        )

    # -- helpers ---------------------------------------------------------------------------------

    def _symbol(self, index: int) -> tuple[int, str]:
        """The token after a symbol name, and the name."""
        text = self.source.at(index)
        if text == "@" and self.source.at(index + 1).startswith('"'):
            return index + 2, self.source.at(index + 1)[1:-1]
        if not text.startswith("@"):
            raise self.source.error(f"expected a name, `@` and letters; there is `{text or 'the end'}`", index)
        return index + 1, text[1:]

    def _replace(self, begin: int, end: int, text: str) -> Edit:
        """Replaces the tokens `[begin, end)`."""
        return Edit(self.source.tokens[begin].start, self.source.tokens[end - 1].end, text)


def _aliases(source: Source) -> dict[str, int]:
    """The aliases of the text: name → the token at which the definition of `#name = …` begins."""
    found: dict[str, int] = {}
    for index in range(len(source.tokens) - 2):
        text = source.at(index)
        if text.startswith("#") and "." not in text and source.at(index + 1) == "=" and len(text) > 1:
            found.setdefault(text[1:], index + 2)
    return found


__all__ = ["device_edits"]
