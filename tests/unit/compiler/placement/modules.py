"""Modules on devices a (the default), b and c, and what placement makes of them, as short texts."""

from __future__ import annotations

from motet.compiler.frontends.mlir import parse_module
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import AFFINITY, TO, TRANSFER_OP
from motet.compiler.ir.functions import public_functions
from motet.compiler.ir.program import Program
from motet.compiler.passes.pipelines import READ_DEVICES
from motet.compiler.passes.running import run_steps
from motet.compiler.placement.fold_transfers import FoldTransfers
from motet.compiler.placement.inline_calls import InlineCalls
from motet.compiler.placement.insert_transfers import InsertTransfers
from motet.compiler.placement.place import assign
from motet.compiler.placement.place_operations import PlaceOperations
from motet.compiler.targets.device_flags import parse_device_flags

FILE = "model.mlir"
DEVICES = "".join(
    f'util.global private @{name} = #hal.device.alias<"local"[{number}]> : !hal.device\n'
    for number, name in enumerate("abc")
)
SHORT = {
    "$T": "tensor<4xf32>",
    **{f"${name.upper()}": f"#hal.device.affinity<@{name}>" for name in "abc"},
    "$on": "stream.affinity =",
    "$pin": "iree.abi.affinity =",
    "$move": "flow.tensor.transfer",
}


def spelled(text: str) -> str:
    """`text` with what stands for types and affinities in it written out."""
    for short, full in SHORT.items():
        text = text.replace(short, full)
    return text


def read(text: str, flags: tuple[str, ...] = ()) -> ir.Module:
    """The module of `text`, with the devices of the command line, verified; in a context of its own."""
    context = ir.Context()
    module, _ = parse_module(text, FILE, context)
    with context, ir.Location.unknown():
        run_steps(READ_DEVICES, Program(module))
        InlineCalls().run(module)
        assign(Program(module), parse_device_flags(flags))
    return module


def place(module: ir.Module) -> ir.Operation:
    """The first public function, placed, with transfers."""
    with module.context, ir.Location.unknown():
        for each in (PlaceOperations(), InsertTransfers(), FoldTransfers()):
            each.run(module)
    return public_functions(module)[0]


def described(function: ir.Operation) -> str:
    """Operations as `name:affinity` and transfers as `>device`, in order; choices in order of names."""
    words: list[str] = []
    for entry in function.regions[0].blocks[0].operations:
        operation = entry.operation
        if operation.name == TRANSFER_OP:
            words.append(f">{ir.StringAttr(operation.attributes[TO]).value}")
        elif operation.name != "func.return":
            affinity = ir.StringAttr(operation.attributes[AFFINITY]).value
            words.append(f"{operation.name.partition('.')[2]}:{'|'.join(sorted(affinity.split('|')))}")
    return " ".join(words)
