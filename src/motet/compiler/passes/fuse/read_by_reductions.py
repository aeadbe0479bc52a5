"""Which element-wise operations reductions read: these join the kernel of the reduction, and are not stored then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import Role


def reductions_read(operations: Iterable[ir.Operation], roles: Mapping[ir.Operation, Role]) -> bool:
    """Whether a reduction reads a result of `operations`."""
    users = (use.owner.operation for each in operations for result in each.results for use in result.uses)
    return any(roles.get(user) is Role.REDUCTION for user in users)


def only_reductions_read(
    operation: ir.Operation, group: Iterable[ir.Operation], roles: Mapping[ir.Operation, Role]
) -> bool:
    """Whether only reductions read the result of `operation` on values of `group` that have other readers: those values
    are stored in memory then, but the result need not be, as the squares of a normalisation."""
    users = [use.owner.operation for use in operation.results[0].uses]
    if not users or any(roles.get(user) is not Role.REDUCTION for user in users):
        return False
    makers = {*group}
    read = [each for each in operation.operands if not isinstance(each.owner, ir.Block)
            and each.owner.operation in makers]
    return all(any(use.owner.operation != operation for use in value.uses) for value in read)
