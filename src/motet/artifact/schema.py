"""What `manifest.json` of an artifact holds, as types; reading validates against them.

Sizes that are not known until run time are expressions over *symbols*, the dynamic extents of a
function's inputs. An expression is an integer, the name of a symbol, or `[operator, left, right]`
with operator one of `+ - * // ceildiv max min`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Union

import msgspec

SCHEMA_VERSION = 3
STATUS_BYTES = 32  # of what a kernel says of a check that failed: its number, an index, an extent, one word more

if TYPE_CHECKING:
    Expr = Union[int, str, list["Expr"]]  # noqa: UP007 - a recursive alias needs the quoted form
else:
    Expr = int | str | list[Any]  # msgspec takes no recursive alias; `validation.py` checks what is inside


class Struct(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class ExtentValue(Struct, frozen=True):
    """What decides an extent in a call, for `operator`: element `index` of the one result of `function`."""

    function: str
    index: int
    operator: str = ""


class TensorSpec(Struct, frozen=True):
    """One input or result of a function. `dtype` is MLIR's spelling (`f32`, `bf16`, `i64`, `i1`, …). `strided` inputs
    are tensors with strides of their own, also where they are written: what a memref's layout says. An input with a
    `value` is not the caller's: it has no elements, and its first extent is that value, which a function computes that
    takes the inputs before those of its own. An input or result that is a `state`, the one of this name, is not the
    caller's either: a session keeps it from call to call (`states.py`)."""

    name: str
    shape: list[Expr]
    dtype: str
    destination: int | None = None  # of a result: the input it is written to, in place
    strided: bool = False
    value: ExtentValue | None = None
    state: str | None = None


class Symbol(Struct, frozen=True):
    """A dynamic extent: axis `axis` of input `input` gives `name` its value."""

    name: str
    input: int
    axis: int


class Constraint(Struct, frozen=True):
    """What a call's extents must fulfil, such as those that one loop walks together.

    `left` and `right` are `relation`: `equal`; `at-most` (left ≤ right); `multiple` (left is divisible by right);
    `stretch` (left is right, or 1); `broadcast` (equal, or one of them is 1). `text` is the sentence of the error,
    which names the operator as the source does; the two numbers follow it. Without it, the expressions are shown.
    """

    left: Expr
    right: Expr
    relation: Literal["equal", "at-most", "multiple", "stretch", "broadcast"] = "equal"
    text: str = ""


class Signature(Struct, frozen=True):
    name: str
    inputs: list[TensorSpec]
    results: list[TensorSpec]
    symbols: list[Symbol] = []
    constraints: list[Constraint] = []


class ScheduleBuffer(Struct, frozen=True):
    """Memory that commands refer to by its index in the schedule.

    `index` names the input, result or parameter; `offset` places it in its base (the arena, or the
    parameter file's tensor). A status is `STATUS_BYTES` bytes, zero before the call, where commands say which of the
    schedule's `checks[index]` failed. `bytes` is its size. Of an intermediate tensor, `shape` and `dtype` are for
    people: nothing needs them to run.
    """

    kind: Literal["input", "result", "parameter", "arena", "status"]
    bytes: Expr
    index: int = 0
    offset: Expr = 0
    shape: list[Expr] = []
    dtype: str = ""


class Command(Struct, frozen=True):
    """One dispatch of `kernel` over tasks `[0, tasks)`, or a copy of a whole buffer to another.

    A dispatch gets the addresses of `buffers` and the values of `sizes`; of a dispatch the first `reads` buffers are
    only read, the others written, and maybe read. `after` lists the commands that must have finished before this one
    begins, or enough of them: others follow, and memory that is used anew is among the reasons.

    For devices that order work by streams, `stream` is the one that this command is on, and `waits` are those of
    other streams that it has to wait for. A stream runs its commands in the order of the schedule; `stream` and
    `waits` alone imply all of `after`. Where all are on stream 0 that order is all there is.

    `seconds` is how long one thread of a processor may take, roughly; 0 where the compiler cannot tell.
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


class Trial(Struct, frozen=True):
    """A schedule that was tried when compiling: the seconds of the fastest call and of the median, its arena, and
    whether it is the one that was taken."""

    name: str
    seconds: float
    median: float
    arena: Expr = 0
    chosen: bool = False


class Schedule(Struct, frozen=True):
    """How one function runs on one variant. `scratch` is bytes per thread, `arena` bytes per invocation.

    `least` and `serial` are for people: the most bytes of the arena that are in use at once where one command runs
    after the other, which no plan can go below, and the arena that is planned for just that. The arena is larger than
    `serial` where commands may run at once. `trials` are the schedules that were measured, where the compiler was asked
    to, and `tried_on` says on which device. `checks` are, for each status, the texts of what may fail in a call, as an
    index outside of a tensor; a status that is not zero begins with the number of one of them, from 1.
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
    """One way to fill a logical device: the `ordinal`-th physical device of `family` (None: the first that is free,
    else the first) or the device that another logical device, `fallback`, was filled with. `options` are for its
    driver, as in a URI: `harts=4&memory=1G`."""

    family: str = ""
    ordinal: int | None = None
    fallback: str = ""
    options: str = ""


