"""lower-layers: in the `torch` dialect, lowers recurrent layers, as `motet.pytorch.recurrences` writes them, to loops.

    torch.operator "torch.motet.gru"(%x, %w, %r, %b, %h)
 →  torch.operator "onnx.GRU"(%x, %w, %r, %b, none, %h) {hidden_size, linear_before_reset = 1}
 →  torch.prim.Loop over the steps, by torch-mlir's lowering of ONNX
"""

from __future__ import annotations

from motet.compiler.frontends.onnx.tensors import kind_of
from motet.compiler.frontends.torch.recurrences import settle_recurrences
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.find import find_operations

_LOWER = "func.func(convert-torch-onnx-to-torch)"
_VERSION, _OPSET = "torch.onnx_meta.opset_version", 21
_LAYERS = {
    "torch.motet.lstm": ("onnx.LSTM", '{torch.onnx.direction = "forward"}'),
    "torch.motet.gru": ("onnx.GRU", "{torch.onnx.linear_before_reset = 1 : si64}"),
    "torch.motet.rnn_tanh": ("onnx.RNN", '{torch.onnx.activations = ["Tanh"]}'),
    "torch.motet.rnn_relu": ("onnx.RNN", '{torch.onnx.activations = ["Relu"]}'),
}


def lower_layers(module: ir.Module) -> None:
    """Rewrites the module in place. Raises MLIRError for layers without a lowering."""
    with module.context:
        layers = [
            operator for operator in find_operations(module, "torch.operator")
            if ir.StringAttr(operator.attributes["name"]).value in _LAYERS
        ]
        if not layers:
            return
        for layer in layers:
            _as_onnx(layer)
        attributes = module.body.operations[0].operation.attributes
        attributes[_VERSION] = _integer(_OPSET)
        run_pipeline(module, _LOWER)
        del attributes[_VERSION]
        settle_recurrences(module)


def _as_onnx(layer: ir.Operation) -> None:
    """Replaces a layer by ONNX's operator, which has the lengths of the sequences as a further operand: none here."""
    name, options = _LAYERS[ir.StringAttr(layer.attributes["name"]).value]
    x, w, r, b, *states = layer.operands
    kind = kind_of(r)
    assert kind is not None  # its rank is known: torch.export knows all
    at = ir.InsertionPoint(layer)
    none = ir.Operation.create(
        "torch.constant.none", results=[ir.Type.parse("!torch.none")], loc=layer.location, ip=at
    ).result
    made = ir.Operation.create(
        "torch.operator", results=[result.type for result in layer.results],
        operands=[x, w, r, b, none, *states], loc=layer.location, ip=at,
        attributes={
            "name": ir.StringAttr.get(name), "torch.onnx.hidden_size": _integer(kind.extents[-1]),
            **{item.name: item.attr for item in ir.DictAttr(ir.Attribute.parse(options))},
        },
    )
    for old, new in zip(layer.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    layer.erase()


def _integer(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signed(64), value)
