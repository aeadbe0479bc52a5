"""Warns once about attributes that a program sets and Motet ignores; their author may rely on them.

    scf.for … {loop.schedule = "dynamic"}   →   attributes that are not followed: loop.schedule (model.mlir:4:3)

These are attributes of dialects that neither Motet nor upstream MLIR has. Attributes that exporters write for their own
use (`jax.`, `tf.`, …) are left out.
"""

from __future__ import annotations

import logging

from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import all_operations

_log = logging.getLogger("motet")

_FOLLOWED = frozenset({"motet", "stream", "hal", "iree", "util"})
_OF_EXPORTERS = frozenset({"chlo", "jax", "krnl", "mhlo", "onnx", "sdy", "stablehlo", "tf", "tf_saved_model", "torch"})
# Attributes with the prefix of an upstream dialect that upstream does not define and users write.
_OF_UPSTREAM = frozenset({"memref.on_device"})
# Schedules, which `kernels/reader/written_schedules.py` reads.
_OF_LINALG = frozenset({"loop.schedule", "loop.dims"})
_PLACES = 8


def tell_of_left_attributes(module: ir.Module) -> None:
    """Logs one warning for all ignored attributes of `module`, with the first place of each."""
    found: dict[str, list[ir.Operation]] = {}
    for operation in all_operations(module):
        for name in _names(operation):
            if _is_left(name, module.context) and not (name in _OF_LINALG and operation.name.startswith("linalg.")):
                found.setdefault(name, []).append(operation)
    if found:
        shown = [
            f"{name} ({locate(places[0].location)}" + (f", {len(places)} times)" if len(places) > 1 else ")")
            for name, places in list(found.items())[:_PLACES]
        ]
        more = f" and {len(found) - _PLACES} more" if len(found) > _PLACES else ""
        _log.warning("attributes that are not followed: %s%s", ", ".join(shown), more)


def _names(operation: ir.Operation) -> list[str]:
    """The attributes of an operation; for functions also those of arguments and results, except memref.on_device."""
    names = list(operation.attributes)
    for group in ("arg_attrs", "res_attrs"):
        if group in operation.attributes:
            names += [
                entry.name
                for attribute in ir.ArrayAttr(operation.attributes[group])
                for entry in ir.DictAttr(attribute)
                if entry.name not in _OF_UPSTREAM
            ]
    return names


def _is_left(name: str, context: ir.Context) -> bool:
    dialect, dot, _ = name.partition(".")
    if not dot or dialect in _FOLLOWED or dialect in _OF_EXPORTERS:
        return False
    return name in _OF_UPSTREAM or not _has_dialect(dialect, context)


def _has_dialect(name: str, context: ir.Context) -> bool:
    try:
        context.dialects[name]
    except IndexError:
        return False
    return True
