"""The rules in the order in which they are asked. A new rule is one module and one line here."""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.attention import read_attention
from motet.compiler.sharding.rules.contraction import read_contraction
from motet.compiler.sharding.rules.convolution import read_convolution
from motet.compiler.sharding.rules.elementwise import read_elementwise
from motet.compiler.sharding.rules.gather import read_gather
from motet.compiler.sharding.rules.reduction import read_reduction
from motet.compiler.sharding.rules.reshape import read_reshape
from motet.compiler.sharding.rules.rule import ShardingRule
from motet.compiler.sharding.rules.slicing import read_slicing
from motet.compiler.sharding.rules.transpose import read_transpose

_RULES = (
    read_attention, read_transpose, read_reshape, read_slicing, read_gather, read_elementwise, read_contraction,
    read_convolution, read_reduction,
)


def rule_of(operation: ir.Operation) -> ShardingRule | None:
    """How an operation can be divided; None if it is to run as a whole."""
    for read in _RULES:
        if (rule := read(operation)) is not None:
            return rule
    return None
