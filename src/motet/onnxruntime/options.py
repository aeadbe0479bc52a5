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
_FOLLOWED = ("intra_op_num_threads", "enable_profiling", "profile_file_prefix")
_PREFIX = "onnxruntime_profile_"  # onnxruntime's default
_REFUSED = {
    "optimized_model_filepath": "motet compile writes an artifact",
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
    """`intra_op_num_threads` is the number of threads, 0 for all. With `enable_profiling` calls are traced, and
    `end_profiling` of the session writes a file whose name begins with `profile_file_prefix`. Other options of
    onnxruntime are kept without an effect, or refused with OptionError when they are set."""

    intra_op_num_threads: int
    enable_profiling: bool
    profile_file_prefix: str

    def __init__(self) -> None:
        self.intra_op_num_threads = 0
        self.enable_profiling = False
        self.profile_file_prefix = _PREFIX

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _REFUSED and value:
            raise OptionError(f"SessionOptions.{name}: not supported; {_REFUSED[name]}")
        if name not in (*_FOLLOWED, *_TOLERATED, *_REFUSED):
            raise OptionError(f"SessionOptions.{name}: no such option; there are: {', '.join(_FOLLOWED)} and, without "
                              f"an effect, {', '.join(_TOLERATED)}")  # fmt: skip
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
        if value:
            raise OptionError(f"SessionOptions.{name}: not supported; {advice}")
    threads = getattr(options, "intra_op_num_threads", None)
    if not isinstance(threads, int) or threads < 0:
        raise OptionError(f"sess_options: {type(options).__qualname__} with intra_op_num_threads {threads!r} given, a "
                          "SessionOptions expected")  # fmt: skip
    return threads or None


def profile_prefix(options: Any) -> str | None:
    """The beginning of the name of a session's profile; None if none is asked for."""
    if not getattr(options, "enable_profiling", False):
        return None
    return str(getattr(options, "profile_file_prefix", _PREFIX))
