"""Loading kernels with their descriptions, and recording launches of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tests.unit.runtime.drivers.cuda.fake import FakeApi, Function
from tests.unit.runtime.drivers.cuda.opening import KERNELS, launch_of, load, open_fake

from motet.errors import DeviceError
from motet.runtime.device import Reference, Work
from motet.runtime.drivers.cuda.api import CudaError
from motet.runtime.drivers.cuda.program import CudaExecutable

FOLDER = "executables/cuda/ptx70/"
PTX = KERNELS[f"{FOLDER}count.ptx"]


def described(**changes: object) -> bytes:
    return json.dumps(json.loads(KERNELS[f"{FOLDER}affine.json"]) | changes).encode()


def failure(objects: dict[str, bytes]) -> str:
    device = open_fake()
    with pytest.raises(DeviceError) as raised:
        device.load(list(objects.values()), list(objects))
    device.close()
    return str(raised.value)


def test_a_binary_is_loaded_once_for_all_its_kernels_and_sources_are_not_looked_at():
    fake = FakeApi()
    device = open_fake(fake)
    executable = device.load([*KERNELS.values(), b"def f(): ..."], [*KERNELS, f"{FOLDER}count.py"])
    assert sorted(executable.kernels) == sorted({name.split("/")[-1].split(".")[0] for name in KERNELS})
    assert fake.calls["module_load"] == 1 and fake.alive["module"] == 1
    del executable
    device.load([], [])
    assert fake.alive["module"] == 0
    device.close()


def test_the_entry_may_have_another_name_than_the_kernel():
    device = open_fake()
    files = {"a/twice.ptx": PTX, "a/twice.json": described(kernel="twice")}
    executable = device.load(list(files.values()), list(files))
    assert executable.kernels == ["twice"]
    x, y = device.allocate(20), device.allocate(20)
    data = np.arange(5, dtype=np.int32)
    work = device.record(executable, [launch_of("twice", [20, 20], 5, [7])], 2, 0)
    device.submit(work, [x, y], [device.write(x, data)]).wait()
    result = np.empty_like(data)
    device.read(y, result).wait()
    np.testing.assert_array_equal(result, 2 * data + 7)
    device.close()


@pytest.mark.parametrize(("objects", "parts"), [
    ({"a/k.ptx": PTX}, ["a/k.ptx", "description"]),
    ({"a/k.json": described()}, ["a/k.json", "binary"]),
    ({"a/k.o": b"ELF"}, ["a/k.o", ".cubin"]),
    ({"a/k.ptx": PTX, "a/k.json": b"{"}, ["a/k.json"]),
    ({"a/k.ptx": PTX, "a/k.json": b'{"kernel": "k"}'}, ["a/k.json", "entry"]),
    ({"a/k.ptx": PTX, "a/k.json": described(entry="nowhere")}, ["a/k.ptx", "nowhere"]),
    ({"a/k.ptx": PTX, "a/k.json": described(shared=1 << 20)}, ["1,048,576 bytes of shared memory", "204,800"]),
    ({"a/k.ptx": PTX, "a/k.json": described(ctas=3)}, ["3 blocks a cluster", "1, 2, 4 or 8"]),
    ({"a/k.ptx": PTX, "a/k.json": described(warps=33)}, ["33 warps"]),
    ({"a/k.ptx": PTX, "a/k.json": described(warps=2, threads=65)}, ["65 threads", "0 to 64", "2 warps"]),
    ({"a/k.ptx": PTX, "a/k.json": described(sizes=["f32"])}, ["type f32", "i32 or i64"]),
    ({"a/k.ptx": PTX, "a/k.json": described(), "b/l.ptx": PTX, "b/l.json": described()}, ["affine", "twice"]),
], ids=lambda value: "-".join(value) if isinstance(value, dict) else "")
def test_what_cannot_be_loaded_says_why(objects: dict[str, bytes], parts: list[str]):
    message = failure(objects)
    assert message.startswith("device cuda:0: load: ")
    for part in parts:
        assert part in message


@pytest.mark.parametrize(("work", "message"), [
    (launch_of("affine", [4], 1, [1]), "1 buffers; expected 2"),
    (launch_of("affine", [4, 4, 4], 1, [1]), "3 buffers; expected 2"),
    (launch_of("affine", [4, 4], 1), "0 sizes; expected 1"),
    (launch_of("affine", [4, 4], 1 << 31, [1]), "2,147,483,648 tasks"),
])
def test_launches_that_do_not_fit_their_kernel_are_refused(work: Work, message: str):
    device = open_fake()
    with pytest.raises(DeviceError, match=f"command 0: kernel affine: {message}"):
        device.record(load(device), [work], 3, 0)
    device.close()


def test_a_block_has_the_threads_that_its_description_says():
    device = open_fake()
    for description, threads in ((described(warps=3), 96), (described(warps=3, threads=77), 77)):
        executable = device.load([PTX, description], ["a/affine.ptx", "a/affine.json"])
        assert isinstance(executable, CudaExecutable)
        assert executable.by_name["affine"].threads == threads
    device.close()


def test_sizes_of_32_bits_are_checked_and_handed_over_as_such():
    device = open_fake()
    files = {"a/affine.ptx": PTX, "a/affine.json": described(sizes=["i32"])}
    executable = device.load(list(files.values()), list(files))
    x = device.allocate(4)
    for value in (1 << 32, -(1 << 31) - 1):
        with pytest.raises(DeviceError, match="expected i32"):
            device.record(executable, [launch_of("affine", [4, 4], 1, [value])], 2, 0)
    device.fill(x, 0).wait()
    for value in (-5, (1 << 32) - 5, (1 << 31) - 1, -(1 << 31)):
        y, result = device.allocate(4), np.empty(1, np.int32)
        recorded = device.record(executable, [launch_of("affine", [4, 4], 1, [value])], 2, 0)
        device.read(y, result, 0, [device.submit(recorded, [x, y])]).wait()
        assert int(result[0]) % (1 << 32) == value % (1 << 32)
    device.close()


def test_a_graph_is_made_once_and_set_anew_only_where_buffers_changed():
    fake = FakeApi()
    device = open_fake(fake)
    count = 13
    whole = [Reference(index, 0, 4 * count) for index in range(3)]
    work = [
        Work("launch", (whole[0], whole[1]), "affine", count, (3,)),
        Work("launch", (whole[1], whole[1]), "affine", count, (-1,), (0,)),
        Work("copy", (whole[1], whole[2]), after=(1,)),
    ]
    recorded = device.record(load(device), work, 3, 0)
    x = np.random.default_rng(1).integers(-99, 99, count, np.int32)
    first, *middles = (device.allocate(4 * count) for _ in range(10))
    device.write(first, x).wait()
    results = [device.allocate(4 * count) for _ in range(12)]

    def run(middle: int, place: int) -> None:
        out = np.empty_like(x)
        point = device.submit(recorded, [first, middles[middle], results[place]])
        device.read(results[place], out, 0, [point]).wait()
        np.testing.assert_array_equal(out, 2 * (2 * x + 3) - 1)

    for _ in range(5):
        run(0, 0)
    assert fake.calls["graph_instantiate"] == 1 and fake.calls["executable_set_kernel"] == 0
    for place in range(1, 8):
        run(0, place)
    assert fake.calls["graph_instantiate"] == 8 and fake.calls["graph_create"] == 1
    sets = fake.calls["executable_set_kernel"], fake.calls["executable_set_copy"]
    run(0, 8)  # the copy's target alone is another one
    assert (fake.calls["executable_set_kernel"], fake.calls["executable_set_copy"]) == (sets[0], sets[1] + 1)
    run(0, 8)
    run(1, 9)
    run(8, 11)
    assert fake.calls["graph_instantiate"] == 8
    assert fake.calls["launch"] == 0
    device.close()
    assert +fake.alive == {}


def test_few_commands_are_launched_as_they_are_until_they_come_to_the_same_buffers_again():
    fake = FakeApi()
    device = open_fake(fake)
    buffer = device.allocate(4)
    device.fill(buffer, 0).wait()
    recorded = device.record(load(device), [launch_of("count", [4]), launch_of("count", [4])], 1, 0)
    others = [device.allocate(4) for _ in range(65)]
    for other in (*others, *others):
        device.submit(recorded, [other]).wait()
    assert fake.calls["launch"] == 260 and fake.calls["graph_create"] == 0
    for _ in range(3):
        device.submit(recorded, [buffer]).wait()
    result = np.empty(1, np.int32)
    device.read(buffer, result).wait()
    assert result[0] == 6 and fake.calls["launch"] == 262 and fake.calls["executable_launch"] == 2
    device.close()


def open_affine(fake: FakeApi) -> None:
    """Loads the kernels on a device of their own."""
    device = open_fake(fake)
    load(device)
    device.close()


def test_what_the_driver_makes_of_ptx_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    first, again, newer, other = FakeApi(), FakeApi(), FakeApi(), FakeApi(capability=(10, 0))
    newer.driver_version = 13010
    for fake, compiled in ((first, 1), (again, 0), (newer, 1), (other, 1), (newer, 1)):
        open_affine(fake)
        assert fake.calls["compile_ptx"] == compiled


def test_kept_code_that_is_damaged_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    open_affine(FakeApi())
    [entry] = tmp_path.glob("??/*")
    for damage in (b"", b"nothing", entry.read_bytes()[:-1]):
        entry.write_bytes(damage)
        fake = FakeApi()
        open_affine(fake)
        assert fake.calls["compile_ptx"] == 1


def test_code_loads_where_the_cache_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path / "file"))
    fake = FakeApi()
    open_affine(fake)
    assert fake.calls["compile_ptx"] == 1 and fake.calls["module_load"] == 1


@pytest.mark.parametrize(("code", "message"), [
    (222, r"a/k.ptx: its PTX is newer than this driver, for CUDA 12\.2, can compile; update the driver, or compile for "
          r"cuda{arch=sm_90a}"),
    (209, r"a/k.ptx: it has no code for this GPU, sm_90 \(NAME\)"),
])
def test_drivers_that_cannot_take_the_code_say_what_to_do(code: int, message: str):
    class Unwilling(FakeApi):
        def compile_ptx(self, text: bytes) -> bytes:
            raise CudaError(code, "NAME", "cuLinkAddData")

        def module_load(self, image: bytes) -> dict[str, Function]:
            raise CudaError(code, "NAME", "cuModuleLoadDataEx")

    fake = Unwilling()
    fake.driver_version = 12020
    device = open_fake(fake)
    with pytest.raises(DeviceError, match=message):
        device.load([PTX, described()], ["a/k.ptx", "a/k.json"])
    device.close()


def test_many_kernels_are_loaded_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    names = [f"kernel{number}" for number in range(20)]
    files: dict[str, bytes] = {}
    for name in names:
        files[f"a/{name}.ptx"] = PTX + f"// {name}\n".encode()
        files[f"a/{name}.json"] = described(kernel=name)
    fake = FakeApi()
    device = open_fake(fake)
    executable = device.load(list(files.values()), list(files))
    assert list(executable.kernels) == names and fake.alive["module"] == len(names)
    del executable
    device.close()
    assert fake.alive["module"] == 0
    files["a/kernel7.ptx"] = b".version {"
    assert "a/kernel7.ptx" in failure(files)


def test_what_is_independent_runs_at_once_while_it_is_profiled():
    device = open_fake()
    buffers = [device.allocate(8) for _ in range(3)]
    whole = [Reference(index, 0, 8) for index in range(3)]
    delay = 30_000  # microseconds
    work = [Work("launch", (whole[number],), "spin", 1, (delay,)) for number in range(2)]
    work += [Work("launch", (whole[2],), "spin", 1, (delay,), (0, 1))]
    recorded = device.record(load(device), work, 3, 0)
    device.profile(True)
    device.submit(recorded, buffers, queue=1).wait()
    one, other, last = device.profile(False)
    assert {event.queue for event in (one, other, last)} == {1}
    assert min(one.end, other.end) - max(one.begin, other.begin) > 0.5e-6 * delay
    assert last.begin >= max(one.end, other.end)
    device.close()
