"""Lowers operations among the threads of a block to shuffles, barriers and workgroup memory.

    %r = gpu.subgroup_reduce add %v        5 shuffles down, in which each lane adds the value of a higher lane, if it
                                           exists; then all lanes read lane 0
    %r = gpu.all_reduce add %v {}          the same, then the subgroups' sums through workgroup memory
    gpu.shuffle of f16, i8, f64, …         as one or two shuffles of 32 bits

Blocks may have any number of threads: lanes that do not exist are ignored.
"""

from __future__ import annotations

from motet.compiler.codegen.nvvm.body import SUBGROUP, OperationBuilder
from motet.compiler.ir._mlir import ir
from motet.compiler.ir.find import find_operations
from motet.compiler.ir.reductions import combine
from motet.compiler.ir.translate import source_location
from motet.errors import CompileError

COLLECTIVE = ("gpu.barrier", "gpu.all_reduce", "gpu.subgroup_reduce", "gpu.shuffle")


def lower_collectives(body: ir.Operation, threads: int, arguments: int) -> None:
    """Rewrite `body` in place; its argument `arguments - 1` is the thread number, below `threads`.

    Raises CompileError for combining operations without a lowering.
    """
    found = find_operations(body, *COLLECTIVE)
    thread = body.regions[0].blocks[0].arguments[arguments - 1]
    for number, operation in enumerate(found):
        lowering = _Lowering(operation, thread, threads)
        value = operation.operands[0] if len(operation.operands) else thread
        if operation.name == "gpu.subgroup_reduce":
            operation.results[0].replace_all_uses_with(lowering.subgroup(value))
        elif operation.name == "gpu.all_reduce":
            operation.results[0].replace_all_uses_with(lowering.block(value, f"motet_reduce_{number}", body))
        elif operation.name == "gpu.shuffle" and not (_is_word(value.type) and threads % SUBGROUP == 0):
            for old, new in zip(operation.results, lowering.shuffle(value), strict=True):
                old.replace_all_uses_with(new)
        else:
            continue
        operation.erase()


def _is_word(kind: ir.Type) -> bool:
    return isinstance(kind, ir.F32Type) or (isinstance(kind, ir.IntegerType) and kind.width == 32)


