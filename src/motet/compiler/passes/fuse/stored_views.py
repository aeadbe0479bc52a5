"""Which tensors without data, and which views, a grouping stores in memory: those that kernels cannot take in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from motet.compiler.ir._mlir import ir
from motet.compiler.kernels.roles import ALIASES, Role, is_unit_reshape
from motet.compiler.passes.fuse.marks import INTERLEAVED, PLACES, TOGETHER


@dataclass(frozen=True)
class StoredViews:
    """Answers for a block that ends with `terminator`, by the roles of its operations."""

    roles: Mapping[ir.Operation, Role]
    terminator: ir.Operation

    def leaves_kernels(self, free: ir.Operation) -> bool:
        """Whether a tensor without data is a result, becomes one under another shape, or is the initial value of a
        launch's buffer."""
        users = [use.owner.operation for use in free.results[0].uses]
        return any(
            user == self.terminator or self.roles.get(user) is Role.ALIAS
            or (user.name == "func.call" and free.name != "tensor.empty")
            for user in users
        )

    def needs_memory(self, view: ir.Operation) -> bool:
        """Whether a view must be stored in memory. Views become part of linalg operations that read them, of further
        views, and of concatenations and insertions grouped with their parts; all other readers need them in memory.
        Reshapes in between may add or drop unit dimensions, where single elements are read. Padding only becomes part
        of windows and convolutions, unless it is marked."""
        pads = view.name == "tensor.pad" and PLACES not in view.attributes
        for use in view.results[0].uses:
            user = use.owner.operation
            role = self.roles.get(user)
            if role is Role.VIEW and user.name != "tensor.pad" and not pads:
                continue
            if not pads and (TOGETHER in user.attributes or self._leads_to_parts(user)):
                continue
            if not pads and (INTERLEAVED in user.attributes or self._leads_to_points(user)):
                continue
            if user.name != "linalg.generic" or (pads and role not in (Role.CONVOLUTION, Role.WINDOW)):
                return True
        return False

    def _leads_to_parts(self, reshape: ir.Operation) -> bool:
        """Whether a unit reshape is only read by concatenations that are grouped with their parts."""
        users = [use.owner.operation for use in reshape.results[0].uses] if reshape.name in ALIASES else []
        return bool(users) and is_unit_reshape(reshape) and all(TOGETHER in user.attributes for user in users)

    def _leads_to_points(self, reshape: ir.Operation) -> bool:
        """Whether a unit reshape is only read by element-wise operations, gathers and transpositions, point by point.
        Loops, which would read a view in each iteration, and products need one."""
        users = [use.owner.operation for use in reshape.results[0].uses] if reshape.name in ALIASES else []
        points = (Role.ELEMENTWISE, Role.VIEW, Role.GATHER, Role.OPAQUE)
        return bool(users) and is_unit_reshape(reshape) and all(
            user.name == "linalg.generic" and self.roles.get(user) in points for user in users
        )
