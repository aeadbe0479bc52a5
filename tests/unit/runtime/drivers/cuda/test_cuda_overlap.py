"""Which launches may begin while those before them still run: those that wait by themselves, behind kernels alone."""

from __future__ import annotations

import json

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi
from tests.unit.runtime.drivers.cuda.opening import KERNELS, open_fake

from motet.runtime.device import Reference, Work
from motet.runtime.drivers.cuda.commands import CudaCommandBuffer
from motet.runtime.drivers.cuda.single_launch import DirectWork

WHOLE = (Reference(0, 0, 64),)


def waiting(*names: str, shared: int = 0) -> dict[str, bytes]:
    """The kernels of the checks, where `names` say that they wait by themselves and have so much shared memory."""
    found = dict(KERNELS)
    for path, content in KERNELS.items():
        if path.endswith(".json") and json.loads(content)["kernel"] in names:
            found[path] = json.dumps(json.loads(content) | {"waits": True, "shared": shared}).encode()
    return found


def count(*after: int) -> Work:
    return Work("launch", WHOLE, "count", 4, (), after)


def copy(*after: int) -> Work:
    return Work("copy", (Reference(0, 0, 8), Reference(0, 32, 8)), after=after)


def submit(work: list[Work], options: str = "", names: tuple[str, ...] = ("count",), shared: int = 0) -> FakeApi:
    """What the driver was asked for; each `count` adds 1 to the first four numbers."""
    fake = FakeApi()
    device = open_fake(fake, options)
    files = waiting(*names, shared=shared)
    executable = device.load(list(files.values()), list(files))
    buffer = device.allocate(64)
    device.write(buffer, np.zeros(16, np.int32)).wait()
    device.submit(device.record(executable, work, 1, 0), [buffer]).wait()
    made = np.empty(4, np.int32)
    device.read(buffer, made).wait()
    assert (made == sum(each.op == "launch" for each in work)).all()
    device.close()
    return fake


def test_kernels_of_a_chain_begin_early_but_for_the_first() -> None:
    (graph,) = submit([count(), count(0), count(1), count(2)]).graphs
    assert [node.early for node in graph.nodes] == [False, True, True, True]


@pytest.mark.parametrize(("options", "names"), [("?overlap=0", ("count",)), ("", ())])
def test_none_begins_early_where_that_is_not_wanted(options: str, names: tuple[str, ...]) -> None:
    (graph,) = submit([count(), count(0), count(1)], options, names).graphs
    assert not any(node.early for node in graph.nodes)


def test_behind_copies_and_behind_several_commands_nothing_begins_early() -> None:
    (graph,) = submit([count(), copy(0), count(1), count(2)]).graphs
    assert [node.early for node in graph.nodes if node.kind == "launch"] == [False, False, True]


def test_few_commands_are_launched_in_the_same_way() -> None:
    assert submit([count(), count(0)]).early == [False, True]


def test_in_a_capture_commands_begin_early_behind_the_one_before_them_on_their_stream() -> None:
    fake = FakeApi()
    device = open_fake(fake)
    files = waiting("count")
    executable = device.load(list(files.values()), list(files))
    work = device.record(executable, [count(), count(0), count(1), count(0), count(2, 3)], 1, 0)
    buffer, stream = device.allocate(64), fake.stream_create()
    assert isinstance(work, CudaCommandBuffer)
    DirectWork(device, work, 0, [])([buffer.address], stream, is_captured=True)
    fake.stream_synchronize(stream)
    assert fake.early == [False, True, True, False, False]
    fake.stream_destroy(stream)
    device.close()


def test_with_checks_every_command_is_waited_for() -> None:
    assert not any(submit([count(), count(0), count(1)], "?check=1").early)


def test_a_few_large_blocks_get_a_processor_each() -> None:
    (graph,) = submit([count(), count(0), count(1)], shared=60 << 10).graphs
    most = FakeApi().gpu(0).shared
    assert [node.early for node in graph.nodes] == [False, True, True]
    launches = [node.launch for node in graph.nodes if node.launch is not None]
    assert launches[0].shared == 60 << 10 and all(2 * launch.shared >= most for launch in launches[1:])
