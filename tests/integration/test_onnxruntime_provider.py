"""Motet as an execution provider of onnxruntime: results beside those of onnxruntime's own kernels."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

onnxruntime = pytest.importorskip("onnxruntime")
if not hasattr(onnxruntime, "register_execution_provider_library"):
    pytest.skip("onnxruntime is older than 1.23", allow_module_level=True)

from motet.errors import DeviceError  # noqa: E402
from motet.onnxruntime import register_provider  # noqa: E402
from motet.onnxruntime.provider.parts import DividedNode, divide  # noqa: E402
from motet.onnxruntime.provider.shared_library import library_bytes  # noqa: E402

Feeds = dict[str, np.ndarray]
OWN = "MotetExecutionProvider"


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: dict[str, np.ndarray]) -> bytes:
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def tensor(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def session(model: bytes | str, options: dict[str, str] | None = None, config: dict[str, str] | None = None) -> Any:
    settings = onnxruntime.SessionOptions()
    settings.add_provider_for_devices(register_provider(), {"threads": "2", **(options or {})})
    for key, value in (config or {}).items():
        settings.add_session_config_entry(key, value)
    return onnxruntime.InferenceSession(model, settings)


def assigned(model: bytes) -> dict[str, list[str]]:
    """The operators of each provider."""
    settings = onnxruntime.SessionOptions()
    settings.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    settings.add_provider_for_devices(register_provider(), {})
    made = onnxruntime.InferenceSession(model, settings)
    found: dict[str, list[str]] = {}
    for part in made.get_provider_graph_assignment_info():
        found.setdefault(part.ep_name, []).extend(node.op_type for node in part.get_nodes())
    return found


def compare(model: bytes, feeds: Feeds, got: list[np.ndarray] | None = None, tolerance: float = 1e-5) -> None:
    plain = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    for expected, value in zip(plain.run(None, feeds), got or session(model).run(None, feeds), strict=True):
        assert value.dtype == expected.dtype and value.shape == expected.shape
        np.testing.assert_allclose(value, expected, rtol=tolerance, atol=tolerance)


def two_layers(size: int = 37) -> tuple[bytes, np.random.Generator]:
    random = np.random.default_rng(3)
    constants = {"w": random.standard_normal((size, 53)).astype("f4"), "b": random.standard_normal(53).astype("f4")}
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["t"]), helper.make_node("Tanh", ["t"], ["y"])]
    return model_of(nodes, [tensor("x", "batch", size)], [tensor("y", "batch", 53), tensor("t", "batch", 53)],
                    constants), random  # fmt: skip


def test_a_whole_model_with_dynamic_extents() -> None:
    model, random = two_layers()
    made = session(model)
    for batch in (1, 3, 0, 17):
        feeds = {"x": random.standard_normal((batch, 37)).astype("f4")}
        compare(model, feeds, made.run(None, feeds))
    assert assigned(model) == {OWN: ["Gemm", "Tanh"]}


@pytest.mark.parametrize("kind", [
    TensorProto.UINT8,
    *(pytest.param(kind, marks=pytest.mark.slow)
      for kind in (TensorProto.DOUBLE, TensorProto.INT64, TensorProto.FLOAT16)),
])  # fmt: skip
def test_element_types(kind: int) -> None:
    model = model_of([helper.make_node("Add", ["x", "x"], ["t"]), helper.make_node("Mul", ["t", "x"], ["y"])],
                     [tensor("x", 3, "n", kind=kind)], [tensor("y", 3, "n", kind=kind)], {})  # fmt: skip
    compare(model, {"x": np.arange(21).reshape(3, 7).astype(helper.tensor_dtype_to_np_dtype(kind)) % 11}, None, 1e-3)


def test_parts_around_an_operator_that_motet_lacks() -> None:
    random = np.random.default_rng(5)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Cast", ["b"], ["s"], to=TensorProto.STRING),
        helper.make_node("Cast", ["s"], ["c"], to=TensorProto.FLOAT),
        helper.make_node("Exp", ["a"], ["d"]), helper.make_node("Sigmoid", ["d"], ["e"]),
        helper.make_node("Mul", ["c", "e"], ["f"]), helper.make_node("Add", ["f", "a"], ["y"]),
    ]
    weights = random.standard_normal((8, 8)).astype("f4")
    model = model_of(nodes, [tensor("x", 8, 8)], [tensor("y", 8, 8)], {"w": weights})
    parts = assigned(model)
    assert parts["CPUExecutionProvider"] == ["Cast", "Cast"]
    assert sorted(parts[OWN]) == ["Add", "Exp", "MatMul", "Mul", "Relu", "Sigmoid"]
    compare(model, {"x": random.standard_normal((8, 8)).astype("f4")}, None, 1e-4)


@pytest.mark.slow
def test_bodies_that_see_values_and_constants_outside() -> None:
    def body(name: str, operator: str) -> onnx.GraphProto:
        return helper.make_graph([helper.make_node(operator, ["x", "k"], [name])], name, [], [tensor(name, 4)])

    node = helper.make_node("If", ["c"], ["t"], then_branch=body("p", "Add"), else_branch=body("q", "Sub"))
    model = model_of([node, helper.make_node("Abs", ["t"], ["y"])],
                     [tensor("c", kind=TensorProto.BOOL), tensor("x", 4)], [tensor("y", 4)],
                     {"k": np.arange(4, dtype="f4")})  # fmt: skip
    for condition in (True, False):
        compare(model, {"c": np.array(condition), "x": np.array([1, -2, 3, 0.5], "f4")})


@pytest.mark.slow
def test_extents_that_depend_on_values() -> None:
    model = model_of([helper.make_node("Relu", ["x"], ["t"]), helper.make_node("NonZero", ["t"], ["y"])],
                     [tensor("x", "n", 3)], [tensor("y", 2, "m", kind=TensorProto.INT64)], {})  # fmt: skip
    for rows in (1, 4):
        compare(model, {"x": np.random.default_rng(rows).standard_normal((rows, 3)).astype("f4")})


@pytest.mark.slow
def test_nan_and_infinities_pass_through() -> None:
    model = model_of([helper.make_node("Abs", ["x"], ["t"]), helper.make_node("Sqrt", ["t"], ["y"])],
                     [tensor("x", 5)], [tensor("y", 5)], {})  # fmt: skip
    compare(model, {"x": np.array([np.nan, np.inf, -np.inf, -0.0, 2], "f4")})


@pytest.mark.parametrize("embeds", ["0", "1"])
def test_a_compiled_model_runs_without_compiling(tmp_path: Path, embeds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, random = two_layers()
    context = tmp_path / "context.onnx"
    config = {"ep.context_enable": "1", "ep.context_file_path": str(context), "ep.context_embed_mode": embeds}
    session(model, config=config)
    assert [node.op_type for node in onnx.load(context).graph.node] == ["EPContext"]
    assert len(list(tmp_path.glob("*.motet"))) == (0 if embeds == "1" else 1)
    monkeypatch.setattr("motet.compile", lambda *_, **__: pytest.fail("compiles"))
    feeds = {"x": random.standard_normal((6, 37)).astype("f4")}
    compare(model, feeds, session(str(context)).run(None, feeds))


def test_a_missing_artifact_of_a_compiled_model_is_an_error(tmp_path: Path) -> None:
    context = tmp_path / "context.onnx"
    session(two_layers()[0], config={"ep.context_enable": "1", "ep.context_file_path": str(context)})
    next(tmp_path.glob("*.motet")).unlink()
    with pytest.raises(Exception, match=r"\.motet"):
        session(str(context))


def refusal(model: bytes, options: dict[str, str], capfd: pytest.CaptureFixture[str]) -> str:
    """What ONNX Runtime says when the provider refuses. Some releases print it, and go on without the provider."""
    try:
        session(model, options)
    except Exception as error:
        return str(error)
    return capfd.readouterr().out


def test_options(capfd: pytest.CaptureFixture[str]) -> None:
    model, random = two_layers()
    feeds = {"x": random.standard_normal((6, 37)).astype("f4")}
    compare(model, feeds, session(model, {"option.precision": "bf16"}).run(None, feeds), 0.1)
    colour = refusal(model, {"colour": "red"}, capfd)
    assert "provider option colour: no such option; expected one of devices, threads" in colour
    threads = refusal(model, {"threads": "many"}, capfd)
    assert "provider option threads: 'many' given; expected a number" in threads


def test_calls_from_several_threads() -> None:
    model, random = two_layers()
    made = session(model)
    inputs = [random.standard_normal((n, 37)).astype("f4") for n in range(1, 25)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda x: made.run(None, {"x": x}), inputs))
    for x, got in zip(inputs, results, strict=True):
        compare(model, {"x": x}, got)


def test_sessions_may_outlive_python(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(two_layers()[0])
    text = """
        import builtins, numpy, onnxruntime, motet.onnxruntime
        options = onnxruntime.SessionOptions()
        options.add_provider_for_devices(motet.onnxruntime.register_provider(), {})
        builtins.kept = onnxruntime.InferenceSession("model.onnx", options)
        print(builtins.kept.run(None, {"x": numpy.ones((2, 37), "f4")})[0].shape)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "(2, 53)\n", "")


