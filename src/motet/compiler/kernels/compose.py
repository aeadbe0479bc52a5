"""Inlines element-wise stages of a kernel into the stages that read them.

    v2[i,j] = exp(v0[i,j])            v3[i] += exp(v0[i,j])
    v3[i]  += v2[i,j]             →

A stage is inlined if its only output is a temporary, all its dimensions are parallel, and no arithmetic is repeated:
it has one reader whose access visits each element once, or its body is a copy, or a few integers computed of places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from motet.compiler.ir.affine import compose_maps, identity_map
from motet.compiler.kernels.identities import simplified
from motet.compiler.kernels.kernel import Access, Kernel, Scalar, Stage
from motet.compiler.kernels.overwritten import without_overwritten

_FEW = 6  # operations that are computed again
_INTEGERS = (
    "linalg.index", "arith.constant", "arith.index_cast", "arith.trunci", "arith.extsi", "arith.extui", "arith.addi",
    "arith.subi", "arith.muli",
)


def compose(kernel: Kernel) -> Kernel:
    """The same computation in as few stages as inlining allows, without unused temporaries."""
    kernel = _without_unread_outputs(kernel)
    changed = True
    while changed:
        changed = False
        for index, stage in enumerate(kernel.stages):
            reader = _only_reader(kernel, index)
            if reader is None or stage.written or kernel.stages[reader].written:
                continue  # a schedule of the program is for the operation's own loops and operands
            merged = _inline(stage, kernel.stages[reader])
            if merged is None:
                continue
            stages = [merged if i == reader else s for i, s in enumerate(kernel.stages) if i != index]
            kernel = replace(kernel, stages=tuple(stages))
            changed = True
            break
    kernel = simplified(_without_unused(without_overwritten(kernel)))
    if any(_is_contraction(stage) or stage.written for stage in kernel.stages):
        return kernel
    return _without_unit_dimensions(kernel)


def _only_reader(kernel: Kernel, index: int) -> int | None:
    """The only stage that reads the output of stage `index`; None if inlining is not allowed."""
    stage = kernel.stages[index]
    if len(stage.outputs) != 1 or stage.reductions or stage.inits != (None,):
        return None
    target = stage.outputs[0]
    value = kernel.values[target.value]
    if value.role != "temporary" or target.map != identity_map(value.rank):
        return None
    writers = [s for s in kernel.stages if any(o.value == target.value for o in s.outputs)]
    if len(writers) != 1:
        return None
    readers: list[int] = []
    for i, other in enumerate(kernel.stages):
        if any(isinstance(init, Access) and init.value == target.value for init in other.inits):
            return None if other.reductions and stage.body else (i if not readers else None)
        if any(access.value == target.value for access in other.inputs):
            readers.append(i)
    if len(readers) != 1:
        return None
    between = kernel.stages[index + 1 : readers[0]]
    read = {access.value for access in stage.inputs}
    if any(output.value in read for s in between for output in s.outputs):
        return None
    return readers[0]


def _inline(stage: Stage, reader: Stage) -> Stage | None:
    target = stage.outputs[0].value
    uses = [access for access in reader.inputs if access.value == target]
    init_uses = [init for init in reader.inits if isinstance(init, Access) and init.value == target]
    if init_uses:
        return _inline_init(stage, reader, target) if not uses else None
    if len(uses) != 1:
        return None
    access = uses[0]
    place = not stage.inputs and (not stage.sizes or costs_nothing([scalar.op for scalar in stage.body]))
    if stage.body and not place and not _visits_once(access, reader):
        return None
    if stage.body and _is_contraction(reader):
        return None
    if access.padding is not None or access in tables(reader):
        return None
    if any(s.op == "linalg.index" and access.map[int(s.value or 0)].single is None for s in stage.body):
        return None
    return _merge(stage, reader, access)


def costs_nothing(operations: Sequence[str]) -> bool:
    """Whether a body of these `operations`, which reads no tensor, may be computed again for each reader's point."""
    return len(operations) <= _FEW and all(name in _INTEGERS for name in operations)


