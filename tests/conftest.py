"""Settings of all tests."""

import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests.costs import function_of, mark_slow, read_costs
from tests.seeds import ALL

from motet.compiler.codegen.triton.compile import ocloc
from motet.compiler.codegen.triton.compile.installation import has_intel
from motet.compiler.targets.families import DEFAULT_CPU, own_level
from motet.errors import DeviceError, OptionError
from motet.runtime.drivers.opencl.loader import environment_platforms, openable

# Deadlines measure the machine's load, not the code; a failure prints what repeats it.
settings.register_profile("motet", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("motet")

CACHE = "MOTET_CACHE_DIR"
CHECKED = "MOTET_CHECK"
_own_cache = pytest.StashKey[str]()
_durations: dict[str, list[float]] = {}  # of each function: how many cases ran, and their seconds


def pytest_configure(config: pytest.Config) -> None:
    """Give the run a cache of its own: one that outlives it knows the version, not the state of a source tree.
    The workers of a parallel run inherit it. Kernels and schedules are checked on the way. Tests send interrupts,
    which what is started behind a shell's `&` ignores, and so would all processes that it starts. OpenVINO, which
    some tests import, has an older libtbb.so.12 than Intel's OpenCL platform needs; a process uses the first one."""
    os.environ[CHECKED] = "1"
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of a GPU's memory
    if "not slow" in config.getoption("markexpr"):
        try:
            os.environ.setdefault(DEFAULT_CPU, level_of_this_machine())
        except OptionError as error:
            raise pytest.UsageError(str(error)) from error
    else:
        os.environ[ALL] = "1"
    openable(environment_platforms(Path(sys.prefix)))
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if CACHE not in os.environ:
        config.stash[_own_cache] = os.environ[CACHE] = tempfile.mkdtemp(prefix="motet-test-cache-")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mark_slow(items, read_costs())


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Exempt what was loaded for all tests from the collections of garbage that tests ask for or cause."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def all_levels() -> Iterator[None]:
    """Programs are compiled for all the CPU levels that users get: what such a test sees is the same on every
    machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(DEFAULT_CPU, raising=False)
        yield


@pytest.fixture(scope="session")
def offline_compiler() -> None:
    """Intel's offline compiler; tests that need it are skipped where it is not installed."""
    if not ocloc.is_available():
        pytest.skip(f"no offline compiler: {ocloc.INSTALL}")


@pytest.fixture(scope="session")
def intel_compilers(offline_compiler: None) -> None:
    """The offline compiler and the Triton for Intel's GPUs."""
    if not has_intel():
        pytest.skip("no triton-xpu: make intel")


def level_of_this_machine() -> str:
    """The best CPU level of this machine. In `make test`, programs that name no level are compiled for this one alone,
    which takes a third of the time where there are several; in `make test-all`, for those that users get."""
    own = own_level()
    return own.name if own else "native"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, None, None]:
    with _skipped_without_instructions():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    with _skipped_without_instructions():
        return (yield)


@contextlib.contextmanager
def _skipped_without_instructions() -> Iterator[None]:
    """Skip a test that runs code for a level of processors whose instructions this processor lacks."""
    try:
        yield
    except DeviceError as error:
        reason = r"none of its variants runs on this machine .*: x86-64-v4.* \(needs (.*?), which the"
        lacking = re.search(reason, str(error))
        if lacking is None:
            raise
        pytest.skip(f"this processor lacks {lacking[1]}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    function = _durations.setdefault(function_of(report.nodeid), [0, 0.0])
    function[0] += report.when == "call"
    function[1] += report.duration


class _FailuresAtOnce:
    """Names each failed test when it fails, not only at the end of a run of an hour."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            lines = report.longreprtext.splitlines()
            message = next((line for line in lines if line.startswith("E ")), "")
            self._terminal.write_line("")
            self._terminal.write_line(f"failed: {report.nodeid} ({report.when}) {message}")


def pytest_sessionstart(session: pytest.Session) -> None:
    terminal = session.config.pluginmanager.get_plugin("terminalreporter")
    if isinstance(terminal, pytest.TerminalReporter) and not hasattr(session.config, "workerinput"):
        session.config.pluginmanager.register(_FailuresAtOnce(terminal))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep how long each function took, for `checks.changed` and `checks.costs`."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        known = cache.get("motet/functions", {})
        cache.set("motet/functions", known | {name: [cases, round(s, 3)] for name, (cases, s) in _durations.items()})


def pytest_unconfigure(config: pytest.Config) -> None:
    folder = config.stash.get(_own_cache, None)
    if folder is not None:
        del os.environ[CACHE]
        shutil.rmtree(folder, ignore_errors=True)
