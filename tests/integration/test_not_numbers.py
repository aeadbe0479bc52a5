"""NaN and infinities where one tensor meets itself, and in running sums, from every front end."""

from __future__ import annotations

import numpy as np
import pytest

import motet

TARGET = {"": "host{cpu=x86-64-v3}"}
COMPARISONS = {
    "Equal": np.equal, "Less": np.less, "Greater": np.greater, "LessOrEqual": np.less_equal,
    "GreaterOrEqual": np.greater_equal,
}  # fmt: skip
CALCULATIONS = {
    "Sub": np.subtract, "Div": np.divide, "Mul": np.multiply, "Max": np.maximum, "Min": np.minimum,
}  # fmt: skip
STABLEHLO = {"EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GE": np.greater_equal}
TORCH = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "ge": np.greater_equal}
DTYPES = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def values(dtype: type) -> np.ndarray:
    return np.array([np.nan, np.inf, -np.inf, 0, -0.0, 1, -2.5], dtype)


def test_onnx_takes_a_tensor_and_itself_for_two():
    onnx = pytest.importorskip("onnx")
    inputs, results, nodes, expected, given = [], [], [], {}, []
    for kind, dtype in DTYPES.items():
        code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for extent in (7, "n"):
            name = f"{kind}_{extent}"
            inputs.append(onnx.helper.make_tensor_value_info(name, code, [extent]))
            given.append(values(dtype))
            # The second operand becomes the first one while the model is simplified.
            nodes += [
                onnx.helper.make_node("Abs", [name], [f"{name}_{side}"]) for side in ("left", "right")
            ]
            for op, function in (COMPARISONS | CALCULATIONS).items():
                for first, second, array in (
                    (name, name, given[-1]), (f"{name}_left", f"{name}_right", np.abs(given[-1]))
                ):
                    result = f"{op}_{first}"
                    nodes.append(onnx.helper.make_node(op, [first, second], [result]))
                    with np.errstate(invalid="ignore"):
                        expected[result] = function(array, array)
                    made = onnx.TensorProto.BOOL if op in COMPARISONS else code
                    results.append(onnx.helper.make_tensor_value_info(result, made, [extent]))
    graph = onnx.helper.make_graph(nodes, "main", inputs, results)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    found = motet.load(motet.compile(model, devices=TARGET))(*given)
    for (name, wanted), array in zip(expected.items(), found, strict=True):
        np.testing.assert_array_equal(array, wanted, name)


def test_stablehlo_takes_a_tensor_and_itself_for_two():
    of = "(tensor<7xf32>, tensor<7xf32>) -> tensor<7xi1>"
    lines = [f"%{op} = stablehlo.compare {op}, %x, %x : {of}" for op in STABLEHLO]
    kinds = ", ".join(["tensor<7xi1>"] * len(STABLEHLO))
    body, returned = "\n".join(lines), ", ".join(f"%{op}" for op in STABLEHLO)
    text = f"func.func @main(%x: tensor<7xf32>) -> ({kinds}) {{\n{body}\nreturn {returned} : {kinds}\n}}\n"
    x = values(np.float32)
    found = motet.load(motet.compile(text, format="stablehlo", devices=TARGET))(x)
    for (op, function), array in zip(STABLEHLO.items(), found, strict=True):
        np.testing.assert_array_equal(array, function(x, x), op)


def test_torch_takes_a_tensor_and_itself_for_two():
    torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")

    class Compared(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(getattr(torch, op)(x, x) for op in TORCH)

    x = values(np.float32)
    found = motet.load(motet.compile(Compared(), inputs=[torch.from_numpy(x)], devices=TARGET))(x)
    for (op, function), array in zip(TORCH.items(), found, strict=True):
        np.testing.assert_array_equal(array, function(x, x), op)


@pytest.mark.slow
def test_exclusive_sums_take_nothing_away_again():
    onnx = pytest.importorskip("onnx")
    inputs, results, nodes, expected, given = [], [], [], {}, []
    for kind, dtype in DTYPES.items():
        code = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        for extent, count in ((5, 5), ("n", 5), (0, 0), (1, 1), (f"{kind}_none", 0)):
            name, x = f"{kind}_{extent}", np.full((count, 3), 2**-10, dtype)
            if count == 5:
                x[1:3] = [60000, np.inf, 1], [1, np.nan, 2]
            inputs.append(onnx.helper.make_tensor_value_info(name, code, [extent, 3]))
            given.append(x)
            for reverse in (0, 1):
                result = f"{name}_{reverse}"
                nodes.append(onnx.helper.make_node("CumSum", [name, "axis"], [result], exclusive=1, reverse=reverse))
                results.append(onnx.helper.make_tensor_value_info(result, code, [extent, 3]))
                moved = np.zeros_like(x)
                moved[1:] = (x[::-1] if reverse else x)[:-1]
                sums = np.cumsum(moved, 0, dtype=dtype)
                expected[result] = sums[::-1] if reverse else sums
    axis = onnx.numpy_helper.from_array(np.array(0), "axis")
    graph = onnx.helper.make_graph(nodes, "main", inputs, results, [axis])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=8)
    found = motet.load(motet.compile(model, devices=TARGET))(*given)
    for (name, wanted), array in zip(expected.items(), found, strict=True):
        np.testing.assert_allclose(array, wanted, 4 * np.finfo(array.dtype).eps, 0, err_msg=name)