def test_tables_are_kept_while_python_ends(tmp_path: Path) -> None:
    """onnxruntime reads the factory's tables after Python's last collection of garbage."""
    text = """
        import gc, os, motet.onnxruntime
        from motet.onnxruntime.provider.provider import ProviderFactory
        class Noted:
            def __init__(self, write):
                self.write = write
            def __del__(self):
                self.write(1, b"freed")
        motet.onnxruntime.register_provider()
        [factory] = [each for each in gc.get_objects() if isinstance(each, ProviderFactory)]
        factory.noted = Noted(os.write)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(text)], cwd=tmp_path, text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_no_part_waits_for_itself() -> None:
    """a → X → c, and a → c: a and c must not be one part, but b, next to X, may join a."""
    nodes = [DividedNode(["x"], ["a"], True), DividedNode(["a"], ["X"], False), DividedNode(["a"], ["b"], True),
             DividedNode(["X", "b"], ["c"], True)]  # fmt: skip
    assert divide(nodes) == [[0, 2], [3]]


def test_parts_of_random_graphs_can_be_ordered() -> None:
    random = np.random.default_rng(11)
    for _ in range(200):
        count = int(random.integers(1, 20))
        nodes = [DividedNode([str(at) for at in random.integers(0, max(index, 1), 2) if index], [str(index)],
                          bool(random.random() < 0.6)) for index in range(count)]  # fmt: skip
        parts = divide(nodes)
        supported = [index for index, node in enumerate(nodes) if node.is_supported]
        assert sorted(index for part in parts for index in part) == supported
        group = {index: number for number, part in enumerate(parts) for index in part}
        edges = {(group.get(int(name), -1 - int(name)), group.get(index, -1 - index))
                 for index, node in enumerate(nodes) for name in node.inputs}  # fmt: skip
        edges = {(a, b) for a, b in edges if a != b}
        waiting = {each for edge in edges for each in edge}
        while waiting:  # peel groups without predecessors
            free = {each for each in waiting if all(b != each or a not in waiting for a, b in edges)}
            assert free, "parts wait for each other"
            waiting -= free


def test_there_is_no_library_for_other_systems() -> None:
    with pytest.raises(DeviceError, match=r"no library for riscv64 with linux; there are those for Linux on x86_64"):
        library_bytes("riscv64", "linux")
    assert library_bytes("aarch64", "linux")[18:20] == b"\xb7\0"  # its number in ELF files
