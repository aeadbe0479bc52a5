"""Requests to the compiler: checks them in the user's process, and converts them to jobs of a worker."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from motet.artifact.device_flags import DeviceFlag, options_of, print_alternative
from motet.compiler import external_data
from motet.compiler.external_data import State
from motet.compiler.ir.hal_attributes import ALIASES, own_family
from motet.compiler.job import NO_REPORTS, Job, PassReports, Precision
from motet.compiler.source_files import content_of, large_file, read_file
from motet.compiler.targets.cpu import CPU_TARGETS, CpuTarget, multiplies
from motet.compiler.targets.families import HOST, default_levels, driver_options, target_names
from motet.compiler.targets.rates import read_rates
from motet.cpu_features import host_features
from motet.errors import OptionError
from motet.options import option_help

_log = logging.getLogger(__name__)

PLACEMENTS = ("default", "auto")
TUNING = ("off", "measure")
PRECISIONS: tuple[Precision, ...] = ("f32", "bf16", "f16", "int8")


@dataclass(frozen=True)
class CompileRequest:
    """A request to compile. `source` is text, bytes or, if it is read from the file `path`, None. `devices` are (name
    or "", device expression); `options` are those of `motet.options`; `placement` is `default`, which runs unplaced
    operations on the default device, or `auto`, which places them by a cost model; `places` are patterns of names in
    the source, and their devices. `mesh` and `shards` divide the program over devices (`sharding/`).
    `reports` selects output about passes, on standard error; the program is then compiled even if the cache has its
    artifact."""

    source: str | bytes | None
    path: str = ""
    format: str = "auto"
    devices: tuple[DeviceFlag, ...] = ()
    options: tuple[tuple[str, str], ...] = ()
    cache: bool = True
    placement: str = "default"
    places: tuple[tuple[str, str], ...] = ()
    mesh: str = ""
    shards: tuple[str, ...] = ()
    reports: PassReports = NO_REPORTS


def job_of(request: CompileRequest, kind: Literal["compile", "emit", "verify", "list", "waits"]) -> Job:
    options = dict(request.options)
    for name in options:
        if name not in (known := list(option_help())):
            close = difflib.get_close_matches(name.replace("_", "-"), known, 1)
            meant = f"; did you mean {close[0]}?" if close else ""
            raise OptionError(f"option {name}: unknown{meant}; available: {', '.join(known)}")
    _check_reports(request.reports)
    if request.placement not in PLACEMENTS:
        raise OptionError(f"placement {request.placement}: unknown; available: {', '.join(PLACEMENTS)}")
    _check_mesh(request.mesh, request.shards)
    flags = request.devices
    source = request.source
    data: bytes | None = source.encode() if isinstance(source, str) else source
    file, state, model = "", (0, 0), ""
    data_files: dict[str, State] = {}
    if data is None:
        file, state = large_file(request.path)
        data = None if file else read_file(request.path)
        model = str(Path(request.path).absolute())
        with content_of(request.path, file, data) as content:
            data_files = external_data.data_files(model, content)
    targets = tuple(_targets(flags) if flags else default_levels())
    strict = _flag("strict", options.get("strict"), default=False)
    return Job(
        kind, request.path or "<string>", data, isinstance(source, str), request.format,
        targets, jobs=_jobs(options.get("jobs")),
        devices=() if _is_host(flags) else flags, placement=request.placement,
        places=request.places, mesh=request.mesh, shards=request.shards,
        rates=_rates(options.get("rates")), memory_limit=_bytes(options.get("memory-limit")),
        tune=_tune(options.get("tune")), tunings=_tunings(options.get("tuning"), options.get("tune")),
        library=_library(options.get("library")), schedules=_schedules(options.get("schedules")),
        strict_tokens=_tokens(options.get("tokens")),
        separate_siblings=not _flag("fuse-siblings", options.get("fuse-siblings"), default=True),
        unchecked_indices=_flag("unchecked-indices", options.get("unchecked-indices"), default=False),
        file=file, state=state, model=model, data_files=data_files, keeps=request.cache,
        tune_schedule=_tuning(options.get("tune-schedule")), tune_inputs=_shapes(options.get("tune-inputs")),
        sequences=_sequences(options.get("sequences")),
        keep_source=_flag("keep-source", options.get("keep-source"), default=False), reports=request.reports,
        precision=_precision(options.get("precision"), targets, strict),
    )


def _check_mesh(mesh: str, shards: Sequence[str]) -> None:
    """Raises OptionError for a mesh or shardings that do not parse."""
    if not mesh and not shards:
        return
    from motet.compiler.ir.shardings import parse_mesh
    from motet.compiler.sharding.requests import parse_request

    if mesh:
        try:
            parse_mesh(mesh)
        except ValueError as error:
            raise OptionError(f"--{error}") from None
    for text in shards:
        parse_request(text)


def _check_reports(reports: PassReports) -> None:
    """Raises OptionError for an unknown pass."""
    if reports.after:
        from motet.compiler.passes.pipelines import PIPELINES
        from motet.compiler.passes.registry import PASSES

        for name in reports.after:
            if name not in PASSES and name not in PIPELINES:
                known = ", ".join(sorted({*PASSES, *PIPELINES}))
                raise OptionError(f"--print-after {name}: no such pass; expected one of {known}")


def _targets(flags: Sequence[DeviceFlag]) -> list[str]:
    """The targets of the flags, in order of preference; families without code are omitted."""
    found: dict[str, None] = {}
    for flag in flags:
        for alternative in flag.alternatives:
            if alternative.family:
                names = target_names(
                    own_family(alternative.family), options_of(alternative), print_alternative(alternative)
                )
                found |= dict.fromkeys(names)
    return list(found)


def _is_host(flags: Sequence[DeviceFlag]) -> bool:
    """Whether the flags only select CPU levels of the host. A physical device is for all devices of the program."""
    if len(flags) != 1 or flags[0].name or flags[0].uri or len(flags[0].alternatives) != 1:
        return not flags
    only = flags[0].alternatives[0]
    return ALIASES.get(only.family) == HOST and only.ordinal is None and not driver_options(HOST, options_of(only))


def _rates(path: str | None) -> str:
    """The content of a file of rates, checked in the user's process."""
    if path is None:
        return ""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror or str(error) if isinstance(error, OSError) else "not a text file"
        raise OptionError(f"option rates={path}: cannot be read: {why.lower()}; "
                          "expected a file that motet devices --measure -o FILE writes") from None
    read_rates(text, f"option rates={path}")
    return text