class LogicalDevice(Struct, frozen=True):
    """A device that the program names; its alternatives are tried in order when the artifact is loaded."""

    name: str
    alternatives: list[Alternative]


class Link(Struct, frozen=True):
    """What the program says of two of its devices: whether `target` reads what lies on `source` in place."""

    source: str
    target: str
    transparent_access: bool = False
    unified_memory: bool = False


class Step(Struct, frozen=True):
    """One step of a plan. `run` runs `region` on `device` with `operands`, giving `results`; `transfer` gives the
    one operand, wherever it is, as the one result on `device`; `loop` executes plans again and again, see `Loop`;
    `region` is its name then.
    Numbers are indices of the plan's values, devices indices of the manifest's; `queues` is a mask of the device's
    queues, 0 for any. `seconds` is how long the
    compiler thinks that it takes, where it can tell. `turn` are the loop, and the turn of it, that the step was taken
    out of: what it makes may lie where the turn before the last one has made what nobody reads any more."""

    op: Literal["run", "transfer", "loop"]
    device: int
    operands: list[int]
    results: list[int]
    region: str = ""
    queues: int = 0
    seconds: float | None = None
    turn: tuple[int, int] | None = None
    loop: Loop | None = None


class Loop(Struct, frozen=True):
    """The loop of a step, whose number of iterations a call decides. Its first `carried` operands are the values that
    the first iteration begins with; the others are the same in all iterations.

    Before each iteration the plan `condition` is executed. Its inputs are the carried values and the operands that do
    not change; its results are an `i1` without extents, and the values that it passes on. While the `i1` is true, the
    plan `body` is executed. Its inputs are the values passed on and the operands that do not change; its results are
    the carried values of the next iteration. The results of the step are what the condition passed on last. `device`
    of the step is the one that the condition is computed on.
    """

    carried: int
    condition: Plan
    body: Plan


class Plan(Struct, frozen=True):
    """How a function runs on several devices: steps over `values` values, each written by one step or an input.

    Steps stand in an order in which they can run; what a step needs is what it reads. `inputs` and `results` are
    the values of the function's arguments and results; `input_devices` and `result_devices` say where the program
    wants them: a result whose device is host memory comes back as an array. `seconds` is how long the compiler thinks
    that a call takes, devices working at the same time, where it can tell.
    """

    values: int
    inputs: list[int]
    results: list[int]
    input_devices: list[int]
    result_devices: list[int]
    steps: list[Step]
    seconds: float | None = None


class KernelInfo(Struct, frozen=True):
    """What `inspect` shows of a kernel; nothing here is needed to run it."""

    name: str
    kind: str
    flops: int = 0
    bytes: int = 0
    source: str = ""  # the operations it was made of


class Variant(Struct, frozen=True):
    """Code and schedules for one target of one family. Variants stand in order of preference."""

    family: str
    target: str
    triple: str
    features: list[str]  # what the processor must have, in LLVM's spelling: `avx512f`, `fma`, …
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
    piece: int = 0  # bytes that are hashed by themselves, of members longer than that: see `hashes.py`


class Manifest(Struct, frozen=True):
    schema: int
    producer: str
    functions: list[Signature]
    variants: list[Variant]
    parameters: list[Parameter]
    members: dict[str, Member]
    devices: list[LogicalDevice] = []  # none: one device without a name, of any family that has a variant
    default_device: int = 0
    links: list[Link] = []
    plans: dict[str, Plan] = {}  # of functions that are not one schedule; their `variants` have their regions'
    regions: dict[str, Signature] = {}  # what plans run, as functions of their own
    external_parameters: str | None = None  # file name beside the artifact, with its hash in `members`
