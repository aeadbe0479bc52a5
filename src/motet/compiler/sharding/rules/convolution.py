"""convolution: images of the batch and channels are factors; windows are needed as a whole, and so are the pixels that
they slide over.

    linalg.conv_2d_nchw_fchw ins(%x: 8x3x32x32, %w: 16x3x3x3)   →   %x: (n, c, ·, ·)   %w: (f, c, ·, ·)
                                                                    result: (n, f, ·, ·), reduced: {c: "add"}
"""

from __future__ import annotations

from motet.compiler.ir._mlir import ir
from motet.compiler.sharding.rules.loops import captures, combiner, factors_without, read_loops
from motet.compiler.sharding.rules.rule import ShardingRule


def read_convolution(operation: ir.Operation) -> ShardingRule | None:
    loops = read_loops(operation)
    if loops is None or not loops.mixed or not loops.reductions or captures(operation):
        return None
    kind = combiner(operation) if len(operation.results) == 1 else None
    divided = loops.reductions - loops.mixed if kind == "add" else frozenset[int]()
    # A window's own extents are reduced with the pixels: they stay whole.
    left = loops.mixed | (loops.reductions - divided)
    operands = factors_without(loops, left)
    return ShardingRule(
        operands, operands[loops.inputs :], loops.extents, dict.fromkeys(divided, "add"), initial=loops.inputs
    )