def _bytes(given: str | None) -> int | None:
    """A size: a number, optionally with K, M or G."""
    if given is None:
        return None
    number = given.rstrip("KMG")
    if not number.isdigit() or len(given) - len(number) > 1 or len(number) > 18:
        raise OptionError(f"option memory-limit={given}: not a size; expected bytes, or a number with K, M or G")
    return int(number) << {"": 0, "K": 10, "M": 20, "G": 30}[given[len(number) :]]


def _flag(name: str, given: str | None, default: bool) -> bool:
    if given not in (None, "true", "false"):
        raise OptionError(f"option {name}={given}: expected true or false")
    return default if given is None else given == "true"


def _tuning(given: str | None) -> bool:
    if given not in (None, *TUNING):
        raise OptionError(f"option tune-schedule={given}: expected {' or '.join(TUNING)}")
    return given == "measure"


def _tune(given: str | None) -> Literal["", "candidates", "measure"]:
    if given in (None, "off"):
        return ""
    if given == "candidates" or given == "measure":
        return given
    raise OptionError(f"option tune={given}: expected off, candidates or measure")


def _library(given: str | None) -> Literal["tuned", "cublaslt", "none"]:
    if given is None:
        return "tuned"
    if given == "tuned" or given == "cublaslt" or given == "none":
        return given
    raise OptionError(f"option library={given}: expected tuned, cublaslt or none")


def _tokens(given: str | None) -> bool:
    if given in (None, "repair", "strict"):
        return given == "strict"
    raise OptionError(f"option tokens={given}: expected repair or strict")


def _tunings(path: str | None, tune: str | None) -> bytes:
    """The content of a file of tunings, checked in the user's process; it may be missing with tune=measure."""
    from motet.artifact.tunings import Tunings, read_tunings

    if path is None or (tune == "measure" and not Path(path).exists()):
        return Tunings().encode()
    return read_tunings(path, f"option tuning={path}").encode()


def _schedules(path: str | None) -> bytes:
    """The content of a file of schedules, checked in the user's process."""
    if path is None:
        return b""
    from motet.artifact.files import read_named
    from motet.compiler.tuning.given import read_given

    where = f"option schedules={path}"
    data = read_named(path, where)
    if data.startswith(b"SQLite format 3\0"):
        from motet.records.best_schedules import best_schedules

        data = best_schedules(path)
    read_given(data, where)
    return data


def _shapes(given: str | None) -> str:
    if given:
        from motet.compiler.tuning.inputs import parse_inputs

        parse_inputs(given)
    return given or ""


def _sequences(given: str | None) -> str:
    if given:
        from motet.compiler.frontends.onnx.interface import parse_sequences

        parse_sequences(given)
    return given or ""


def _precision(given: str | None, targets: Sequence[str], strict: bool) -> Precision:
    """The precision of f32 products. Warns if no target has instructions for it that this machine can use; refuses it
    if one has none and `strict` is set."""
    if given is None or given == "f32":
        return "f32"
    if given != "bf16" and given != "f16" and given != "int8":
        raise OptionError(f"option precision={given}: unknown; available: {', '.join(PRECISIONS)}")
    from motet.compiler.targets.families import resolve_target

    known = [resolve_target(name) for name in targets]
    other = next((target for target in known if not isinstance(target, CpuTarget)), None)
    if other is not None:
        raise OptionError(f"option precision={given}: for processors of the host only, not for {other.family};"
                          " GPUs take theirs in the device expression, such as cuda{precision=tf32}")
    levels = [target for target in known if isinstance(target, CpuTarget)]
    without = [level.name for level in levels if not multiplies(level, given)]
    if without and strict:
        able = [name for name, level in CPU_TARGETS.items() if multiplies(level, given)]
        remedy = f"compile for host{{cpu={able[-1]}}}, or" if able else "compile"
        raise OptionError(f"option precision={given}: {', '.join(without)}: no instructions for it, and strict=true;"
                          f" {remedy} without strict")
    best = next((level for level in levels if set(level.requires) <= host_features()), None)
    if len(without) == len(levels) or (best is not None and best.name in without):
        wide = "32-bit integers" if given == "int8" else "f32"
        _log.warning("option precision=%s: %s: no instructions for it; numbers are rounded to %s and multiplied in %s",
                     given, ", ".join(without), given, wide)
    return given


def _jobs(given: str | None) -> int:
    if given is None:
        return len(os.sched_getaffinity(0))
    if not given.isdigit() or int(given) < 1:
        raise OptionError(f"option jobs={given}: not a positive number")
    return int(given)
