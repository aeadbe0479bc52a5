"""OpenCL C for functions: blocks are labels, branches are jumps, and values of `phi` are set before a jump."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from motet.compiler.codegen.llvm.ir import POINTER, Block, Inexpressible, Instruction, IrFunction
from motet.compiler.codegen.llvm.opencl_c import expressions
from motet.compiler.codegen.llvm.opencl_c.intrinsics import print_call
from motet.compiler.codegen.llvm.opencl_c.memory import (
    print_address,
    print_allocation,
    print_exchange,
    print_load,
    print_store,
)
from motet.compiler.codegen.llvm.opencl_c.printer import Printer
from motet.compiler.codegen.llvm.opencl_c.support import Support
from motet.compiler.codegen.llvm.opencl_c.vectors import (
    print_bitcast,
    print_extract,
    print_extract_value,
    print_insert,
    print_insert_value,
    print_pointer_cast,
    print_shuffle,
)
from motet.compiler.codegen.llvm.reader import BINARY

_CASTS = ("trunc", "zext", "sext", "fptrunc", "fpext", "fptoui", "fptosi", "uitofp", "sitofp")


def print_kernel(function: IrFunction, variables: dict[str, str], support: Support, widest: int) -> str:
    """The kernel of a function, each of whose parameters is a global address or an integer, with vectors of at most
    `widest` lanes. Raises Inexpressible."""
    printer = Printer(function, variables, support, widest)
    parameters: list[str] = []
    for number, each in enumerate(function.parameters):
        printer.name_parameter(each, f"p{number}")
        parameters.append(f"{'global uchar *' if each.type == POINTER else 'ulong '}p{number}")
    flow = _Flow(printer, function)
    for number, block in enumerate(function.blocks):
        if number:
            printer.lines.append(f"{flow.label(block.label)}:;")
        for each in block.instructions:
            flow.print(block, each)
    head = f"kernel __attribute__((reqd_work_group_size(1, 1, 1)))\nvoid {function.name}({', '.join(parameters)}) {{"
    return "\n".join([head, *printer.declarations, *printer.lines, "}"])


class _Flow:
    """Prints the instructions of a function."""

    def __init__(self, printer: Printer, function: IrFunction) -> None:
        self.printer = printer
        self.blocks = {block.label: block for block in function.blocks}
        self.numbers = {block.label: number for number, block in enumerate(function.blocks)}
        self.entry = function.blocks[0].label
        self.printers: Mapping[str, Callable[[Printer, Instruction], None]] = _PRINTERS

    def label(self, name: str) -> str:
        return f"b{self.numbers[name]}"

    def print(self, block: Block, each: Instruction) -> None:
        if each.opcode == "phi":
            self.printer.declare(each.value)
        elif each.opcode == "br":
            self._branch(block, each)
        elif each.opcode == "switch":
            self._switch(block, each)
        elif each.opcode == "ret":
            self.printer.line("return;")
        elif each.opcode == "unreachable":
            self.printer.line("return;  // unreachable")
        elif each.opcode == "fence":
            self.printer.line("mem_fence(CLK_GLOBAL_MEM_FENCE);")
        else:
            self.printers[each.opcode](self.printer, each)

    def _branch(self, block: Block, each: Instruction) -> None:
        if not each.operands or len(set(each.labels)) == 1:
            self._jump(block.label, each.labels[0])
            return
        self.printer.line(f"if ({self.printer.scalar(each.operands[0])}) {{")
        self._jump(block.label, each.labels[0])
        self.printer.line("}")
        self._jump(block.label, each.labels[1])

    def _switch(self, block: Block, each: Instruction) -> None:
        value, *cases = each.operands
        self.printer.line(f"switch ({self.printer.scalar(value)}) {{")
        for case, label in zip(cases, each.labels[1:], strict=True):
            self.printer.line(f"case {self.printer.scalar(case)}: {{")
            self._jump(block.label, label)
            self.printer.line("}")
        self.printer.line("}")
        self._jump(block.label, each.labels[0])

    def _jump(self, origin: str, target: str) -> None:
        """Set the values that depend on the way to `target`, all at once, and jump."""
        printer = self.printer
        moves: list[tuple[str, str, str]] = []
        for each in self.blocks[target].instructions:
            if each.opcode != "phi":
                break
            value = each.operands[self._number(each, origin)]
            names, texts = printer.declare(each.value), printer.value(value)
            kinds = [printer.declared(each.value, part) for part in printer.split(each.type)]
            moves += [move for move in zip(names, texts, kinds, strict=True) if move[0] != move[1]]
        written: set[str] = set()
        late: list[tuple[str, str]] = []
        for name, text, kind in moves:
            if text in written or any(other == name for _, other, _ in moves):
                held = printer.temporary(kind)
                printer.line(f"{held} = {text};")
                late.append((name, held))
            else:
                late.append((name, text))
            written.add(name)
        for name, text in late:
            printer.line(f"{name} = {text};")
        printer.line(f"goto {self.label(target)};")

    def _number(self, each: Instruction, origin: str) -> int:
        for number, label in enumerate(each.labels):
            if label == origin or (origin == self.entry and label not in self.blocks):
                return number
        raise Inexpressible(f"{each.spelled} without a value for a predecessor")


def _binary(printer: Printer, each: Instruction) -> None:
    rows = zip(printer.parts(each.operands[0]), printer.value(each.operands[1]), strict=True)
    printer.assign(each, [expressions.binary(each.opcode, part, a, b, printer.support) for (part, a), b in rows])


def _compare(printer: Printer, each: Instruction) -> None:
    first, second = each.operands
    if first.type == POINTER:
        a, b = (f"(ulong){printer.scalar(value)}" for value in each.operands)
        printer.assign(each, [f"{a} {_ADDRESSES[each.detail]} {b}"])
        return
    rows = zip(printer.parts(first), printer.value(second), strict=True)
    printer.assign(each, [expressions.comparison(each.detail, part, a, b, printer.support) for (part, a), b in rows])


_ADDRESSES = {"eq": "==", "ne": "!=", "ugt": ">", "uge": ">=", "ult": "<", "ule": "<="}


def _select(printer: Printer, each: Instruction) -> None:
    condition, first, second = each.operands
    chosen = printer.value(condition)
    texts: list[str] = []
    for number, ((part, a), b) in enumerate(zip(printer.parts(first), printer.value(second), strict=True)):
        if condition.type.lanes:
            mask = printer.held(part.of(condition.type.of(1)), chosen[number])
            texts.append(expressions.selected(part, mask, a, b))
        else:
            texts.append(f"{chosen[0]} ? {a} : {b}")
    printer.assign(each, texts)


def _negate(printer: Printer, each: Instruction) -> None:
    printer.assign(each, [expressions.negated(part, text) for part, text in printer.parts(each.operands[0])])


def _cast(printer: Printer, each: Instruction) -> None:
    rows = zip(printer.parts(each.operands[0]), printer.split(each.type), strict=True)
    texts = [expressions.cast(each.opcode, part, own, text, printer.support) for (part, text), own in rows]
    printer.assign(each, texts)


def _freeze(printer: Printer, each: Instruction) -> None:
    printer.assign(each, printer.value(each.operands[0]))


_PRINTERS: Mapping[str, Callable[[Printer, Instruction], None]] = {
    **dict.fromkeys(BINARY, _binary), **dict.fromkeys(_CASTS, _cast), "icmp": _compare, "fcmp": _compare,
    "select": _select, "fneg": _negate, "freeze": _freeze, "load": print_load, "store": print_store,
    "getelementptr": print_address, "alloca": print_allocation, "extractelement": print_extract,
    "insertelement": print_insert, "shufflevector": print_shuffle, "bitcast": print_bitcast,
    "ptrtoint": print_pointer_cast, "ptrtoaddr": print_pointer_cast, "inttoptr": print_pointer_cast,
    "addrspacecast": print_pointer_cast, "extractvalue": print_extract_value, "insertvalue": print_insert_value,
    "call": print_call, "cmpxchg": print_exchange,
}
