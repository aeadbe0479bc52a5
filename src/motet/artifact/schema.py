"""The types of an artifact's `manifest.json`; reading validates against them.

Sizes that are unknown until run time are expressions over *symbols*, the dynamic extents of a function's inputs. An
expression is an integer, the name of a symbol, or `[operator, left, right]` with one of the operators
`+ - * // ceildiv max min`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

SCHEMA_VERSION = 5
STATUS_BYTES = 32  # of a failed check's record: its number, an index, an extent, one more word

if TYPE_CHECKING:
    Expr = Union[int, str, list["Expr"]]  # noqa: UP007 - a recursive alias needs the quoted form
else:
    Expr = int | str | list[Any]  # msgspec supports no recursive alias; `validation.py` checks the contents


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


# What programs state of memory; `global` is any kind of the device's.
MEMORY_KINDS = ("global", "cl_mem", "usm_host", "usm_device", "usm_shared", "svm", "host")


class ExtentValue(Struct, frozen=True):
    """The value that determines an extent in a call, for `operator`: element `index` of `function`'s first result. If
    `result` is not 0, the input is that result itself: a tensor that `function` computes on the way."""

    function: str
    index: int
    operator: str = ""
    result: int = 0


class TensorSpec(Struct, frozen=True):
    """One input or result of a function. `dtype` is MLIR's spelling (`f32`, `bf16`, `i64`, `i1`, …). `strided` inputs
    are tensors of arbitrary strides, also when they are written, for memrefs with a strided layout. An input with a
    `value` is not passed by the caller: it has no elements, and its first extent is that value, computed by a function
    whose inputs are those before it; or it is another result of that function. An input or result with a `state` is not
    the caller's either: a session keeps the state of this name from call to call (`states.py`). `memory`, one of
    `MEMORY_KINDS`, is the kind that a call on a caller's OpenCL queue must be given."""

    name: str
    shape: list[Expr]
    dtype: str
    destination: int | None = None  # of a result: the input that it is written to, in place
    strided: bool = False
    value: ExtentValue | None = None
    state: str | None = None
    memory: str = ""


class Symbol(Struct, frozen=True):
    """A dynamic extent: the symbol `name` has the value of axis `axis` of input `input`."""

    name: str
    input: int
    axis: int


class Constraint(Struct, frozen=True):
    """A condition on a call's extents, for example that loops over several tensors have equal extents.

    `left` and `right` are related by `relation`: `equal`; `at-most` (left ≤ right); `multiple` (left is divisible by
    right); `stretch` (left is right, or 1); `broadcast` (equal, or one of them is 1); `true` (left is not 0, whatever
    right is). `text` is the error message, which names the operator as in the source; the two numbers are appended,
    except of `true`. Without it, the expressions are shown.
    """

    left: Expr
    right: Expr
    relation: Literal["equal", "at-most", "multiple", "stretch", "broadcast", "true"] = "equal"
    text: str = ""


class Signature(Struct, frozen=True):
    name: str
    inputs: list[TensorSpec]
    results: list[TensorSpec]
    symbols: list[Symbol] = []
    constraints: list[Constraint] = []


class ScheduleBuffer(Struct, frozen=True):
    """Memory that commands refer to by its index in the schedule.

    `index` is the number of the input, result or parameter; `offset` is the position in its base (the arena, or the
    parameter file's tensor). A status has `STATUS_BYTES` bytes, zero before the call, in which commands record which of
    the schedule's `checks[index]` failed. `bytes` is its size. `shape` and `dtype` of an intermediate tensor are
    informative: they are not needed to run.
    """

    kind: Literal["input", "result", "parameter", "arena", "status"]
    bytes: Expr
    index: int = 0
    offset: Expr = 0
    shape: list[Expr] = []
    dtype: str = ""


class Command(Struct, frozen=True):
    """One dispatch of `kernel` over tasks `[0, tasks)`, or a copy of a whole buffer to another.

    A dispatch receives the addresses of `buffers` and the values of `sizes`; its first `reads` buffers are only read,
    the others are written, and possibly read. `after` lists commands that must have finished before this one begins;
    other dependences follow from these. Reuse of memory counts as a dependence.

    For devices that order work by streams, `stream` is the stream of this command, and `waits` are the commands of
    other streams that it waits for. A stream runs its commands in the order of the schedule; `stream` and `waits` alone
    imply all of `after`. If all commands are on stream 0, they run in that order.

    `seconds` is a rough estimate of the duration on one thread of a processor; 0 if the compiler has none. `source` has
    the names in the source of what the command computes, `conv2 + bn2 + relu`; it is informative. Kernels that compute
    the same share their code, so that a name belongs to a command, not to a kernel.
    """

    op: Literal["dispatch", "copy"]
    buffers: list[int]
    kernel: str = ""
    tasks: Expr = 1
    sizes: list[Expr] = []
    after: list[int] = []
    reads: int = 0
    stream: int = 0
    waits: list[int] = []
    seconds: float = 0.0
    source: str = ""


class Trial(Struct, frozen=True):
    """A schedule measured when compiling: the seconds of the fastest and of the median call, its arena, and whether it
    was chosen."""

    name: str
    seconds: float
    median: float
    arena: Expr = 0
    chosen: bool = False


