"""annotate-affinities: adds the results of the analysis to every operation of public functions, without placing it.

    %2 = arith.addf %0, %1       →      %2 = arith.addf %0, %1 {motet.affinities.operands = ["cpu", "gpu"],
                                             motet.affinities.execution = "cpu", motet.affinities.results = ["cpu"],
                                             motet.affinities.uses = ["gpu|cpu"]}

There is one text for each operand and result, empty for values that are not tensors or are recomputed where they are
read. `uses` has the affinities of the readers of each result. Those of a function's arguments and results are among its
attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.ir.devices import Affinity, join_or
from motet.compiler.ir.functions import public_functions
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.affinity_analysis import AffinityAnalysis, is_tensor
from motet.compiler.placement.default_device import default_affinity

EXECUTION = "motet.affinities.execution"
OPERANDS = "motet.affinities.operands"
RESULTS = "motet.affinities.results"
USES = "motet.affinities.uses"


@dataclass(frozen=True)
class AnnotateAffinities(ModulePass):
    name = "annotate-affinities"

    def run(self, module: ir.Module) -> None:
        for function in public_functions(module):
            default = default_affinity(module, function)
            if default is not None and len(function.regions[0].blocks) == 1:
                _annotate(function, AffinityAnalysis(function, default))


def _annotate(function: ir.Operation, analysis: AffinityAnalysis) -> None:
    block = function.regions[0].blocks[0]
    returned = list(block.operations[len(block.operations) - 1].operation.operands)
    found = [(node.operation, node.affinity, *_of_operation(node.operation, analysis)) for node in analysis.nodes]
    arguments = [
        {RESULTS: _text(analysis.of_value(value)), USES: _uses(value, analysis)} for value in block.arguments
    ]
    results = [
        {OPERANDS: _text(analysis.of_value(value)), EXECUTION: _text(pin or analysis.of_value(value))}
        for value, pin in zip(returned, analysis.result_pins, strict=True)
    ]
    for operation, affinity, operands, made, uses in found:
        for name, texts in ((OPERANDS, operands), (RESULTS, made), (USES, uses)):
            if texts:
                operation.attributes[name] = ir.ArrayAttr.get([ir.StringAttr.get(text) for text in texts])
        if affinity is not None:
            operation.attributes[EXECUTION] = ir.StringAttr.get(str(affinity))
    for group, said in (("arg_attrs", arguments), ("res_attrs", results)):
        _add(function, group, said)


def _of_operation(operation: ir.Operation, analysis: AffinityAnalysis) -> tuple[list[str], list[str], list[str]]:
    """The texts for operands, for results, and for the readers of results."""
    return (
        _texts(operation.operands, analysis), _texts(operation.results, analysis),
        [_uses(value, analysis) for value in operation.results],
    )


def _texts(values: Iterable[ir.Value], analysis: AffinityAnalysis) -> list[str]:
    return [_text(analysis.of_value(value) if is_tensor(value) else None) for value in values]


def _uses(value: ir.Value, analysis: AffinityAnalysis) -> str:
    joined: Affinity | None = None
    for affinity in analysis.uses(value) if is_tensor(value) else []:
        joined = join_or(joined, affinity)
    return _text(joined)


def _text(affinity: Affinity | None) -> str:
    return "" if affinity is None else str(affinity)


def _add(function: ir.Operation, group: str, said: list[dict[str, str]]) -> None:
    """Adds texts to the attributes of a function's arguments or results."""
    given = (
        [ir.DictAttr(attribute) for attribute in ir.ArrayAttr(function.attributes[group])]
        if group in function.attributes
        else [ir.DictAttr.get({})] * len(said)
    )
    function.attributes[group] = ir.ArrayAttr.get([
        ir.DictAttr.get({
            **{entry.name: entry.attr for entry in one},
            **{name: ir.StringAttr.get(text) for name, text in texts.items() if text},
        })
        for one, texts in zip(given, said, strict=True)
    ])
