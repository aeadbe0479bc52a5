"""Reads the LLVM IR that LLVM prints, of functions without exceptions, atomic operations and varargs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from motet.compiler.codegen.llvm.opencl_c.model import (
    BOOLEAN,
    POINTER,
    VOID,
    Aggregate,
    Array,
    Block,
    Inexpressible,
    IrFunction,
    IrInstruction,
    IrScalar,
    IrStruct,
    Local,
    Module,
    Number,
    Type,
    Value,
    Vector,
)
from motet.compiler.codegen.llvm.opencl_c.tokens import Tokens, unquoted

_FLAG_NAMES = (
    "nuw nsw exact nnan ninf nsz arcp contract afn reassoc fast disjoint nneg inbounds nusw samesign tail musttail "
    "notail volatile"
)
_BINARY_NAMES = "add sub mul udiv sdiv urem srem shl lshr ashr and or xor fadd fsub fmul fdiv frem"
_CAST_NAMES = (
    "trunc zext sext fptrunc fpext fptoui fptosi uitofp sitofp ptrtoint ptrtoaddr inttoptr bitcast addrspacecast"
)
_CONSTANT_NAMES = "undef poison null true false zeroinitializer splat getelementptr none"
_FLAGS, BINARY = frozenset(_FLAG_NAMES.split()), frozenset(_BINARY_NAMES.split())
_CASTS, _CONSTANTS = frozenset(_CAST_NAMES.split()), frozenset(_CONSTANT_NAMES.split())
_LABEL = re.compile(r'("[^"]+"|[-\w.$]+):')
_VARIABLE = re.compile(r'(@(?:"[^"]+"|[-\w.$]+)) = (?:[a-z_]+ )*?(?:addrspace\(\d+\) )?(global|constant) (.*)')


def read_module(text: str, widest: int) -> Module:
    """The functions and variables of `text`, whose vectors are printed in parts of at most `widest` lanes. Raises
    Inexpressible for what the printer does not know."""
    functions: dict[str, IrFunction] = {}
    variables: dict[str, Value] = {}
    lines = iter(text.splitlines())
    for line in lines:
        if match := _VARIABLE.match(line):
            if match[2] == "global":
                raise Inexpressible("a variable that is not constant")
            variables[unquoted(match[1])] = Tokens(match[3], widest).typed()
        elif line.startswith("define "):
            function = _function(line, lines, widest)
            functions[function.name] = function
    return Module(functions, variables)


def _function(header: str, lines: Iterator[str], widest: int) -> IrFunction:
    tokens = Tokens(header, widest)
    while not tokens.peek().startswith("@"):
        result = tokens.type() if tokens.at_type() and not tokens.peek(1).startswith("(") else None
        if result is None:
            tokens.next()
            if tokens.peek() == "(":
                tokens.skip_balanced()
        elif tokens.peek().startswith("@"):
            break
    else:
        result = VOID
    name = unquoted(tokens.next())
    tokens.expect("(")
    function = IrFunction(name, [], result or VOID)
    while not tokens.take(")"):
        kind = tokens.type()
        _skip_attributes(tokens)
        function.parameters.append(Local(kind, unquoted(tokens.next())))
        tokens.take(",")
    block = Block("")
    function.blocks.append(block)
    for line in lines:
        if line.startswith("}"):
            break
        if match := _LABEL.match(line):
            if block.instructions or len(function.blocks) > 1:
                block = Block("")
                function.blocks.append(block)
            block.label = match[1].strip('"')
        elif stripped := line.strip():
            while stripped.startswith("switch") and not stripped.split(", !")[0].endswith("]"):
                stripped += " " + next(lines).strip()
            if not stripped.startswith((";", "#dbg")):
                block.instructions.append(_InstructionReader(stripped, widest).instruction())
    return function


class _InstructionReader(Tokens):
    """Reads an instruction."""

    def instruction(self) -> IrInstruction:
        name = ""
        if self.peek(1) == "=":
            name = unquoted(self.next())
            self.next()
        flags = self._flags()
        opcode = self.next()
        flags |= self._flags()
        if opcode in BINARY:
            return self._binary(opcode, name, flags)
        if opcode in _CASTS:
            value = self.typed()
            self.expect("to")
            return IrInstruction(opcode, self.type(), name, (value,), flags=flags)
        read = getattr(self, f"_{opcode}", None)
        if read is None:
            raise Inexpressible(f"the instruction {opcode}")
        return read(name, flags)

    def _flags(self) -> frozenset[str]:
        found: set[str] = set()
        while self.peek() in _FLAGS:
            found.add(self.next())
        return frozenset(found)

    def _binary(self, opcode: str, name: str, flags: frozenset[str]) -> IrInstruction:
        first = self.typed()
        self.expect(",")
        return IrInstruction(opcode, first.type, name, (first, self.value(first.type)), flags=flags)

    def _list(self) -> tuple[Value, ...]:
        values = [self.typed()]
        while self.peek() == "," and self.peek(1)[0] not in "!a":  # not metadata or an alignment
            self.next()
            values.append(self.typed())
        return tuple(values)

    def _alignment(self) -> int:
        while token := self.next():
            if token == "align":
                return int(self.next())
        return 0

    def _fneg(self, name: str, flags: frozenset[str]) -> IrInstruction:
        value = self.typed()
        return IrInstruction("fneg", value.type, name, (value,), flags=flags)

    def _freeze(self, name: str, flags: frozenset[str]) -> IrInstruction:
        value = self.typed()
        return IrInstruction("freeze", value.type, name, (value,), flags=flags)

    def _compare(self, opcode: str, name: str, flags: frozenset[str]) -> IrInstruction:
        predicate = self.next()
        first = self.typed()
        self.expect(",")
        second = self.value(first.type)
        kind = Vector(first.type.count, BOOLEAN, self.widest) if isinstance(first.type, Vector) else BOOLEAN
        return IrInstruction(opcode, kind, name, (first, second), predicate, flags=flags)

    def _icmp(self, name: str, flags: frozenset[str]) -> IrInstruction:
        return self._compare("icmp", name, flags)

    def _fcmp(self, name: str, flags: frozenset[str]) -> IrInstruction:
        return self._compare("fcmp", name, flags)

    def _select(self, name: str, flags: frozenset[str]) -> IrInstruction:
        values = self._list()
        return IrInstruction("select", values[1].type, name, values, flags=flags)

    def _phi(self, name: str, flags: frozenset[str]) -> IrInstruction:
        kind = self.type()
        values: list[Value] = []
        labels: list[str] = []
        while self.take("["):
            values.append(self.value(kind))
            self.expect(",")
            labels.append(unquoted(self.next()))
            self.expect("]")
            self.take(",")
        return IrInstruction("phi", kind, name, tuple(values), labels=tuple(labels), flags=flags)

    def _call(self, name: str, flags: frozenset[str]) -> IrInstruction:
        kind: Type = VOID
        while not self.peek().startswith(("@", "%")):
            if self.at_type():
                kind = self.type()
            elif self.next() and self.peek() == "(":
                self.skip_balanced()
        callee = self.next()
        if callee[0] == "%":
            raise Inexpressible("a call of a computed function")
        self.expect("(")
        values: list[Value] = []
        while not self.take(")"):
            argument = self.type()
            _skip_attributes(self)
            if argument == VOID:  # metadata
                while self.peek() not in (",", ")"):
                    if self.next() and self.peek() == "(":
                        self.skip_balanced()
            else:
                values.append(self.value(argument))
            self.take(",")
        return IrInstruction("call", kind, name, tuple(values), unquoted(callee), flags=flags)

    def _load(self, name: str, flags: frozenset[str]) -> IrInstruction:
        kind = self.type()
        self.expect(",")
        return IrInstruction("load", kind, name, (self.typed(),), flags=flags, align=self._alignment())

    def _store(self, name: str, flags: frozenset[str]) -> IrInstruction:
        value = self.typed()
        self.expect(",")
        return IrInstruction("store", VOID, name, (value, self.typed()), flags=flags, align=self._alignment())

    def _cmpxchg(self, name: str, flags: frozenset[str]) -> IrInstruction:
        self.take("weak")
        flags |= self._flags()
        address = self.typed()
        self.expect(",")
        expected = self.typed()
        self.expect(",")
        values = (address, expected, self.typed())
        return IrInstruction("cmpxchg", IrStruct((expected.type, BOOLEAN)), name, values, flags=flags)

    def _getelementptr(self, name: str, flags: frozenset[str]) -> IrInstruction:
        over = self.type()
        self.expect(",")
        values = self._list()
        lanes = [value.type.count for value in values if isinstance(value.type, Vector)]
        kind = Vector(lanes[0], POINTER, self.widest) if lanes else POINTER
        return IrInstruction("getelementptr", kind, name, values, over=over, flags=flags)

    def _alloca(self, name: str, flags: frozenset[str]) -> IrInstruction:
        over = self.type()
        count: Value = Number(IrScalar("i", 64), 1)
        if self.peek() == "," and self.peek(1) not in ("align", "addrspace") and self.peek(1)[0] != "!":
            self.next()
            count = self.typed()
        if not isinstance(count, Number):
            raise Inexpressible("an allocation of computed size")
        return IrInstruction("alloca", POINTER, name, over=Array(count.bits, over), align=self._alignment())

    def _br(self, name: str, flags: frozenset[str]) -> IrInstruction:
        values: tuple[Value, ...] = ()
        if self.peek() != "label":
            values = (self.typed(),)
            self.expect(",")
        labels: list[str] = []
        while self.take("label"):
            labels.append(unquoted(self.next()))
            self.take(",")
        return IrInstruction("br", VOID, name, values, labels=tuple(labels), flags=flags)

    def _switch(self, name: str, flags: frozenset[str]) -> IrInstruction:
        values = [self.typed()]
        self.expect(",")
        self.expect("label")
        labels = [unquoted(self.next())]
        self.expect("[")
        while not self.take("]"):
            values.append(self.typed())
            self.expect(",")
            self.expect("label")
            labels.append(unquoted(self.next()))
        return IrInstruction("switch", VOID, name, tuple(values), labels=tuple(labels), flags=flags)

    def _ret(self, name: str, flags: frozenset[str]) -> IrInstruction:
        kind = self.type()
        values = () if kind == VOID else (self.value(kind),)
        return IrInstruction("ret", VOID, name, values, flags=flags)

    def _fence(self, name: str, flags: frozenset[str]) -> IrInstruction:
        return IrInstruction("fence", VOID, name, flags=flags)

    def _unreachable(self, name: str, flags: frozenset[str]) -> IrInstruction:
        return IrInstruction("unreachable", VOID, name, flags=flags)

    def _extractelement(self, name: str, flags: frozenset[str]) -> IrInstruction:
        values = self._list()
        assert isinstance(values[0].type, Vector)
        return IrInstruction("extractelement", values[0].type.element, name, values, flags=flags)

    def _insertelement(self, name: str, flags: frozenset[str]) -> IrInstruction:
        values = self._list()
        return IrInstruction("insertelement", values[0].type, name, values, flags=flags)

    def _shufflevector(self, name: str, flags: frozenset[str]) -> IrInstruction:
        first, second, mask = self._list()
        assert isinstance(first.type, Vector) and isinstance(mask.type, Vector)
        lanes = (
            tuple(each.bits if isinstance(each, Number) else -1 for each in mask.elements)
            if isinstance(mask, Aggregate)
            else (-1,) * mask.type.count
        )
        kind = Vector(len(lanes), first.type.element, self.widest)
        return IrInstruction("shufflevector", kind, name, (first, second), indices=lanes, flags=flags)

    def _path(self) -> tuple[int, ...]:
        found: list[int] = []
        while self.take(","):
            if self.peek().startswith("!"):
                break
            found.append(int(self.next()))
        return tuple(found)

    def _extractvalue(self, name: str, flags: frozenset[str]) -> IrInstruction:
        value = self.typed()
        path = self._path()
        kind = value.type
        for number in path:
            if isinstance(kind, IrStruct):
                kind = kind.fields[number]
            elif isinstance(kind, Array):
                kind = kind.element
        return IrInstruction("extractvalue", kind, name, (value,), indices=path, flags=flags)

    def _insertvalue(self, name: str, flags: frozenset[str]) -> IrInstruction:
        value = self.typed()
        self.expect(",")
        element = self.typed()
        return IrInstruction("insertvalue", value.type, name, (value, element), indices=self._path(), flags=flags)


def _skip_attributes(tokens: Tokens) -> None:
    """Skip the attributes of a parameter or an argument."""
    while re.fullmatch(r"[a-z_]+", tokens.peek()) and not tokens.at_type():
        if tokens.peek() in _CONSTANTS:
            return
        attribute = tokens.next()
        if tokens.peek() == "(":
            tokens.skip_balanced()
        elif attribute == "align":
            tokens.next()

