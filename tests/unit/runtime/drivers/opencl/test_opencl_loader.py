"""How the driver finds OpenCL, without any platform."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from motet.errors import DeviceError
from motet.runtime.device import DeviceInfo, find_device
from motet.runtime.drivers.opencl import driver, environment, loader, trial
from motet.runtime.drivers.opencl.apart import first_error
from motet.runtime.drivers.opencl.api import OpenClError

POCL = "lib/python3.11/site-packages/pyopencl/.libs/libpocl-1.so"


def packages(folder: Path) -> Path:
    """An environment with files named like those of pip's platforms."""
    for name in ("lib/libintelocl.so", "lib/libOpenCL.so.1", POCL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def test_platforms_of_an_environment_have_absolute_paths(tmp_path: Path) -> None:
    source = packages(tmp_path / "packages")
    (tmp_path / "python/lib").mkdir(parents=True)
    for _ in range(2):  # again, where everything is there
        assert environment.register(source, tmp_path / "python") == ["intel", "pocl"]
    found = loader.environment_platforms(tmp_path / "python")
    assert found == [str(source / "lib/libintelocl.so"), str(source / POCL)]
    assert (tmp_path / "python/lib/libOpenCL.so.1").resolve() == source / "lib/libOpenCL.so.1"


def test_an_environment_without_platforms_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["environment.py", str(tmp_path), str(tmp_path / "python")])
    with pytest.raises(SystemExit, match="no OpenCL platform in"):
        runpy.run_path(environment.__file__, run_name="__main__")


def test_a_missing_loader_is_one_line_with_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load() -> None:
        loader.load_library.__wrapped__()

    monkeypatch.setattr("sys.prefix", str(tmp_path))
    monkeypatch.setattr(loader, "_LOADER", "libNoOpenCL.so.9")
    with pytest.raises(DeviceError, match=r"^no OpenCL loader: .*libNoOpenCL\.so\.9.*make intel$"):
        load()


def test_a_machine_without_opencl_has_an_unavailable_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise DeviceError("no OpenCL loader: make intel")

    monkeypatch.setattr(driver, "load_api", fail)
    [info] = driver.probe()
    assert (info.uri, info.available, info.reason) == ("opencl:0", False, "no OpenCL loader: make intel")


@pytest.mark.parametrize("log, expected", [
    ("", "no log"),
    ("Build started\n1:2: error: no member\n1:9: error: no such", "1:2: error: no member"),
    ("Error(s) while linking:\n  Cannot find symbol f\n", "Error(s) while linking: Cannot find symbol f"),
    ("linking failed:", "linking failed:"),
])
def test_the_first_error_of_a_log(log: str, expected: str) -> None:
    assert first_error(log) == expected


def test_a_broken_platform_is_left_out(tmp_path: Path) -> None:
    vendors = tmp_path / "etc/OpenCL/vendors"
    vendors.mkdir(parents=True)
    (vendors / "empty.icd").write_text("\n")
    (vendors / "gone.icd").write_text("/no/such/library.so\n")
    assert loader.environment_platforms(tmp_path) == ["/no/such/library.so"]
    assert loader.openable(loader.environment_platforms(tmp_path)) == []


def test_devices_are_named_by_platform_and_place_and_name() -> None:
    present = [
        DeviceInfo("Xeon (Intel(R) OpenCL)", "opencl:0", family="opencl", aliases=("intel",)),
        DeviceInfo("Arc (Intel(R) OpenCL Graphics)", "opencl:1", family="opencl", aliases=("intel", "0000:03:00.0")),
        DeviceInfo("pthread-Intel (Portable Computing Language)", "opencl:2", family="opencl", aliases=("pocl",)),
    ]
    for uri, found in (
        ("opencl:intel", 0), ("opencl:0000:03:00.0", 1), ("opencl:PoCL", 2), ("opencl:arc", 1), ("opencl:Portable", 2),
        ("opencl:2", 2), ("opencl", 0), ("opencl:graphics?queues=3", 1),
    ):
        assert find_device(uri, present).uri.partition("?")[0] == f"opencl:{found}"
    with pytest.raises(DeviceError, match=r"opencl:amd: it is not present; present: opencl:0 \(intel\), opencl:1"):
        find_device("opencl:amd", present)


def test_a_library_is_opened_after_those_of_its_folder_that_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs = {"a.so": ["b.so", "c.so"], "b.so": ["c.so"], "c.so": [], "d.so": ["gone.so"]}
    opened: list[str] = []

    def opening(path: str) -> str:
        name = Path(path).name
        for missing in needs[name]:
            if missing not in opened:
                raise OSError(f"{missing}: cannot open shared object file: No such file or directory")
        opened.append(name)
        return name

    for name in needs:
        (tmp_path / name).touch()
    monkeypatch.setattr(loader.ctypes, "CDLL", opening)
    assert str(loader.open_beside(tmp_path / "a.so")) == "a.so" and opened == ["c.so", "b.so", "a.so"]
    with pytest.raises(OSError, match=r"gone\.so: cannot open"):
        loader.open_beside(tmp_path / "d.so")


def test_a_trial_of_a_compiler_is_made_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[int] = []

    def reject(number: int, about: str, code: bytes, options: str) -> bytes:
        tried.append(number)
        raise OpenClError("clBuildProgram failed: unknown target CPU 'generic'", -11)

    monkeypatch.setenv("MOTET_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(trial, "build_apart", reject)
    trial.try_program.cache_clear()
    try:
        faults = [trial.try_program(number, "a device", "a program") for number in (1, 1)]
        trial.try_program.cache_clear()
        faults.append(trial.try_program(1, "a device", "a program"))
    finally:
        trial.try_program.cache_clear()
    assert set(faults) == {"clBuildProgram failed: unknown target CPU 'generic'"}
    assert tried == [1]
