"""Options of onnxruntime: those that Motet follows, those without an effect on results, and those that it refuses."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from motet.errors import OptionError

# Tolerated: they change neither results nor files. Motet plans memory and order when it compiles.
_TOLERATED = (
    "enable_cpu_mem_arena", "enable_mem_pattern", "enable_mem_reuse", "execution_mode", "execution_order",
    "graph_optimization_level", "inter_op_num_threads", "log_severity_level", "log_verbosity_level", "logid",
    "use_deterministic_compute",
)
_REFUSED = {
    "enable_profiling": "motet bench --profile, or session.motet.profile(…), shows the time of each kernel",
    "optimized_model_filepath": "motet compile writes an artifact",
    "profile_file_prefix": "motet bench --profile, or session.motet.profile(…), shows the time of each kernel",
}


class GraphOptimizationLevel(IntEnum):
    """Levels of onnxruntime; programs are always optimised."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Orders of nodes in onnxruntime; Motet plans the order when it compiles."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class SessionOptions:
    """`intra_op_num_threads` is the number of threads, 0 for all. Other options of onnxruntime are kept without an
    effect, or refused with OptionError when they are set."""

    intra_op_num_threads: int

    def __init__(self) -> None:
        self.intra_op_num_threads = 0

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _REFUSED and value:
            raise OptionError(f"SessionOptions.{name}: not supported; {_REFUSED[name]}")
        if name not in ("intra_op_num_threads", *_TOLERATED, *_REFUSED):
            raise OptionError(f"SessionOptions.{name}: no such option; there are: intra_op_num_threads and, without an "
                              f"effect, {', '.join(_TOLERATED)}")  # fmt: skip
        super().__setattr__(name, value)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Refused: the keys are those of onnxruntime's own kernels."""
        raise OptionError(f"session option {key}={value}: not supported; leave it out")

    def register_custom_ops_library(self, path: str) -> None:
        """Refused: kernels of onnxruntime cannot be called."""
        raise OptionError(f"custom operators of {path}: not supported; express them in the model")


class RunOptions:
    """Options of a call; they have no effect."""

    log_severity_level = 2
    log_verbosity_level = 0
    logid = ""


def threads_of(options: Any) -> int | None:
    """The number of threads that `options` asks for: a SessionOptions, or onnxruntime's own. Raises OptionError for
    what is not supported."""
    if options is None:
        return None
    for name, advice in _REFUSED.items():
        value = getattr(options, name, None)
        if value and not (name == "profile_file_prefix" and value == "onnxruntime_profile_"):  # its default
            raise OptionError(f"SessionOptions.{name}: not supported; {advice}")
    threads = getattr(options, "intra_op_num_threads", None)
    if not isinstance(threads, int) or threads < 0:
        raise OptionError(f"sess_options: {type(options).__qualname__} with intra_op_num_threads {threads!r} given, a "
                          "SessionOptions expected")  # fmt: skip
    return threads or None
