"""Products by a library in the place of kernels: numbers, graphs, other buffers, and what happens without it."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, array
from tests.unit.runtime.drivers.cuda.fake_cublas import NOT_SUPPORTED, FakeCublas
from tests.unit.runtime.drivers.cuda.library_cases import (
    CASES,
    NAME,
    Case,
    Placed,
    artifact_of,
    described,
    load_case,
    work_of,
)
from tests.unit.runtime.drivers.cuda.opening import open_fake

import motet
from motet.artifact.candidates import INDEX, FormCandidate, Tunable, encode_index
from motet.artifact.dtypes import DTYPES
from motet.artifact.library import Algorithm, with_library
from motet.artifact.tunings import read_tunings
from motet.artifact.writer import write_artifact
from motet.errors import DeviceError
from motet.runtime.device import Reference, Work, find_device, open_device, probe
from motet.runtime.drivers.cuda import driver
from motet.runtime.drivers.cuda.cublaslt import CublasError, installed
from motet.runtime.drivers.cuda.device import CudaDevice
from motet.runtime.drivers.cuda.program import CudaExecutable
from motet.tools.tune import tune_artifact

_GPU = probe("cuda")[0]
_REASON = _GPU.reason if not _GPU.available else "" if next(installed(), None) else "no cuBLASLt"
_ON_GPU = [pytest.mark.cuda, pytest.mark.skipif(bool(_REASON), reason=_REASON)]
PLAIN = CASES["bias"]


@pytest.fixture(params=["fake", pytest.param("cuda:0", marks=_ON_GPU)])
def device(request: pytest.FixtureRequest) -> Iterator[CudaDevice]:
    if request.param == "fake":
        fake = FakeApi()
        fake.libraries.append(FakeCublas(fake))
        opened = open_fake(fake)
    else:
        opened = open_device(find_device("cuda:0"))
    assert isinstance(opened, CudaDevice)
    yield opened
    opened.close()


def fake_device(*, options: str = "", **changes: Any) -> tuple[CudaDevice, FakeApi, FakeCublas]:
    fake = FakeApi()
    library = FakeCublas(fake, **changes)
    fake.libraries.append(library)
    return open_fake(fake, options), fake, library


def notes_of(device: CudaDevice, case: Case = PLAIN, algorithm: Algorithm | None = None) -> tuple[str, ...]:
    executable = load_case(device, case, algorithm)
    assert isinstance(executable, CudaExecutable)
    return executable.notes


# -- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_products_are_right(device: CudaDevice, name: str):
    case = CASES[name]
    executable = load_case(device, case)
    assert isinstance(executable, CudaExecutable) and not executable.notes
    first, second = Placed(device, case, 1), Placed(device, case, 2)
    work = device.record(executable, [work_of(first)], len(first.buffers), 0)
    for placed in (first, second, first, first, second):  # as it is, then as graphs
        device.fill(placed.buffers[-1], 0x7F).wait()
        device.submit(work, placed.buffers).wait()
        placed.check()


@pytest.mark.parametrize("name", ["bias, relu", "split along the sum", "a batch, turned, with bias", "i8", "f8"])
def test_every_algorithm_that_is_offered_is_right(device: CudaDevice, name: str):
    case = CASES[name]
    offered = device.algorithms(case.call(), 8)
    assert offered
    placed = Placed(device, case, 3)
    for algorithm in offered:
        executable = load_case(device, case, algorithm)
        assert isinstance(executable, CudaExecutable) and not executable.notes
        device.fill(placed.buffers[-1], 0x7F).wait()
        device.submit(device.record(executable, [work_of(placed)], len(placed.buffers), 0), placed.buffers).wait()
        placed.check()


@pytest.mark.slow
def test_a_graph_of_products_runs_on_other_buffers_each_time(device: CudaDevice):
    """More sets of buffers than a graph has instances, so that some are set anew, on several queues."""
    case = CASES["split along the sum"]
    executable = load_case(device, case)
    sets = [[Placed(device, case, 3 * turn + part) for part in range(3)] for turn in range(9)]
    count = len(sets[0][0].buffers)
    items = [work_of(placed, part * count) for part, placed in enumerate(sets[0])]
    work = device.record(executable, items, 3 * count, 0)
    for turn in (*range(9), 5, 3, 8, 0):
        placed = sets[turn]
        points = [device.fill(each.buffers[-1], 0x7F) for each in placed]
        buffers = [buffer for each in placed for buffer in each.buffers]
        point = device.submit(work, buffers, points, turn % device.queues)
        point.wait()
        for each in placed:
            each.check()


def test_products_wait_for_one_another(device: CudaDevice):
    case = Case(64, 64, 64, "f32", "f32", "f32", addend=True)
    executable = load_case(device, case)
    placed = Placed(device, case, 5)
    a, b, c, d = range(4)
    first = work_of(placed)
    again = [
        type(first)("launch", tuple(first.references[i] for i in (a, b, d, c)), NAME, 1, (), (0,)),
        type(first)("launch", tuple(first.references[i] for i in (a, b, c, d)), NAME, 1, (), (1,)),
    ]
    work = device.record(executable, [first, *again], 4, 0)
    device.submit(work, placed.buffers).wait()
    product = placed.inputs[0][0].astype("f8") @ placed.inputs[1][0].astype("f8")
    result = np.empty((64, 64), np.float32)
    device.read(placed.buffers[3], result).wait()
    np.testing.assert_allclose(result, placed.inputs[2][0] + 3 * product, 1e-4, 1e-3)


def test_profiling_shows_products(device: CudaDevice):
    placed = Placed(device, PLAIN, 6)
    work = device.record(load_case(device, PLAIN), [work_of(placed)] * 2, len(placed.buffers), 0)
    device.profile(True)
    device.submit(work, placed.buffers).wait()
    events = [event for event in device.profile(False) if event.name == NAME]
    assert [event.kind for event in events] == ["launch", "launch"]
    placed.check()


# -- sessions ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bias, relu", "split along the sum", "a batch", "f32"])
@pytest.mark.parametrize("where", ["fake", pytest.param("cuda:0", marks=_ON_GPU)])
def test_sessions_run_products(where: str, name: str, monkeypatch: pytest.MonkeyPatch):
    if where == "fake":
        fake = FakeApi()
        fake.libraries.append(FakeCublas(fake))
        monkeypatch.setattr(driver, "load_api", lambda: fake)
    case = CASES[name]
    with motet.load(artifact_of(case), devices="cuda:0") as session:
        assert session.notes == ()
        for seed in range(4):
            inputs = case.inputs(seed)
            case.check(session(*inputs), inputs)


def test_sessions_without_the_library_say_so_once(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "load_api", FakeApi)
    with motet.load(artifact_of(PLAIN), devices="cuda:0") as session:
        (note,) = session.notes
    assert note.startswith(f"cuda:0: kernel {NAME} runs as generated, without cuBLASLt: ")


@pytest.mark.cuda
@pytest.mark.skipif(bool(_REASON), reason=_REASON)
@pytest.mark.parametrize("name", ["bias, gelu", "split along the sum"])
def test_products_on_streams_of_pytorchs_and_in_its_graphs(name: str):
    torch = pytest.importorskip("torch", reason="needs PyTorch: make frameworks")
    case = CASES[name]
    seeds = range(5)
    with motet.load(artifact_of(case), devices="cuda:0") as session:
        held = [case.inputs(seed) for seed in seeds]
        given = [[torch.from_numpy(x.view(np.uint16).copy()).cuda().view(torch.bfloat16) for x in xs] for xs in held]
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        results = [torch.empty(case.shapes()[-1][1], dtype=torch.bfloat16, device="cuda") for _ in seeds]
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):  # before any other call: what the library loads is loaded while capturing
            for xs, result in zip(given, results, strict=True):
                session(*xs, out=result)
        graph.replay()
        torch.cuda.synchronize()
        found = [[result.clone() for result in results]]
        for stream in (side, torch.cuda.current_stream(), side, side):
            for result in results:
                result.fill_(7)
            torch.cuda.synchronize()
            for xs, result in zip(given, results, strict=True):
                session(*xs, out=result, stream=stream)
            torch.cuda.synchronize()
            found.append([result.clone() for result in results])
        for turn in found:
            for inputs, result in zip(held, turn, strict=True):
                case.check(result.cpu().view(torch.uint16).numpy().view(inputs[0].dtype), inputs)


# -- without the library -------------------------------------------------------------------------------


def runs_the_kernel(device: CudaDevice) -> bool:
    """Whether a launch runs the kernel: it counts its result up."""
    case = Case(1, 1, 1, "i8", "i32", "i32", turned=(False, True))
    files = case.objects()
    facts = json.loads(files[f"a/{NAME}.json"])
    call = facts["library"]
    call["result"]["buffer"], facts["buffers"] = 0, 1
    call["left"]["buffer"] = call["right"]["buffer"] = 0
    files[f"a/{NAME}.json"] = json.dumps(facts).encode()
    executable = device.load(list(files.values()), list(files))
    buffer = device.allocate(4)
    device.write(buffer, np.array([41], np.int32)).wait()
    placed = [buffer]
    device.submit(device.record(executable, [Work("launch", (Reference(0, 0, 4),), NAME, 1)], 1, 0), placed).wait()
    result = np.zeros(1, np.int32)
    device.read(buffer, result).wait()
    return result[0] == 42


def test_without_the_library_the_kernel_runs_and_a_note_says_so():
    device = open_fake()
    (note,) = notes_of(device)
    assert note.startswith(f"kernel {NAME} runs as generated, without cuBLASLt: libcublasLt.so.13 or")
    assert "pip install 'motet[cublas]'" in note
    assert runs_the_kernel(device)
    assert device.algorithms(PLAIN.call(), 4) == []
    device.close()


def test_a_library_that_does_not_start_is_passed_over():
    device, fake, broken = fake_device()
    broken.refused["Create"] = 1
    assert "cuBLASLt 13.1.0: cublasLtCreate: not initialised" in notes_of(device)[0]
    device.close()
    device, fake, broken = fake_device()
    broken.refused["Create"] = 1
    fake.libraries.append(FakeCublas(fake, 120900))
    assert notes_of(device) == ()
    device.close()


def test_what_the_library_refuses_runs_as_generated():
    device, _fake, library = fake_device(algorithms=0)
    assert notes_of(device) == (
        f"kernel {NAME} runs as generated, without cuBLASLt: it has no algorithm for the product",
    )
    library.refused["MatmulAlgoGetHeuristic"] = NOT_SUPPORTED
    assert "cublasLtMatmulAlgoGetHeuristic: not supported" in notes_of(device)[0]
    case = Case(8, 8, 8, "f8E5M2", "f32")
    del library.refused["MatmulAlgoGetHeuristic"]
    library.algorithms = 4
    assert notes_of(device, case) == ()
    assert "it has no i16" in notes_of(device, Case(8, 8, 8, "i16", "i32", "i32"))[0]
    device.close()
    assert not library.things


def test_the_algorithm_that_was_measured_runs_with_its_version_of_the_library():
    device, _fake, library = fake_device(algorithms=4)
    measured = device.algorithms(PLAIN.call(), 8)
    assert len(measured) == 4 and measured[3].workspace == 1000 and {each.library for each in measured} == {130100}
    placed = Placed(device, PLAIN, 1)
    for algorithm, expected in ((measured[2], 2), (measured[3], 3), (None, 0)):
        work = device.record(load_case(device, PLAIN, algorithm), [work_of(placed)], len(placed.buffers), 0)
        device.submit(work, placed.buffers).wait()
        assert library.used[-1] == expected
        placed.check()
    other = Algorithm(130000, measured[2].code, 0)
    device.submit(
        device.record(load_case(device, PLAIN, other), [work_of(placed)], len(placed.buffers), 0), placed.buffers
    ).wait()
    assert library.used[-1] == 0  # what this version thinks best
    too_new = Algorithm(140100, measured[2].code, 0)
    assert "it is 13.1.0, too old; 14.1.0 was measured" in notes_of(device, PLAIN, too_new)[0]
    gone = Algorithm(130100, (9).to_bytes(8, "little").hex() + measured[0].code[16:], 0)
    assert "cublasLtMatmulAlgoCheck: not supported" in notes_of(device, PLAIN, gone)[0]
    device.close()


def test_a_note_is_one_for_all_kernels_with_the_same_reason():
    device = open_fake()
    files = PLAIN.objects()
    other = {f"a/other{name[name.rindex('.'):]}": content for name, content in files.items()}
    other["a/other.json"] = files[f"a/{NAME}.json"].replace(f'"{NAME}"'.encode(), b'"other"')
    executable = device.load([*files.values(), *other.values()], [*files, *other])
    assert isinstance(executable, CudaExecutable)
    (note,) = executable.notes
    assert "and 1 more run as generated" in note
    device.close()


def test_a_record_of_another_version_is_passed_over():
    device, _fake, _library = fake_device()
    for changes in ({"version": 2, "more": 1}, {"name": "another"}):
        call = json.loads(PLAIN.objects()[f"a/{NAME}.json"])["library"] | changes
        files = described(call, 4)
        executable = device.load(list(files.values()), list(files))
        assert isinstance(executable, CudaExecutable)
        assert "this runtime knows cublaslt, version 1" in executable.notes[0]
    device.close()


# -- what goes wrong -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("changes", "words"), [
    ({"rows": 0}, "rows: 0; expected 1"), ({"batch": -1}, "batch: -1"), ({"rows": "many"}, "Expected `int`"),
    ({"left": {"buffer": 9, "dtype": "bf16", "row": 64, "column": 1}}, "left: buffer 9; there are 4"),
    ({"left": {"buffer": 0, "dtype": "x9", "row": 64, "column": 1}}, "left: dtype x9; expected one of"),
    ({"left": {"buffer": 0, "dtype": "bf16", "row": -64, "column": 1}}, "strides"),
    ({"left": {"buffer": 0, "dtype": "bf16", "row": 3, "column": 2}}, "expected lines side by side"),
    ({"result": {"buffer": 3, "dtype": "bf16", "row": 1, "column": 128}}, "result: 128 elements from column to column"),
    ({"activation": "silu"}, "silu"), ({"precision": "f8"}, "f8"), ({"unheard": 1}, "unheard"),
    ({"algorithm": {"library": 130100, "code": "zz", "workspace": 0}}, "code zz…; expected 128 hexadecimal digits"),
    ({"algorithm": {"library": 130100, "code": "00" * 64, "workspace": -1}}, "-1 bytes of workspace"),
    ({"algorithm": {"library": 130100, "code": "00" * 64, "workspace": 1 << 60}}, "bytes of workspace"),
])  # fmt: skip
def test_damaged_records_are_errors(changes: dict[str, Any], words: str):
    device, _fake, library = fake_device()
    call = json.loads(PLAIN.objects()[f"a/{NAME}.json"])["library"] | changes
    files = described(call, 4)
    with pytest.raises(DeviceError) as raised:
        device.load(list(files.values()), list(files))
    assert words in str(raised.value) and f"load: kernel {NAME}" in str(raised.value)
    assert not any("layout" in str(each) for each in library.things.values())
    device.close()


def test_a_call_that_reaches_beyond_its_buffers_is_an_error():
    device, _fake, _library = fake_device()
    placed = Placed(device, PLAIN, 1)
    executable = load_case(device, PLAIN)
    item = work_of(placed)
    short = (*item.references[:-1], type(item.references[0])(3, 0, placed.buffers[-1].bytes - 2))
    with pytest.raises(DeviceError, match="library: result: 24,576 bytes of a buffer of 24,574"):
        device.record(executable, [type(item)("launch", short, NAME, 1)], 4, 0)
    device.close()


def test_a_product_that_is_refused_when_it_runs_is_an_error_of_that_call_alone():
    for turns in (1, 3):  # as it is; in a graph
        device, fake, library = fake_device()
        placed = Placed(device, PLAIN, 1)
        executable = load_case(device, PLAIN)
        work = device.record(executable, [work_of(placed)] * turns, len(placed.buffers), 0)
        library.refused["Matmul"] = NOT_SUPPORTED
        point = device.submit(work, placed.buffers)
        with pytest.raises(DeviceError, match=f"kernel {NAME}: by cuBLASLt: cublasLtMatmul: not supported"):
            point.wait()
        library.refused.clear()
        device.submit(work, placed.buffers).wait()
        placed.check()
        device.close()
        assert not library.things
        assert not +fake.alive


def test_a_graph_that_cannot_be_set_is_made_anew():
    device, fake, _library = fake_device()
    executable = load_case(device, PLAIN)
    sets = [Placed(device, PLAIN, seed) for seed in range(12)]
    count = len(sets[0].buffers)
    work = device.record(executable, [work_of(sets[0])] * 3, count, 0)
    fake.stiff = True
    for placed in (*sets, *sets[::-1]):
        device.fill(placed.buffers[-1], 0x7F).wait()
        device.submit(work, placed.buffers).wait()
        placed.check()
    device.close()
    assert not +fake.alive


def test_every_command_is_waited_for_where_that_is_asked_for():
    device, fake, _library = fake_device(options="?check=1")
    placed = Placed(device, PLAIN, 1)
    work = device.record(load_case(device, PLAIN), [work_of(placed)] * 2, len(placed.buffers), 0)
    device.submit(work, placed.buffers).wait()
    placed.check()
    assert fake.calls["graph_create"] == 0
    device.close()


def test_reasons_are_the_librarys_own_words():
    _, fake, library = fake_device()
    library.refused["MatmulDescCreate"] = 99
    with pytest.raises(CublasError, match="cublasLtMatmulDescCreate: status 99"):
        open_fake(fake)._products.library().prepare(PLAIN.call())  # pyright: ignore[reportPrivateUsage]


# -- tuning ----------------------------------------------------------------------------------------------


def test_the_command_tune_takes_the_library_where_it_is_faster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    case = CASES["relu"]
    fake = FakeApi()
    library = FakeCublas(fake)
    fake.libraries.append(library)

    def slow(tasks: int, p: list[int]) -> None:
        """The kernel that stands behind it: right, and in no hurry."""
        time.sleep(30e-3)
        inputs = [array(at, math.prod(shape), DTYPES[dtype]).reshape(shape)
                  for at, (dtype, shape) in zip(p, case.shapes()[:-1], strict=False)]
        dtype, shape = case.shapes()[-1]
        array(p[len(inputs)], math.prod(shape), DTYPES[dtype])[:] = case.expected(inputs).astype(DTYPES[dtype]).ravel()

    fake.kernels["count"] = slow
    monkeypatch.setattr(driver, "load_api", lambda: fake)
    made = artifact_of(case)
    members = {name: bytes(made.member(name)) for name in made.manifest.members}
    members[f"a/{NAME}.json"] = with_library(members[f"a/{NAME}.json"], None)
    candidate = FormCandidate("a form", NAME, 1, list(made.manifest.variants[0].objects))
    tunable = Tunable("cuda", "ptx70", NAME, "key", "a product", [candidate], [], case.call())
    path, pruned, tunings = tmp_path / "m.motet", tmp_path / "fast.motet", tmp_path / "t.json"
    write_artifact(made.manifest, members | {INDEX: encode_index([tunable])}, {}, path)
    tune_artifact(str(path), "cuda:0", str(tunings), str(pruned))
    said = capsys.readouterr().out
    assert "cublasLt 13.1.0 #" in said and "behind it a form" in said and "×" in said
    (tuning,) = read_tunings(tunings).kernels
    assert tuning.form == "a form" and tuning.library is not None and len(tuning.microseconds) == 5
    with motet.load(pruned, devices="cuda:0") as session:
        inputs = case.inputs(1)
        before = len(library.used)
        case.check(session(*inputs), inputs)
        assert len(library.used) == before + 1
    fake.libraries.clear()
    with motet.load(pruned, devices="cuda:0") as session:
        case.check(session(*inputs), inputs)
        assert len(session.notes) == 1