class _Lowering:
    def __init__(self, operation: ir.Operation, thread: ir.Value, threads: int) -> None:
        self.operation = operation
        self.build = OperationBuilder(operation)
        self.thread = thread
        self.threads = threads
        self.word = thread.type
        self.bit = ir.IntegerType.get_signless(1)

    def subgroup(self, value: ir.Value) -> ir.Value:
        named = self.operation.attributes
        width = ir.IntegerAttr(named["cluster_size"]).value if "cluster_size" in named else SUBGROUP
        if "cluster_stride" in named and ir.IntegerAttr(named["cluster_stride"]).value != 1:
            raise CompileError(
                "gpu.subgroup_reduce: lanes at a stride have no code for cuda devices; expected cluster_stride 1",
                source_location(self.operation),
            )
        return self._of_lanes(value, width)

    def block(self, value: ir.Value, name: str, body: ir.Operation) -> ir.Value:
        """Every subgroup's first thread writes its value to memory, and all threads combine these."""
        build = self.build
        groups = -(-self.threads // SUBGROUP)
        value = self._of_lanes(value, SUBGROUP)
        if groups == 1:
            return value
        index = ir.IndexType.get()
        space = ir.Attribute.parse("#gpu.address_space<workgroup>")
        kind = ir.MemRefType.get([groups], value.type, memory_space=space)
        ir.Operation.create(
            "memref.global", attributes={
                "sym_name": ir.StringAttr.get(name), "type": ir.TypeAttr.get(kind),
                "sym_visibility": ir.StringAttr.get("private"), "initial_value": ir.UnitAttr.get(),
            }, loc=body.location, ip=ir.InsertionPoint(body),
        )  # fmt: skip
        memory = build.create("memref.get_global", [kind], [], {"name": ir.FlatSymbolRefAttr.get(name)}).result
        lanes = build.constant(SUBGROUP, self.word)
        first = self._compare("eq", build.binary("arith.remui", self.thread, lanes), build.constant(0, self.word))
        branch = build.create("scf.if", [], [first], regions=2)
        inside = OperationBuilder(ir.Operation.create(
            "scf.yield", loc=self.operation.location, ip=ir.InsertionPoint(branch.regions[0].blocks.append())
        ))
        place = inside.cast(inside.binary("arith.divui", self.thread, lanes), index)
        inside.create("memref.store", [], [value, memory, place])
        build.create("gpu.barrier", [])
        found = build.create("memref.load", [value.type], [memory, build.constant(0, index)]).result
        for group in range(1, groups):
            other = build.create("memref.load", [value.type], [memory, build.constant(group, index)]).result
            found = self._combine(found, other)
        build.create("gpu.barrier", [])  # the memory may be reused
        return found

    def shuffle(self, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """`operation` on a value of any size. A lane missing in the last subgroup counts as out of range."""
        build, (_, offset, width) = self.build, self.operation.operands
        mode = self.operation.attributes["mode"]
        found, valid = self._shuffle(value, offset, width, mode)
        if self.threads % SUBGROUP == 0:
            return found, valid
        lane = build.binary("arith.remui", self.thread, build.constant(SUBGROUP, self.word))
        source = offset
        if "idx" not in str(mode):
            way = "arith.xori" if "xor" in str(mode) else "arith.addi" if "down" in str(mode) else "arith.subi"
            source = build.binary(way, lane, offset)
        first = build.binary("arith.subi", self.thread, lane)
        exists = self._compare(
            "ult", build.binary("arith.addi", first, source), build.constant(self.threads, self.word)
        )
        valid = build.binary("arith.andi", valid, exists)
        return build.create("arith.select", [value.type], [valid, found, value]).result, valid

    # -- lanes -----------------------------------------------------------------------------------

    def _of_lanes(self, value: ir.Value, width: int) -> ir.Value:
        """The combined value of the `width` lanes around each lane; `width` is a power of two."""
        build = self.build
        step = width // 2
        lanes, all_lanes = build.constant(width, self.word), build.constant(SUBGROUP, self.word)
        lane = build.binary("arith.remui", self.thread, lanes)
        whole = self.threads % width == 0
        while step:
            amount = build.constant(step, self.word)
            other, _ = self._shuffle(value, amount, all_lanes, ir.Attribute.parse("#gpu<shuffle_mode down>"))
            there = self._compare("ult", build.binary("arith.addi", lane, amount), lanes)
            if not whole:
                beyond = build.binary("arith.addi", self.thread, amount)
                exists = self._compare("ult", beyond, build.constant(self.threads, self.word))
                there = build.binary("arith.andi", there, exists)
            value = build.create("arith.select", [value.type], [there, self._combine(value, other), value]).result
            step //= 2
        first = build.binary("arith.subi", build.binary("arith.remui", self.thread, all_lanes), lane)
        return self._shuffle(value, first, all_lanes, ir.Attribute.parse("#gpu<shuffle_mode idx>"))[0]

    def _combine(self, left: ir.Value, right: ir.Value) -> ir.Value:
        return combine(self.operation, left, right, self.operation)

    def _compare(self, predicate: str, left: ir.Value, right: ir.Value) -> ir.Value:
        number = {"eq": 0, "ult": 6}[predicate]
        kind = ir.IntegerType.get_signless(64)
        return self.build.create(
            "arith.cmpi", [self.bit], [left, right], {"predicate": ir.IntegerAttr.get(kind, number)}
        ).result

    def _shuffle(
        self, value: ir.Value, amount: ir.Value, width: ir.Value, mode: ir.Attribute
    ) -> tuple[ir.Value, ir.Value]:
        build, kind = self.build, value.type
        if _is_word(kind):
            made = build.create("gpu.shuffle", [kind, self.bit], [value, amount, width], {"mode": mode})
            return made.results[0], made.results[1]
        if isinstance(kind, ir.IndexType):
            long = ir.IntegerType.get_signless(64)
            moved, valid = self._shuffle(build.cast(value, long), amount, width, mode)
            return build.cast(moved, kind), valid
        bits = int("".join(filter(str.isdigit, str(kind).removeprefix("b"))) or "0")
        if isinstance(kind, ir.VectorType) or bits not in (1, 8, 16, 64):
            raise CompileError(
                f"{self.operation.name}: a value of type {kind} has no code for cuda devices; expected numbers of 8 "
                "to 64 bits", source_location(self.operation),
            )
        same = ir.IntegerType.get_signless(bits)
        whole = value if isinstance(kind, ir.IntegerType) else build.create("arith.bitcast", [same], [value]).result
        if bits < 64:
            wide = build.create("arith.extui", [self.word], [whole]).result
            moved, valid = self._shuffle(wide, amount, width, mode)
            found = build.create("arith.trunci", [same], [moved]).result
        else:
            half = build.constant(32, same)
            low = build.create("arith.trunci", [self.word], [whole]).result
            high = build.create("arith.trunci", [self.word], [build.binary("arith.shrui", whole, half)]).result
            low, valid = self._shuffle(low, amount, width, mode)
            high, _ = self._shuffle(high, amount, width, mode)
            shifted = build.binary("arith.shli", build.create("arith.extui", [same], [high]).result, half)
            found = build.binary("arith.ori", shifted, build.create("arith.extui", [same], [low]).result)
        if isinstance(kind, ir.IntegerType):
            return found, valid
        return build.create("arith.bitcast", [kind], [found]).result, valid
