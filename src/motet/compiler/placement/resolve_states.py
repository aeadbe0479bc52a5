"""resolve-states: converts globals that functions write to arguments and results, which sessions keep between calls.

    "util.global"() {sym_name = "s", is_mutable,         func.func @f(%x, %s {motet.state = "s"})
                     initial_value = dense<0.0> …}                -> (…, tensor<4xf32> {motet.state = "s"}) {
    func.func @f(%x) -> tensor<4xf32> {                    %1 = arith.addf %s, %x
      %0 = "util.global.load"() {global = @s}      →       return %1, %1
      %1 = arith.addf %0, %x                             }
      "util.global.store"(%1) {global = @s}              func.func @motet.initial_state()
      return %1                                                   -> (tensor<4xf32> {motet.state = "s"}) {
    }                                                      return dense<0.0>

`motet.initial_state` runs the initializers in program order and returns the value of each such global. A global without
an initial value starts as zeros. Stores of initializers to other globals are merged into one function without loads,
for resolve-globals. A global that no function writes stays a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from motet.artifact.states import INITIAL_STATE
from motet.compiler.frontends.locations import locate
from motet.compiler.ir._mlir import ir, run_pipeline
from motet.compiler.ir.devices import AFFINITY, GLOBAL_OP, INITIALIZER, LOAD_OP, STORE_OP
from motet.compiler.ir.find import all_operations
from motet.compiler.ir.program import NAME, STATE
from motet.compiler.ir.short_types import SHORT_TYPES
from motet.compiler.kernels.kernel import ITEM_BITS
from motet.compiler.passes.base import ModulePass
from motet.compiler.placement.inline_calls import CALL, refuse_recursion
from motet.compiler.placement.read_devices import symbol_name
from motet.compiler.placement.resolve_globals import data_of, global_of
from motet.compiler.placement.thread_states import StateThreads, Uses, Values, argument_type, from_argument
from motet.errors import CompileError

MUTABLE = "is_mutable"
_KIND = "type"
_INITIAL = "initial_value"
_UNINITIALIZED = "#util.uninitialized"


@dataclass(frozen=True)
class ResolveStates(ModulePass):
    """Raises CompileError for a load or store of the wrong type or of an unknown global, a store to an immutable one,
    and state that is neither a tensor of static extents nor a scalar."""

    name = "resolve-states"

    def run(self, module: ir.Module) -> None:
        operations = [entry.operation for entry in module.body.operations]
        globals_ = {symbol_name(one): one for one in operations if one.name == GLOBAL_OP}
        initializers = [one for one in _functions(module) if symbol_name(one).startswith(INITIALIZER)]
        for one in globals_.values():
            _begin_with_zeros(one)
        if not initializers and not any(one.name == STORE_OP for one in all_operations(module)):
            return
        _check_names(module)
        _check_accesses(module, globals_)
        _lift_branches(module)
        refuse_recursion(module)
        functions = {symbol_name(one): one for one in _functions(module) if one not in initializers}
        uses = _uses(functions)
        states = list(dict.fromkeys(name for use in uses.values() for name in use.written))
        for name in states:
            _kind(globals_[name])
        uses = {name: _among(use, states) for name, use in uses.items()}
        _thread(functions, uses, globals_, module)
        public = any(uses[name].touched for name in functions if _is_public(functions[name]))
        _initialise(module, initializers, globals_, states if public else [], uses)


def _functions(module: ir.Module) -> list[ir.Operation]:
    return [
        entry.operation for entry in module.body.operations
        if entry.operation.name == "func.func" and len(entry.operation.regions[0].blocks)
    ]


def _is_public(function: ir.Operation) -> bool:
    return "sym_visibility" not in function.attributes


# -- globals


def _declared(one: ir.Operation) -> ir.Type | None:
    """The type of a global; None if it declares none."""
    if _KIND in one.attributes:
        return ir.TypeAttr(one.attributes[_KIND]).value
    return one.attributes[_INITIAL].type if _INITIAL in one.attributes else None


def _begin_with_zeros(one: ir.Operation) -> None:
    """Gives a mutable global without an initial value zeros."""
    value, kind = one.attributes.get(_INITIAL), _declared(one)
    if value is not None and not str(value).startswith(_UNINITIALIZED):
        return
    if MUTABLE not in one.attributes or kind is None or not _is_kept(kind):
        return
    text = str(kind.element_type if isinstance(kind, ir.RankedTensorType) else kind)
    zero = "0" if text.startswith("i") else "0.0"
    shown = f"dense<{zero}> : {kind}" if isinstance(kind, ir.RankedTensorType) else f"{zero} : {kind}"
    one.attributes[_INITIAL] = ir.Attribute.parse(shown)


def _is_kept(kind: ir.Type) -> bool:
    """Whether a session can keep values of a type: tensors of static extents, and scalars."""
    if not isinstance(kind, ir.RankedTensorType):
        return str(kind) in ITEM_BITS or isinstance(kind, ir.IndexType)
    element = str(kind.element_type)
    if element.startswith("complex"):  # the bindings cannot create complex constants
        return False
    return kind.has_static_shape and (element in ITEM_BITS or element in SHORT_TYPES)


def _kind(one: ir.Operation) -> ir.Type:
    """The type of a global that functions write. Raises CompileError."""
    kind, value = _declared(one), one.attributes.get(_INITIAL)
    what = f"{GLOBAL_OP} @{symbol_name(one)}"
    if kind is None or not _is_kept(kind):
        raise CompileError(
            f"{what}: it is {kind}, which cannot be kept between calls; expected a tensor of known extents, such as "
            "tensor<4xf32>, or a number; a complex one as its two parts", locate(one.location),
        )
    if value is not None and value.type != kind:
        raise CompileError(f"{what}: it is {kind}, its value {value.type}; expected the same", locate(one.location))
    return kind


def _check_names(module: ir.Module) -> None:
    for function in _functions(module):
        if symbol_name(function) == INITIAL_STATE:
            raise CompileError(
                f"@{INITIAL_STATE}: the name of what returns the initial values of globals; expected another name",
                locate(function.location),
            )


def _check_accesses(module: ir.Module, globals_: Mapping[str, ir.Operation]) -> None:
    for function in _functions(module):
        initializes = symbol_name(function).startswith(INITIALIZER)
        for access in all_operations(function):
            if access.name == STORE_OP or (access.name == LOAD_OP and global_of(access) in globals_):
                _check_access(access, globals_, initializes)


def _check_access(access: ir.Operation, globals_: Mapping[str, ir.Operation], initializes: bool) -> None:
    name, where = global_of(access), locate(access.location)
    if name not in globals_:
        there = ", ".join(f"@{one}" for one in globals_) or "none"
        raise CompileError(f"{access.name}: @{name} names no global; globals: {there}", where)
    found = globals_[name]
    if access.name == STORE_OP and MUTABLE not in found.attributes and not initializes:
        raise CompileError(
            f"{STORE_OP}: @{name} is immutable; expected `util.global mutable @{name}`, or the store in a "
            "util.initializer", where
        )
    kind = _declared(found)
    given = access.operands[0].type if access.name == STORE_OP else access.results[0].type
    if kind is not None and given != kind:
        verb = "stored in it" if access.name == STORE_OP else "loaded"
        raise CompileError(f"{access.name}: @{name} is {kind}; {given} is {verb}; expected {kind}", where)


# -- functions


def _lift_branches(module: ir.Module) -> None:
    """Converts branches between blocks in functions that access globals to scf.if and scf.while."""
    for function in _functions(module):
        names = {each.name for each in all_operations(function)}
        if len(list(function.regions[0].blocks)) > 1 and names & {LOAD_OP, STORE_OP, CALL}:
            run_pipeline(module, "lift-cf-to-scf")
            return


def _uses(functions: Mapping[str, ir.Operation]) -> dict[str, Uses]:
    """The globals that each function reads and writes, directly and through calls."""
    found: dict[str, Uses] = {}

    def visit(name: str) -> Uses:
        if name in found or name not in functions:
            return found.get(name, Uses())
        touched: dict[str, None] = {}
        written: dict[str, None] = {}
        for each in all_operations(functions[name]):
            if each.name in (LOAD_OP, STORE_OP):
                touched[global_of(each)] = None
            if each.name == STORE_OP:
                written[global_of(each)] = None
            if each.name == CALL:
                inner = visit(ir.FlatSymbolRefAttr(each.attributes["callee"]).value)
                touched.update(dict.fromkeys(inner.touched))
                written.update(dict.fromkeys(inner.written))
        found[name] = Uses(tuple(touched), tuple(written))
        return found[name]

    for name in functions:
        visit(name)
    return found


def _among(use: Uses, states: Sequence[str]) -> Uses:
    return Uses(tuple(name for name in states if name in use.touched),
                tuple(name for name in states if name in use.written))


def _thread(
    functions: Mapping[str, ir.Operation], uses: Mapping[str, Uses], globals_: Mapping[str, ir.Operation],
    module: ir.Module,
) -> None:
    """Adds the globals to the arguments and results of every function."""
    called = {
        ir.FlatSymbolRefAttr(each.attributes["callee"]).value for each in all_operations(module) if each.name == CALL
    }

    def none(name: str, before: ir.Operation) -> ir.Value:
        raise CompileError(f"{before.name}: @{name} has no value here", locate(before.location))

    for name, function in functions.items():
        use = uses[name]
        if not use.touched:
            continue
        blocks = list(function.regions[0].blocks)
        if len(blocks) > 1:
            raise CompileError(
                f"@{name}: it writes @{use.touched[0]} and has branches between blocks; expected scf.if, scf.for or "
                "scf.while", locate(function.location),
            )
        block, values = blocks[0], Values()
        first = block.operations[0].operation
        for state in use.touched:
            kind = _kind(globals_[state])
            values[state] = from_argument(block.add_argument(argument_type(kind), function.location), kind, first)
        threads = StateThreads(frozenset(use.touched), uses, none)
        threads.block(block, values)
        threads.append(block.operations[len(block.operations) - 1].operation, use.written, values)
        taken = [*use.touched] if name in called else _drop_unread(block, use.touched)
        _sign(function, taken, use.written, globals_)


def _drop_unread(block: ir.Block, touched: Sequence[str]) -> list[str]:
    """Erases the arguments of globals that a function writes and never reads; returns the remaining names."""
    arguments = list(block.arguments)
    first = len(arguments) - len(touched)
    taken: list[str] = []
    for number, name in reversed(list(enumerate(touched, first))):
        uses = list(arguments[number].uses)
        for use in uses:
            user = use.owner.operation
            if user.name == "arith.index_cast" and not list(user.results[0].uses):
                user.erase()
        if list(block.arguments[number].uses):
            taken.insert(0, name)
        else:
            block.erase_argument(number)
    return taken


def _sign(
    function: ir.Operation, taken: Sequence[str], returned: Sequence[str], globals_: Mapping[str, ir.Operation]
) -> None:
    """Updates the signature of a function to that of its block; marks the states of public functions."""
    block = function.regions[0].blocks[0]
    terminator = block.operations[len(block.operations) - 1].operation
    inputs, results = [one.type for one in block.arguments], [one.type for one in terminator.operands]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, results))
    for group, kinds, names in (("arg_attrs", inputs, taken), ("res_attrs", results, returned)):
        before = len(kinds) - len(names)
        own = (
            list(ir.ArrayAttr(function.attributes[group])) if group in function.attributes
            else [ir.DictAttr.get({})] * before
        )
        more = [_marks(name, globals_[name]) if _is_public(function) else ir.DictAttr.get({}) for name in names]
        if names:
            function.attributes[group] = ir.ArrayAttr.get([*own, *more])


def _marks(name: str, one: ir.Operation) -> ir.DictAttr:
    marks: dict[str, ir.Attribute] = {STATE: ir.StringAttr.get(name), NAME: ir.StringAttr.get(name)}
    if AFFINITY in one.attributes:
        marks[AFFINITY] = one.attributes[AFFINITY]
    return ir.DictAttr.get(marks)


# -- initial values


def _initialise(
    module: ir.Module, initializers: Sequence[ir.Operation], globals_: Mapping[str, ir.Operation],
    states: Sequence[str], uses: Mapping[str, Uses],
) -> None:
    """Merges all initializers into one function, and adds a function that returns the initial `states`."""
    if not initializers and not states:
        return
    merged = _function(module, f"{INITIALIZER}0")
    merged.attributes["sym_visibility"] = ir.StringAttr.get("private")
    block = merged.regions[0].blocks[0]
    end = block.operations[0].operation
    for initializer in initializers:
        for operation in [entry.operation for entry in initializer.regions[0].blocks[0].operations][:-1]:
            operation.move_before(end)
        initializer.erase()
    stored = list(dict.fromkeys(
        global_of(each) for each in all_operations(merged) if each.name == STORE_OP
    ))
    values = Values()
    first = _constants(globals_)
    threads = StateThreads(frozenset(globals_), uses, first)
    threads.block(block, values)
    for name in dict.fromkeys([*stored, *states]):
        _store(values[name] if name in values else first(name, end), name, end)
    if states:
        _return_states(merged, states, globals_, module)
    for each in [one for one in all_operations(merged) if one.name == STORE_OP and global_of(one) in states]:
        each.erase()


def _constants(globals_: Mapping[str, ir.Operation]) -> Callable[[str, ir.Operation], ir.Value]:
    """A function that creates constants from the globals' data."""
    def first(name: str, before: ir.Operation) -> ir.Value:
        found = globals_[name]
        value = data_of(found)
        attributes: dict[str, ir.Attribute] = {"value": value}
        if AFFINITY in found.attributes:
            attributes[AFFINITY] = found.attributes[AFFINITY]
        return ir.Operation.create(
            "arith.constant", results=[value.type], attributes=attributes, loc=before.location,
            ip=ir.InsertionPoint(before),
        ).results[0]

    return first


