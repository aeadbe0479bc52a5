"""Writes StableHLO's scatters, with any dimension numbers, as scatters of rows of a matrix.

    stablehlo.scatter %x, %i, %u { %a + %b }     →   %rows = reshape %x               leading dimensions × a row
                                                     %k = ‥ the row that each update is for, as computed from %i ‥
                                                     tm_tensor.scatter ins(%u, %k) outs(%rows) { %a + %b }

A row consists of the last dimensions that updates cover fully. An update out of bounds gets the index one past the last
row, which drops it; such scatters are marked, because this is not an error here. Bodies become scalar operations with
the rest of the program; until then they are functions.

A sum of complex numbers is one of rows of their parts. Other bodies on complex numbers are the body of a loop over the
updates.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from motet.compiler.frontends.locations import locate
from motet.compiler.frontends.stablehlo.writing import StablehloText, V, dimensions, tensor_type
from motet.compiler.ir._mlir import func, ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.program import DROPS
from motet.errors import CompileError

_BODY = "motet.body"
_PARTWISE = {"stablehlo.add", "stablehlo.subtract", "stablehlo.negate"}  # what they do to each part of a complex number


def flatten_scatters(module: ir.Module) -> None:
    """Rewrites each `stablehlo.scatter` in place; `fill_bodies` completes the result."""
    for op in find_operations(module, "stablehlo.scatter"):
        _Scatter(module, op).write()


def fill_bodies(module: ir.Module) -> None:
    """Gives scatters their bodies, which have been lowered to scalar operations."""
    functions = {entry.name.value: entry for entry in module.body.operations if isinstance(entry, func.FuncOp)}
    for op in find_operations(module, "tm_tensor.scatter"):
        if _BODY not in op.attributes:
            continue
        function = functions[ir.FlatSymbolRefAttr(op.attributes[_BODY]).value]
        maps = [e.operation for e in function.regions[0].blocks[0].operations if e.operation.name.startswith("linalg.")]
        source = maps[0].regions[0].blocks[0]
        block = op.regions[0].blocks[0]
        for entry in list(block.operations):
            entry.operation.erase()
        # The function's arguments are the old value, then the update.
        for argument, value in zip(list(source.arguments)[:2], reversed(list(block.arguments)), strict=True):
            argument.replace_all_uses_with(value)
        *scalars, last = [entry.operation for entry in source.operations]
        with ir.InsertionPoint(block):
            end = ir.Operation.create("tm_tensor.yield", operands=list(last.operands), loc=op.location)
        for scalar in scalars:
            scalar.move_before(end)
        del op.attributes[_BODY]
        function.operation.erase()


@dataclass
class _DimensionNumbers:
    """StableHLO's dimension numbers; `rows` are the dimensions of the tensor that form a row."""

    window: list[int]
    inserted: list[int]
    batch: list[int]
    index_batch: list[int]
    indexed: list[int]
    vector: int
    rows: list[int]