def tables(stage: Stage) -> list[Access]:
    """The inputs of `stage` that stand for whole tensors (`tensor.extract`)."""
    return [stage.inputs[scalar.operands[0]] for scalar in stage.body if scalar.op == "tensor.extract"]


def _inline_init(stage: Stage, reader: Stage, target: int) -> Stage | None:
    """Inline a copy that initialises an accumulator: the accumulator then starts from the copy's source."""
    if stage.body or len(stage.inputs) != 1:
        return None
    inits = tuple(
        replace(stage.inputs[0], map=compose_maps(stage.inputs[0].map, init.map))
        if isinstance(init, Access) and init.value == target
        else init
        for init in reader.inits
    )
    return replace(reader, inits=inits)


def _visits_once(access: Access, reader: Stage) -> bool:
    singles = [e.single for e in access.map]
    seen = {s for s in singles if s is not None}
    return all(i in seen or size == 1 for i, size in enumerate(reader.sizes))


def _is_contraction(stage: Stage) -> bool:
    return bool(stage.reductions) and len(stage.inputs) >= 2


def _merge(stage: Stage, reader: Stage, access: Access) -> Stage:
    whole = access.map == identity_map(len(access.map))
    moved = [a if whole else replace(a, map=compose_maps(a.map, access.map)) for a in stage.inputs]
    inputs = [a for a in reader.inputs if a != access]
    for a in moved:
        if a not in inputs:
            inputs.append(a)
    first = len(inputs) + len(reader.outputs)
    body: list[Scalar] = []
    # the inlined body
    inner = [inputs.index(a) for a in moved] + [-1]  # the stage's own output is never read
    for scalar in stage.body:
        value = scalar.value
        if scalar.op == "linalg.index":
            value = access.map[int(value or 0)].single
        body.append(_moved(scalar, inner, value))
        inner.append(first + len(body) - 1)
    yielded = inner[stage.yields[0]]
    # the reader's body, with uses of the temporary replaced by what the inlined body yields
    outer = [yielded if a == access else inputs.index(a) for a in reader.inputs]
    outer += [len(inputs) + k for k in range(len(reader.outputs))]
    for scalar in reader.body:
        body.append(_moved(scalar, outer, scalar.value))
        outer.append(first + len(body) - 1)
    return replace(
        reader, inputs=tuple(inputs), body=tuple(body), yields=tuple(outer[y] for y in reader.yields),
        source=f"{stage.source}; {reader.source}",
    )


def _moved(scalar: Scalar, places: Sequence[int], value: float | int | None) -> Scalar:
    """`scalar` with its operands at their new `places`. Most stay where they are when long chains are inlined."""
    operands = tuple(places[operand] for operand in scalar.operands)
    if operands == scalar.operands and value is scalar.value:
        return scalar
    return replace(scalar, operands=operands, value=value)


