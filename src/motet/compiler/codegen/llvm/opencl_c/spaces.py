"""The address spaces of a kernel's pointers, which C's types of pointers name.

A parameter is global, an allocation private, a variable constant. An address that is read from memory, or made from a
number, is global: only such addresses may be written to memory.
"""

from __future__ import annotations

from motet.compiler.codegen.llvm.ir import Inexpressible, Instruction, IrFunction, IrValue

GLOBAL, PRIVATE, CONSTANT = "global", "private", "constant"
_FOLLOWED = {
    "getelementptr": 1, "freeze": 1, "addrspacecast": 1, "bitcast": 1, "extractelement": 1, "insertelement": 2,
    "shufflevector": 2,
}


class Spaces:
    """The address spaces of a function's values. Raises Inexpressible if one may be in several."""

    def __init__(self, function: IrFunction) -> None:
        self._found = {each.text: GLOBAL for each in function.parameters if each.type.is_pointer}
        todo = [
            each for block in function.blocks for each in block.instructions if each.result and each.type.is_pointer
        ]
        while True:
            before = len(self._found)
            for each in todo:
                space = self._of_result(each)
                if space and self._found.setdefault(each.result, space) != space:
                    raise Inexpressible(f"{each.spelled} of addresses in {space} and {self._found[each.result]} memory")
            if len(self._found) == before:
                return

    def of(self, value: IrValue) -> str:
        """The address space of an address; global for null."""
        return self._known(value) or GLOBAL

    def _known(self, value: IrValue) -> str:
        return CONSTANT if value.text.startswith(("@", "getelementptr ")) else self._found.get(value.text, "")

    def _of_result(self, each: Instruction) -> str:
        if each.opcode == "alloca":
            return PRIVATE
        sources = each.operands
        if each.opcode == "select":
            sources = each.operands[1:]
        elif each.opcode in _FOLLOWED:
            sources = each.operands[: _FOLLOWED[each.opcode]]
        elif each.opcode != "phi":
            return GLOBAL
        found = {self._known(source) for source in sources if source.type.is_pointer} - {""}
        if len(found) > 1:
            raise Inexpressible(f"{each.spelled} of addresses in {' and '.join(sorted(found))} memory")
        return next(iter(found), "")