class _Scatter:
    def __init__(self, module: ir.Module, op: ir.Operation) -> None:
        self.module, self.op = module, op
        self.count = len(op.results)
        self.w = StablehloText(op)
        self.loops: list[int] = []  # the results of loops
        said = op.attributes["scatter_dimension_numbers"]
        names = ("update_window_dims", "inserted_window_dims", "input_batching_dims", "scatter_indices_batching_dims")
        window, inserted, batch, index_batch = (dimensions(said, name) for name in names)
        indexed = dimensions(said, "scatter_dims_to_operand_dims")
        vector = str(said).partition("index_vector_dim = ")[2].split(",")[0].rstrip("> ")
        self.shape = self.w.operands[0].shape
        self.updates = self.w.operands[self.count + 1].shape
        # Zero numbers are not printed.
        self.n = _DimensionNumbers(window, inserted, batch, index_batch, indexed, int(vector or 0), [])
        self.windowed = [d for d in range(len(self.shape)) if d not in (*self.n.inserted, *self.n.batch)]
        self.sizes = dict(zip(self.windowed, (self.updates[d] for d in sorted(self.n.window)), strict=True))
        for d in reversed(range(len(self.shape))):
            if d in self.n.indexed or self.sizes.get(d) != self.shape[d]:
                break
            self.n.rows.insert(0, d)

    def write(self) -> None:
        w, n = self.w, self.n
        if not prod(self.updates) or not prod(self.shape):
            w.replace(w.operands[: self.count])
            return
        row = prod(self.shape[d] for d in n.rows)
        rows = prod(self.shape) // row
        places = w.reshape(self._places(rows), (prod(self.updates) // row, 1))
        if self.count > 1:
            self._require_separate()
        results: list[V] = []
        for number in range(self.count):
            old = w.operands[number]
            update = self._ordered(w.operands[self.count + 1 + number], row)
            result = self._scattered(number, update, places, w.reshape(old, (rows, row)))
            results.append(w.reshape(result, old.shape))
        w.replace(results, self._fill_loops)

    def _ordered(self, update: V, row: int) -> V:
        """The updates as rows: one for each index and each position in its window."""
        scattered = [d for d in range(len(update.shape)) if d not in self.n.window]
        moved = self.w.transpose(update, [*scattered, *sorted(self.n.window)])
        return self.w.reshape(moved, (prod(update.shape) // row, row))

    def _places(self, rows: int) -> V:
        """The row of each index and position in its window, or the number of rows if it is out of bounds."""
        w, n = self.w, self.n
        starts, count = self._starts()
        inner = [d for d in self.windowed if d not in n.rows]
        shape = (count, *(self.sizes[d] for d in inner))
        place, inside = w.constant(0, shape, "i64"), w.constant("true", shape, "i1")
        stride = 1
        for d in reversed(range(len(self.shape) - len(n.rows))):
            index = w.constant(0, shape, "i64")
            if d in starts:
                index = w.broadcast(starts[d], shape, [0])
            if d in inner:
                index = w.binary("add", index, w.iota(shape, "i64", 1 + inner.index(d)))
            if d in starts:
                low = w.compare("GE", index, w.constant(0, shape, "i64"))
                high = w.compare("LT", index, w.constant(self.shape[d], shape, "i64"))
                inside = w.binary("and", inside, w.binary("and", low, high))
            place = w.binary("add", place, w.binary("multiply", index, w.constant(stride, shape, "i64")))
            stride *= self.shape[d]
        return w.select(inside, place, w.constant(rows, shape, "i64"))

    def _starts(self) -> tuple[dict[int, V], int]:
        """The starts of the windows of all indices, by dimension of the tensor, and their number."""
        w, n = self.w, self.n
        indices = w.operands[self.count]
        if n.vector == len(indices.shape):
            indices = w.reshape(indices, (*indices.shape, 1))
        others = [d for d in range(len(indices.shape)) if d != n.vector]
        scattered = [indices.shape[d] for d in others]
        count = prod(scattered)
        wide = w.convert(indices, "i64")
        if indices.element == "ui64":  # numbers beyond i64 are out of bounds as well
            wide = w.like(indices, "i64")
        matrix = w.reshape(w.transpose(wide, [*others, n.vector]), (count, indices.shape[n.vector]))
        starts: dict[int, V] = {}
        for position, d in enumerate(n.indexed):
            starts[d] = w.reshape(w.along(matrix, 1, position, position + 1), (count,))
        for d, axis in zip(n.batch, n.index_batch, strict=True):
            starts[d] = w.flat(w.iota(scattered, "i64", others.index(axis)))
        return starts, count

    def _scattered(self, number: int, update: V, places: V, matrix: V) -> V:
        """The rows `matrix`, those at `places` combined with `update` by the body of result `number`."""
        w, element = self.w, matrix.element
        body = {operation.name for operation in _needed(self._last.operands[number])}
        if not element.startswith("complex") or not body:
            made = self._emit(self._body(number, element), w.signless(update), places, w.signless(matrix))
            return w.like(made, element)
        if not body <= _PARTWISE:
            return self._loop(number, update, places, matrix)
        real = element[len("complex<") : -1]
        update, wide = (self._in_parts(value, real) for value in (update, matrix))
        made = w.reshape(self._emit(self._body(number, real), update, places, wide), (*matrix.shape, 2))
        x, y = (w.reshape(w.along(made, 2, at, at + 1), matrix.shape) for at in (0, 1))
        return w.line(f"stablehlo.complex {x.name}, {y.name} : {matrix.kind}", matrix.shape, element)

    def _in_parts(self, rows: V, real: str) -> V:
        """Rows of complex numbers as rows of twice as many real ones."""
        w = self.w
        parts = [w.reshape(w.unary(part, rows, real), (*rows.shape, 1)) for part in ("real", "imag")]
        return w.reshape(w.concatenate(parts, 2), (rows.shape[0], 2 * rows.shape[1]))

    def _loop(self, number: int, update: V, places: V, matrix: V) -> V:
        """The updates applied one after the other; `_fill_loops` completes the body."""
        self.loops.append(number)
        row, scalar = tensor_type((1, matrix.shape[1]), matrix.element), tensor_type((), matrix.element)
        zero, one = (self.w.line(f"arith.constant {n} : index", (), "index").name for n in (0, 1))
        count, rows, length = (
            self.w.line(f"tensor.dim {value.name}, {axis} : {value.kind}", (), "index").name
            for value, axis in ((places, zero), (matrix, zero), (matrix, one))
        )
        sizes = f"[1, {matrix.shape[1] if matrix.shape[1] >= 0 else length}] [1, 1]"
        text = f"""scf.for %k = {zero} to {count} step {one} iter_args(%m = {matrix.name}) -> ({matrix.kind}) {{
            %word = tensor.extract {places.name}[%k, {zero}] : {places.kind}
            %place = arith.index_cast %word : i64 to index
            %inside = arith.cmpi slt, %place, {rows} : index
            %next = scf.if %inside -> ({matrix.kind}) {{
              %old = tensor.extract_slice %m[%place, 0] {sizes} : {matrix.kind} to {row}
              %new = tensor.extract_slice {update.name}[%k, 0] {sizes} : {update.kind} to {row}
              %both = "stablehlo.map"(%old, %new) <{{dimensions = array<i64: 0, 1>}}> ({{
              ^bb0(%a: {scalar}, %b: {scalar}):
                stablehlo.return %a : {scalar}
              }}) : ({row}, {row}) -> {row}
              %made = tensor.insert_slice %both into %m[%place, 0] {sizes} : {row} into {matrix.kind}
              scf.yield %made : {matrix.kind}
            }} else {{
              scf.yield %m : {matrix.kind}
            }}
            scf.yield %next : {matrix.kind}
          }}"""
        return self.w.line(text, matrix.shape, matrix.element)

    def _fill_loops(self, written: list[ir.Operation]) -> None:
        maps = [found for loop in written if loop.name == "scf.for" for found in find_operations(loop, "stablehlo.map")]
        for number, found in zip(self.loops, maps, strict=True):
            self._copy(found.regions[0].blocks[0], number)

    def _body(self, number: int, element: str) -> str:
        """The name of a function of two numbers of type `element`, which computes result `number` of the body."""
        one = tensor_type((1,), element)
        name = f"motet_body_{sum(1 for _ in self.module.body.operations)}"
        scalar = tensor_type((), element)
        text = (
            f"func.func private @{name}(%old: {one}, %new: {one}) -> {one} {{\n"
            f'%0 = "stablehlo.map"(%old, %new) <{{dimensions = array<i64: 0>}}> ({{\n'
            f"^bb0(%a: {scalar}, %b: {scalar}):\n  stablehlo.return %a : {scalar}\n}}) : ({one}, {one}) -> {one}\n"
            f"return %0 : {one}\n}}"
        )
        module = ir.Module.parse(text, self.op.context)
        parsed = module.body.operations[0]
        self._copy(parsed.regions[0].blocks[0].operations[0].regions[0].blocks[0], number)
        self.module.body.append(parsed)
        return name

    def _copy(self, target: ir.Block, number: int) -> None:
        """Copies the operations that compute result `number`, partwise ones with the type of `target`'s arguments."""
        block, last = self.op.regions[0].blocks[0], self._last
        end = target.operations[0].operation
        copies: dict[ir.Value, ir.Value] = {
            block.arguments[number]: target.arguments[0],
            block.arguments[self.count + number]: target.arguments[1],
        }
        needed = _needed(last.operands[number])
        for entry in list(block.operations)[:-1]:
            operation = entry.operation
            if operation not in needed:
                continue
            with ir.InsertionPoint(end):
                copy = operation.clone()
            for position, operand in enumerate(operation.operands):
                copy.operands[position] = copies.get(operand, operand)
            if target.arguments[0].type != block.arguments[number].type:
                copy.results[0].set_type(target.arguments[0].type)
            copies.update(zip(operation.results, copy.results, strict=True))
        end.operands[0] = copies.get(last.operands[number], last.operands[number])

    @property
    def _last(self) -> ir.Operation:
        block = self.op.regions[0].blocks[0]
        return block.operations[len(block.operations) - 1].operation

    def _require_separate(self) -> None:
        block = self.op.regions[0].blocks[0]
        for number, value in enumerate(self._last.operands):
            own = (block.arguments[number], block.arguments[self.count + number])
            used = {o for op in _needed(value) for o in op.operands} | {value}
            if any(argument in used for argument in block.arguments if argument not in own):
                raise CompileError(
                    f"stablehlo.scatter: result {number} depends on another tensor's elements; expected a body in "
                    "which each result is computed from its own two elements",
                    locate(self.op.location),
                )

    def _emit(self, body: str, update: V, places: V, matrix: V) -> V:
        kinds = f"{update.kind}, {places.kind}"
        one = update.element
        text = (
            f'"tm_tensor.scatter"({update.name}, {places.name}, {matrix.name}) <{{dimension_map = array<i64: 0>, '
            f"operandSegmentSizes = array<i32: 2, 1>, unique_indices = false}}> ({{\n"
            f'^bb0(%a: {one}, %b: {one}):\n  "tm_tensor.yield"(%a) : ({one}) -> ()\n}}) '
            f"{{{_BODY} = @{body}, {DROPS}}} : ({kinds}, {matrix.kind}) -> {matrix.kind}"
        )
        return self.w.line(text, matrix.shape, matrix.element)


def _needed(value: ir.Value) -> list[ir.Operation]:
    """The operations of a body that compute `value`."""
    found: list[ir.Operation] = []
    waiting = [value]
    while waiting:
        owner = waiting.pop().owner
        if isinstance(owner, ir.Block) or owner.operation in found:
            continue
        found.append(owner.operation)
        waiting.extend(owner.operation.operands)
    return found