def _function(module: ir.Module, name: str) -> ir.Operation:
    """A function without arguments and results."""
    made = ir.Operation.create(
        "func.func", regions=1, attributes={
            "sym_name": ir.StringAttr.get(name), "function_type": ir.TypeAttr.get(ir.FunctionType.get([], [])),
        }, ip=ir.InsertionPoint(module.body),
    )
    block = made.regions[0].blocks.append()
    ir.Operation.create("func.return", ip=ir.InsertionPoint(block))
    return made


def _store(value: ir.Value, name: str, before: ir.Operation) -> None:
    ir.Operation.create(
        STORE_OP, operands=[value], attributes={"global": ir.FlatSymbolRefAttr.get(name)}, loc=before.location,
        ip=ir.InsertionPoint(before),
    )


def _return_states(
    merged: ir.Operation, states: Sequence[str], globals_: Mapping[str, ir.Operation], module: ir.Module
) -> None:
    initial = merged.clone(ir.InsertionPoint(module.body))
    initial.attributes["sym_name"] = ir.StringAttr.get(INITIAL_STATE)
    del initial.attributes["sym_visibility"]
    block = initial.regions[0].blocks[0]
    values = Values()
    for each in [one for one in all_operations(initial) if one.name == STORE_OP]:
        values[global_of(each)] = each.operands[0]
        each.erase()

    end = block.operations[len(block.operations) - 1].operation
    StateThreads(frozenset(), {}, _constants(globals_)).append(end, states, values)
    _sign(initial, [], states, globals_)


__all__ = ["ResolveStates"]