class Schedule(Struct, frozen=True):
    """How one function runs on one variant. `scratch` is bytes per thread, `arena` bytes per invocation.

    `least` and `serial` are informative: the largest number of arena bytes in use at once if commands run serially,
    which is a lower bound, and the size of the arena planned for serial execution. The arena is larger than `serial` if
    commands may run at once. `trials` are the schedules that were measured, if requested, and `tried_on` is the device.
    `checks` are, for each status, the messages of the checks that may fail in a call, such as an index out of bounds; a
    non-zero status begins with the number of one of them, from 1.
    """

    buffers: list[ScheduleBuffer]
    commands: list[Command]
    arena: Expr = 0
    scratch: int = 0
    least: int | None = None
    serial: int | None = None
    trials: list[Trial] = []
    tried_on: str = ""
    checks: list[list[str]] = []


class Alternative(Struct, frozen=True):
    """One way to bind a logical device: the `ordinal`-th physical device of `family` (None: the first that is free,
    else the first) or the device that another logical device, `fallback`, was bound to. `options` are for its driver,
    as in a URI: `harts=4&memory=1G`. `rank` is the process of a run over several that it belongs to, None for any."""

    family: str = ""
    ordinal: int | None = None
    fallback: str = ""
    options: str = ""
    rank: int | None = None


class LogicalDevice(Struct, frozen=True):
    """A device that the program names; its alternatives are tried in order when the artifact is loaded."""

    name: str
    alternatives: list[Alternative]

    @property
    def label(self) -> str:
        """What messages call the device: `@gpu`, or `device` if it has no name."""
        return f"@{self.name}" if self.name else "device"


class Link(Struct, frozen=True):
    """A property of two of the program's devices: whether `target` reads memory of `source` in place."""

    source: str
    target: str
    transparent_access: bool = False
    unified_memory: bool = False


class Step(Struct, frozen=True):
    """One step of a plan. `run` runs `region` on `device` with `operands`, giving `results`; `transfer` copies its one
    operand, wherever it is, to `device`; `loop` executes plans repeatedly, see `Loop`; `region` is then its name.
    Numbers are indices of the plan's values, devices are indices of the manifest's; `queues` is a mask of the device's
    queues, 0 for any. `seconds` is the compiler's estimate of its duration, if there is one. `turn` is the loop, and
    its iteration, that the step was unrolled from: its results may reuse memory of the last iteration but one that is
    no longer read.

    `send` and `receive` are in no artifact: the runtime adds them where it divides a plan among ranks. They move the
    operand to, or the result from, rank `peer`, in the message `tag`."""

    op: Literal["run", "transfer", "loop", "send", "receive"]
    device: int
    operands: list[int]
    results: list[int]
    region: str = ""
    queues: int = 0
    seconds: float | None = None
    turn: tuple[int, int] | None = None
    loop: Loop | None = None
    peer: int = 0
    tag: int = 0


class Loop(Struct, frozen=True):
    """The loop of a step, whose number of iterations is only known in a call. Its first `carried` operands are the
    initial values of the first iteration; the others are loop-invariant.

    Before each iteration the plan `condition` is executed. Its inputs are the carried values and the invariant
    operands; its results are an `i1` of rank 0, and the values that it passes on. While the `i1` is true, the plan
    `body` is executed. Its inputs are the values passed on and the invariant operands; its results are the carried
    values of the next iteration. The results of the step are the values that the condition passed on last. `device` of
    the step is the one that the condition is computed on.
    """

    carried: int
    condition: Plan
    body: Plan


class Plan(Struct, frozen=True):
    """How a function runs on several devices: steps over `values` values, each written by one step or an input.

    Steps are in a valid order of execution; a step depends on the values that it reads. `inputs` and `results` are the
    values of the function's arguments and results; `input_devices` and `result_devices` are the devices on which the
    program expects them: a result whose device uses host memory is returned as an array. `seconds` is the compiler's
    estimate of the duration of a call, with devices working concurrently, if there is one.
    """

    values: int
    inputs: list[int]
    results: list[int]
    input_devices: list[int]
    result_devices: list[int]
    steps: list[Step]
    seconds: float | None = None


class KernelInfo(Struct, frozen=True):
    """Information that `inspect` shows of a kernel; it is not needed to run it. For kernels on the generic path,
    `steps` is an estimate of the operations that they run one after the other, and `place` names the operator in the
    source with the most of them. `names` are the names in the source of what it computes, one for each part of the
    program that it computes."""

    name: str
    kind: str
    flops: int = 0
    bytes: int = 0
    source: str = ""  # the operations in the source that it was compiled from
    steps: int = 0
    place: str = ""
    names: list[str] = []


class Variant(Struct, frozen=True):
    """Code and schedules for one target of one family. Variants are in order of preference."""

    family: str
    target: str
    triple: str
    features: list[str]  # required features of the processor, in LLVM's spelling: `avx512f`, `fma`, …
    objects: list[str]  # members of the archive, relocatable objects; symbols are shared between them
    schedules: dict[str, Schedule]
    kernels: list[KernelInfo] = []


class Parameter(Struct, frozen=True):
    """A constant tensor: `key` in the parameter file, its dtype (`u8` for packed ones) and shape."""

    key: str
    dtype: str
    shape: list[int]


class Member(Struct, frozen=True):
    sha256: str
    size: int
    piece: int = 0  # the size of the pieces in which a longer member is hashed: see `hashes.py`


class Manifest(Struct, frozen=True):
    schema: int
    producer: str
    functions: list[Signature]
    variants: list[Variant]
    parameters: list[Parameter]
    members: dict[str, Member]
    devices: list[LogicalDevice] = []  # empty: one unnamed device, of any family that has a variant
    default_device: int = 0
    links: list[Link] = []
    plans: dict[str, Plan] = {}  # of functions that run on several devices; their `variants` have the regions' code
    regions: dict[str, Signature] = {}  # the regions of plans
    external_parameters: str | None = None  # name of a file next to the artifact, with its hash in `members`