def _without_unit_dimensions(kernel: Kernel) -> Kernel:
    """Remove loops of one iteration and temporaries' axes of extent 1, so that `1x128x1` and `128` are the same space.
    An axis that is read beyond its only element, for padding, is kept."""
    whole = {access.value for stage in kernel.stages for access in tables(stage)}
    beyond = {
        (access.value, axis)
        for stage in kernel.stages
        for access in (*stage.inputs, *(init for init in stage.inits if isinstance(init, Access)))
        if access.padding is not None
        for axis, entry in enumerate(access.map)
        if entry.constant or any(stage.sizes[d] != 1 for d in entry.dims)
    }
    kept_axes = [
        [
            axis for axis, size in enumerate(value.shape)
            if size != 1 or value.role != "temporary" or number in whole or (number, axis) in beyond
        ]
        for number, value in enumerate(kernel.values)
    ]
    values = tuple(
        replace(value, shape=tuple(value.shape[axis] for axis in axes), order=tuple(range(len(axes))))
        if value.role == "temporary"
        else value
        for value, axes in zip(kernel.values, kept_axes, strict=True)
    )

    def squeeze(access: Access, dims: list[int]) -> Access:
        where = {old: new for new, old in enumerate(dims)}
        return replace(access, map=tuple(access.map[axis].renumber(where) for axis in kept_axes[access.value]))

    stages: list[Stage] = []
    for stage in kernel.stages:
        indexed = {scalar.value for scalar in stage.body if scalar.op == "linalg.index"}
        dims = [d for d, size in enumerate(stage.sizes) if size != 1 or d in indexed]
        body = tuple(
            replace(scalar, value=dims.index(int(scalar.value or 0))) if scalar.op == "linalg.index" else scalar
            for scalar in stage.body
        )
        stages.append(
            replace(
                stage, sizes=tuple(stage.sizes[d] for d in dims), iterators=tuple(stage.iterators[d] for d in dims),
                inputs=tuple(squeeze(a, dims) for a in stage.inputs), body=body,
                outputs=tuple(squeeze(a, dims) for a in stage.outputs),
                inits=tuple(squeeze(i, dims) if isinstance(i, Access) else i for i in stage.inits),
            )
        )
    return replace(kernel, values=values, stages=tuple(stages))


def _without_unread_outputs(kernel: Kernel) -> Kernel:
    """Remove outputs without readers from stages, such as the indices of a maximum if only its value is used."""
    read = {access.value for stage in kernel.stages for access in stage.inputs}
    read |= {init.value for stage in kernel.stages for init in stage.inits if isinstance(init, Access)}
    read |= {i for i, value in enumerate(kernel.values) if value.role == "result"}
    stages = []
    for stage in kernel.stages:
        kept = [k for k, output in enumerate(stage.outputs) if output.value in read]
        stages.append(stage if len(kept) == len(stage.outputs) else _keep_outputs(stage, kept))
    return replace(kernel, stages=tuple(stage for stage in stages if stage.outputs))


def _keep_outputs(stage: Stage, kept: list[int]) -> Stage:
    inputs, outputs = len(stage.inputs), len(stage.outputs)
    needed: set[int] = set()
    stack = [stage.yields[k] for k in kept]
    while stack:
        index = stack.pop()
        if index not in needed:
            needed.add(index)
            if index >= inputs + outputs:
                stack.extend(stage.body[index - inputs - outputs].operands)
    if any(inputs <= index < inputs + outputs and index - inputs not in kept for index in needed):
        return stage  # a kept output depends on a removed one
    number = {index: index for index in range(inputs)}
    number |= {inputs + k: inputs + position for position, k in enumerate(kept)}
    body: list[Scalar] = []
    for position, scalar in enumerate(stage.body):
        index = inputs + outputs + position
        if index in needed:
            number[index] = inputs + len(kept) + len(body)
            body.append(replace(scalar, operands=tuple(number[o] for o in scalar.operands)))
    return replace(
        stage, outputs=tuple(stage.outputs[k] for k in kept), inits=tuple(stage.inits[k] for k in kept),
        body=tuple(body), yields=tuple(number[stage.yields[k]] for k in kept),
    )


def _without_unused(kernel: Kernel) -> Kernel:
    used = {access.value for stage in kernel.stages for access in (*stage.inputs, *stage.outputs)}
    used |= {init.value for stage in kernel.stages for init in stage.inits if isinstance(init, Access)}
    kept = [i for i, value in enumerate(kernel.values) if value.role != "temporary" or i in used]
    number = {old: new for new, old in enumerate(kept)}

    def move(access: Access) -> Access:
        return replace(access, value=number[access.value])

    stages = tuple(
        replace(
            stage,
            inputs=tuple(map(move, stage.inputs)),
            outputs=tuple(map(move, stage.outputs)),
            inits=tuple(move(init) if isinstance(init, Access) else init for init in stage.inits),
        )
        for stage in kernel.stages
    )
    return replace(kernel, values=tuple(kernel.values[i] for i in kept), stages=stages)
