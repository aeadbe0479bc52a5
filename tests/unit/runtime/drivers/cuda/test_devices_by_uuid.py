"""GPUs by their UUIDs, and the queues that programs ask for, over the driver for tests."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, array, uuid_of
from tests.unit.runtime.drivers.cuda.handmade import affine_chain, two_gpus

from motet.artifact.reader import Artifact
from motet.errors import DeviceError
from motet.runtime import load
from motet.runtime.device import find_device, probe
from motet.runtime.drivers.cuda import driver

X = np.arange(9, dtype=np.int32)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeApi:
    made = FakeApi(gpus=4)
    monkeypatch.setattr(driver, "load_api", lambda: made)
    return made


SPELLINGS: dict[str, Callable[[int], str]] = {
    "a UUID": uuid_of,
    "the family's": lambda number: f"cuda:{uuid_of(number)}",
    "IREE's": lambda number: f"cuda://{uuid_of(number)}",
    "IREE's, by number": lambda number: f"cuda://{number}",
    "with options": lambda number: f"cuda://{uuid_of(number)}?queues=2",
}


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("number", [0, 1, 3])
def test_the_gpu_of_a_uuid_is_the_one_that_is_opened(fake: FakeApi, spelling: str, number: int) -> None:
    uri = SPELLINGS[spelling](number)
    with load(affine_chain(1, rows=9), devices=uri) as session:
        np.testing.assert_array_equal(session(X), 2 * X)
        [choice] = session.devices
        assert choice.info.uri.partition("?")[0] == f"cuda:{number}"
        assert choice.info.uri.partition("?")[2] == uri.partition("?")[2]
    assert set(fake.opened) == {number}


def test_two_devices_of_a_program_by_their_uuids(fake: FakeApi) -> None:
    with load(two_gpus(9), devices={"a": uuid_of(3), "b": f"cuda://{uuid_of(1)}"}) as session:
        np.testing.assert_array_equal(session(X), 4 * X + 1)
        assert [choice.info.uri for choice in session.devices] == ["cuda:3", "cuda:1"]
    assert set(fake.opened) == {1, 3}


@pytest.mark.parametrize("uri", ["GPU-00000000-0000-0000-0000-000000000000", "cuda://GPU-0", "cuda:GPU-1", "cuda://9"])
def test_a_uuid_that_no_gpu_has_is_an_error_that_lists_those_there_are(fake: FakeApi, uri: str) -> None:
    with pytest.raises(DeviceError) as caught:
        load(affine_chain(1, rows=9), devices=uri)
    assert f"device {uri}: it is not present" in str(caught.value) and "\n" not in str(caught.value)
    for number in range(4):
        assert f"cuda:{number} ({uuid_of(number)})" in str(caught.value)
    assert not fake.opened


def test_a_gpu_whose_number_another_has_taken_meanwhile_is_not_opened(
    fake: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = find_device(uuid_of(2), probe("cuda"))
    monkeypatch.setattr(fake, "gpu", lambda ordinal: FakeApi(gpus=4).gpu(ordinal - 1), raising=False)
    with pytest.raises(DeviceError, match=f"GPU 2 is {uuid_of(1)}; expected {uuid_of(2)}"):
        driver.open(info)


# -- queues ------------------------------------------------------------------------------------------------------------


def on_queues(*queues: str) -> str:
    """Products on @gpu of vectors of different lengths, one for each of these lists of queues."""
    kinds = [f"tensor<{35 + number}xf32>" for number in range(len(queues))]
    lines = [
        f"  %r{n} = arith.mulf %x{n}, %y{n} {{stream.affinity = #hal.device.affinity<@gpu{queue}>}} : {kind}"
        for n, (queue, kind) in enumerate(zip(queues, kinds, strict=True))
    ]
    arguments = ", ".join(f"%x{n}: {kind}, %y{n}: {kind}" for n, kind in enumerate(kinds))
    results = ", ".join(f"%r{n}" for n in range(len(queues)))
    return "\n".join([
        'util.global private @gpu = #hal.device.target<"cuda"> : !hal.device',
        f"func.func @main({arguments}) -> ({', '.join(kinds)}) {{", *lines, f"  return {results} : {', '.join(kinds)}",
        "}",
    ])


def _products(counts: list[int]) -> Callable[[int, list[int]], None]:
    """A launch of one product for each of these lengths: the factors of all, then the results."""

    def run(tasks: int, parameters: list[int]) -> None:
        for number, count in enumerate(counts):
            places = (2 * number, 2 * number + 1, 2 * len(counts) + number)
            x, y, z = (array(parameters[place], count, np.float32) for place in places)
            z[:] = x * y

    return run


def streams_of(fake: FakeApi, artifact: Artifact, uri: str = "cuda:0") -> dict[int, set[int]]:
    """By the mask of queues of a step, the streams that its kernels ran on; the results are compared with numpy's."""
    variant = next(each for each in artifact.manifest.variants if each.family == "cuda")
    masks: dict[str, int] = {}
    for step in artifact.manifest.plans["main"].steps:
        if step.op == "run":
            schedule = variant.schedules[step.region]
            for command in schedule.commands:
                sizes = [schedule.buffers[index].bytes for index in command.buffers]
                results = sizes[2 * len(sizes) // 3 :]
                assert command.kernel not in masks
                masks[command.kernel] = step.queues
                fake.kernels[command.kernel] = _products([size // 4 for size in results if isinstance(size, int)])
    signature = artifact.manifest.functions[0]
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(each.shape, np.float32) for each in signature.inputs]
    fake.worked.clear()
    with load(artifact, devices=uri) as session:
        for result, x, y in zip(session(*inputs), inputs[::2], inputs[1::2], strict=True):
            np.testing.assert_array_equal(np.asarray(result), x * y)
    found: dict[int, set[int]] = {}
    for kernel, stream in fake.worked:
        found.setdefault(masks[kernel], set()).add(stream)
    return found


def build(text: str) -> Artifact:
    pytest.importorskip("torch_mlir")
    pytest.importorskip("triton")
    from tests.integration.placed import build_placed

    return build_placed(text, (), ("cuda:ptx80",))


def test_masks_of_queues_are_kept_to(fake: FakeApi) -> None:
    artifact = build(on_queues(", [0]", ", [3]", ", [1, 2]", ", [3]"))
    for uri in ("cuda:0", "cuda:0?queues=8"):
        streams = streams_of(fake, artifact, uri)
        assert sorted(streams) == [0b0001, 0b0110, 0b1000]
        assert all(len(each) == 1 for each in streams.values())
        assert len(set[int]().union(*streams.values())) == 3


def test_queues_that_a_gpu_has_not_are_named_once(fake: FakeApi, caplog: pytest.LogCaptureFixture) -> None:
    artifact = build(on_queues(", [5]", ", [0]", ", [9, 63]"))
    with caplog.at_level(logging.WARNING, "motet"):
        streams_of(fake, artifact)
    said = [record.getMessage() for record in caplog.records if "queue" in record.getMessage()]
    assert len(said) == 1
    assert said[0].endswith("@gpu: cuda:0 has queues 0 to 3; what is to run on queue 5, 9, 63 runs on any")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "motet"):
        streams_of(fake, artifact, "cuda:0?queues=64")
    assert not [record for record in caplog.records if "queue" in record.getMessage()]
