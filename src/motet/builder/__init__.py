"""Programs built in Python: tensors, operators, and a graph with inputs and results.

    from motet import builder as mb

    with mb.Graph("layer") as g:
        x = g.input("x", ("batch", 1024))
        y = mb.relu(x @ g.constant(weights, name="w") + g.constant(bias))
        g.result(y, name="y")
    artifact = motet.compile(g)

Needs only numpy; MLIR is used when the graph is compiled. Shapes and dtypes are checked at the call: an error is a
CompileError that names the operator, the shapes and the caller's line. Every operator takes `device=`, the name of the
device that runs it, stored as the attribute `motet.affinity`.
"""

from motet.builder.contraction import avg_pool2d, conv2d, matmul, max_pool2d
from motet.builder.elementwise import (
    abs,
    add,
    cast,
    ceil,
    clip,
    cos,
    div,
    equal,
    erf,
    exp,
    floor,
    gelu,
    greater,
    greater_equal,
    leaky_relu,
    less,
    less_equal,
    log,
    logical_and,
    logical_not,
    logical_or,
    maximum,
    minimum,
    mul,
    neg,
    not_equal,
    pow,
    relu,
    round,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sqrt,
    sub,
    tanh,
    where,
)
from motet.builder.graph import Graph
from motet.builder.movement import broadcast_to, concat, pad, reshape, slice, transpose
from motet.builder.reduction import (
    layernorm,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_prod,
    reduce_sum,
    softmax,
)
from motet.builder.tensor import Tensor

__all__ = [
    "Graph", "Tensor", "abs", "add", "avg_pool2d", "broadcast_to", "cast", "ceil", "clip", "concat",
    "conv2d", "cos", "div", "equal", "erf", "exp", "floor", "gelu", "greater", "greater_equal",
    "layernorm", "leaky_relu", "less", "less_equal", "log", "logical_and", "logical_not",
    "logical_or", "matmul", "max_pool2d", "maximum", "minimum", "mul", "neg", "not_equal", "pad",
    "pow", "reduce_max", "reduce_mean", "reduce_min", "reduce_prod", "reduce_sum", "relu",
    "reshape", "round", "rsqrt", "sigmoid", "silu", "sin", "slice", "softmax", "sqrt", "sub",
    "tanh", "transpose", "where",
]  # fmt: skip
