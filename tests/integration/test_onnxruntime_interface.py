"""`motet.onnxruntime`, calls by name, awaited calls, and what sessions refuse."""

from __future__ import annotations

import asyncio
import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.unit.runtime.drivers.opencl.opening import opencl_device

import motet
import motet.onnxruntime as ort
from motet.errors import CallError, OptionError
from motet.version import VERSION

OWN = "MotetExecutionProvider"


def model() -> onnx.ModelProto:
    """p = a + b, q = a · b, for a batch of rows, and r = -i."""
    rows = ["batch", 3]
    graph = helper.make_graph(
        [helper.make_node("Add", ["a", "b"], ["p"]), helper.make_node("Mul", ["a", "b"], ["q"]),
         helper.make_node("Neg", ["i"], ["r"])], "g",
        [helper.make_tensor_value_info("a", TensorProto.FLOAT, rows),
         helper.make_tensor_value_info("b", TensorProto.FLOAT, rows),
         helper.make_tensor_value_info("i", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("p", TensorProto.FLOAT, rows),
         helper.make_tensor_value_info("q", TensorProto.FLOAT, rows),
         helper.make_tensor_value_info("r", TensorProto.INT64, [2])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


@pytest.fixture(scope="module")
def artifact() -> motet.Artifact:
    return motet.compile(model())


def feeds(rows: int = 4) -> dict[str, np.ndarray]:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((rows, 3), dtype=np.float32) for _ in range(2))
    return {"b": b, "i": np.array([5, -7]), "a": a}


def test_a_session_has_the_interface_of_onnxruntime(tmp_path: Path) -> None:
    onnx.save(model(), path := tmp_path / "model.onnx")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    given = feeds()
    p, q, r = session.run(None, given)
    assert np.array_equal(p, given["a"] + given["b"]) and np.array_equal(q, given["a"] * given["b"])
    assert np.array_equal(r, -given["i"])
    r, p = session.run(["r", "p"], given, None)
    assert np.array_equal(r, -given["i"]) and np.array_equal(p, given["a"] + given["b"])
    described = [(each.name, each.type, len(each.shape), each.shape[-1]) for each in session.get_inputs()]
    assert described == [("a", "tensor(float)", 2, 3), ("b", "tensor(float)", 2, 3), ("i", "tensor(int64)", 1, 2)]
    assert isinstance(session.get_inputs()[0].shape[0], str)
    assert [each.name for each in session.get_outputs()] == ["p", "q", "r"]
    assert session.get_providers() == ["MotetExecutionProvider"] and session.motet.threads == 1


def test_results_and_descriptions_are_those_of_onnxruntime() -> None:
    real = pytest.importorskip("onnxruntime")
    data = model().SerializeToString()
    theirs = real.InferenceSession(data, providers=["CPUExecutionProvider"])
    ours = ort.InferenceSession(data)
    for mine, other in zip(ours.run(None, feeds()), theirs.run(None, feeds()), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    assert [(x.name, x.type) for x in ours.get_inputs()] == [(x.name, x.type) for x in theirs.get_inputs()]
    assert ort.InferenceSession(data, real.SessionOptions()).get_outputs()[0].name == "p"


def test_programs_for_onnxruntime_run_unchanged() -> None:
    real = pytest.importorskip("onnxruntime")
    data, given = model().SerializeToString(), feeds()

    def program(library: Any) -> list[Any]:
        options = library.SessionOptions()
        options.execution_mode = library.ExecutionMode.ORT_PARALLEL
        session = library.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        a, q = given["a"].copy(), library.OrtValue.ortvalue_from_shape_and_type([4, 3], np.float32)
        binding = session.io_binding()
        binding.bind_ortvalue_input("a", library.OrtValue.ortvalue_from_numpy(a))
        for name in "bi":
            binding.bind_cpu_input(name, given[name])
        binding.bind_ortvalue_output("q", q)
        binding.bind_output("r")
        session.run_with_iobinding(binding)
        first = q.numpy().copy()
        session.run_with_iobinding(binding)
        lists = session.run(["p", "r"], {name: value.tolist() for name, value in given.items()})
        described = [q.shape(), q.data_type(), q.is_tensor(), q.device_name(), q.numpy().dtype]
        return [first, *(value.numpy() for value in binding.get_outputs()), *lists, described]

    ours, theirs = program(ort), program(real)
    assert ours[-1] == theirs[-1]
    for mine, other in zip(ours[:-1], theirs[:-1], strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)
        assert mine.dtype == other.dtype


def test_lists_are_refused_where_the_type_of_the_input_would_change_them(artifact: motet.Artifact) -> None:
    session = ort.InferenceSession(bytes(artifact.data))
    with pytest.raises(CallError, match="dtype f64 given, i64 expected"):
        session.run(None, {**feeds(), "i": [1.5, 2.0]})
    with pytest.raises(CallError, match="feeds: list given; expected a mapping"):
        session.run(None, [feeds()["a"]])  # pyright: ignore[reportArgumentType]
    binding = session.io_binding()
    binding.bind_ortvalue_output("q", ort.OrtValue.ortvalue_from_shape_and_type([4, 2], np.float32))
    for name, value in feeds().items():
        binding.bind_cpu_input(name, value)
    with pytest.raises(CallError, match=r'result 1 \("q"\): shape 4x2 given, 4x3 expected'):
        session.run_with_iobinding(binding)


def test_bytes_of_an_artifact_and_a_binding(artifact: motet.Artifact) -> None:
    session = ort.InferenceSession(bytes(artifact.data))
    binding = session.io_binding()
    given = feeds()
    for name, value in given.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("q")
    binding.bind_output("r", "cpu")
    session.run_with_iobinding(binding)
    given["a"] *= 2  # bound arrays are read at each call
    session.run_with_iobinding(binding)
    q, r = binding.copy_outputs_to_cpu()
    assert np.array_equal(q, given["a"] * given["b"]) and np.array_equal(r, -given["i"])
    with pytest.raises(CallError, match="'z'; there are: p, q, r"):
        binding.bind_output("z")
    with pytest.raises(OptionError, match="device 'cuda:0': the session has 'cpu'; expected one of them"):
        binding.bind_output("q", "cuda")


def test_memory_is_bound_by_address_as_in_onnxruntime() -> None:
    real = pytest.importorskip("onnxruntime")
    data = model().SerializeToString()

    def program(library: Any) -> list[Any]:
        session = library.InferenceSession(data, providers=["CPUExecutionProvider"])
        given, q = feeds(), np.zeros((4, 3), np.float32)
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_input(name, "cpu", 0, value.dtype, value.shape, value.ctypes.data)
        binding.bind_output("q", "cpu", 0, np.float32, q.shape, q.ctypes.data)
        binding.bind_output("p", "cpu")
        binding.synchronize_inputs()
        session.run_with_iobinding(binding)
        given["a"] += 1
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return [q, *binding.copy_outputs_to_cpu()]

    for mine, other in zip(program(ort), program(real), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-6)


def test_values_stay_on_a_device_of_the_session() -> None:
    opencl_device()
    given = feeds()
    session = ort.InferenceSession(model().SerializeToString(), providers=[(OWN, {"devices": "opencl"})])
    binding, q = session.io_binding(), session.motet.empty((4, 3), "f32")
    for name, value in given.items():
        binding.bind_cpu_input(name, session.motet.put(value))
    binding.bind_output("r", "opencl")
    binding.bind_ortvalue_output("q", ort.OrtValue(q))
    session.run_with_iobinding(binding)
    values = binding.get_outputs()
    assert [(value.device_name(), value.shape()) for value in values] == [("opencl", [2]), ("opencl", [4, 3])]
    assert values[1].tensor is q
    np.testing.assert_array_equal(values[0].numpy(), -given["i"])
    np.testing.assert_allclose(q.numpy(), given["a"] * given["b"], rtol=1e-6)


def test_devices_are_chosen_by_options_of_the_provider(tmp_path: Path) -> None:
    provider = (OWN, {"devices": "null", "threads": 1})
    session = ort.InferenceSession(model().SerializeToString(), providers=[provider, "CPUExecutionProvider"])
    assert [choice.info.family for choice in session.motet.devices] == ["null"] and session.motet.threads == 1
    session.motet.artifact.save(tmp_path / "m.motet")
    binding = session.io_binding()
    with pytest.raises(OptionError, match="'q' has extents that only a call knows; expected memory for it"):
        binding.bind_output("q", "null")
    with pytest.raises(OptionError, match="options of the compiler given for an artifact"):
        ort.InferenceSession(tmp_path / "m.motet", providers=[provider])
    with pytest.raises(OptionError, match="provider option cores: no such option; expected one of devices, threads"):
        ort.InferenceSession(b"", providers=[(OWN, {"cores": 1})])
    with pytest.raises(OptionError, match="1 given for 2 providers"):
        ort.InferenceSession(b"", providers=["CPUExecutionProvider"] * 2, provider_options=[{}])


@pytest.mark.parametrize(
    ("names", "change", "said"),
    [
        (["z"], {}, "no result 'z'; there are: p, q, r"), (None, {"c": 1}, "no input 'c'; there are: a, b, i"),
        (None, {"a": None}, "inputs not given: a"), (None, {"a": np.zeros((4, 3))}, "f64 given, f32 expected"),
        (None, {"i": np.zeros(3, np.int64)}, "shape"),
    ],
    ids=["output", "extra input", "missing input", "dtype", "shape"],
)
def test_wrong_names_and_arrays_are_named(
    artifact: motet.Artifact, names: list[str] | None, change: dict[str, object], said: str
) -> None:
    given = {name: value for name, value in {**feeds(), **change}.items() if value is not None}
    with motet.load(artifact) as session, pytest.raises(CallError, match=said):
        session.run(names, given)
    with pytest.raises(CallError, match=said):
        ort.InferenceSession(bytes(artifact.data)).run(names, given)


@pytest.mark.parametrize("name", ["optimized_model_filepath", "no_such_option"])
def test_an_option_that_is_not_followed_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        setattr(ort.SessionOptions(), name, "yes")


def test_providers_without_the_host_are_refused(artifact: motet.Artifact) -> None:
    with pytest.raises(OptionError, match="CUDAExecutionProvider given"):
        ort.InferenceSession(bytes(artifact.data), providers=[("CUDAExecutionProvider", {"device_id": 0})])


def test_calls_are_awaited_together(artifact: motet.Artifact) -> None:
    given = [feeds(rows) for rows in (1, 2, 3)]

    async def main(session: motet.Session) -> list[tuple[np.ndarray, ...]]:
        return await asyncio.gather(*(session.acall(each["a"], each["b"], each["i"]) for each in given))

    with motet.load(artifact) as session:
        for each, (p, _, _) in zip(given, asyncio.run(main(session)), strict=True):
            assert np.array_equal(p, each["a"] + each["b"])
        with pytest.raises(CallError):
            asyncio.run(session.acall(given[0]["a"]))


def test_sessions_are_not_pickled_and_say_what_to_do(artifact: motet.Artifact) -> None:
    with motet.load(artifact) as session:
        for value in (session, session.main if "main" in session else next(iter(session.functions.values()))):
            for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=r"call motet\.load there"):
                    attempt(value)
        again = motet.load(bytes(session.artifact.data))
        assert np.array_equal(again.run(["r"], feeds())[0], [-5, 7])


def test_the_version_is_that_of_the_package() -> None:
    assert motet.__version__ == VERSION
