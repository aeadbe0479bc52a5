"""Random programs in text whose operations, loops, branches and calls say where they run."""

from __future__ import annotations

import random
from collections.abc import Callable

T = "tensor<4xf32>"
SQUARE = "tensor<2x2xf32>"
DEVICES = """
util.global private @a = #hal.device.alias<"local"> : !hal.device
util.global private @b = #hal.device.select<[#hal.device.alias<"null">, #hal.device.alias<"local">]> : !hal.device
util.global private @c = #hal.device.select<[#hal.device.alias<"null"[1]>, #hal.device.fallback<@a>]> : !hal.device
util.global private @w = dense<[1.0, 0.5, -2.0, 0.25]> : tensor<4xf32>
"""
CHOICE = "#hal.device.optimal<[#hal.device.affinity<@b>, #hal.device.affinity<@c>]>"


class TextProgram:
    """Function @f takes three tensors of four floats and an i1, and returns some such tensors."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines = [f"%c{number} = arith.constant {number} : index" for number in range(3)]
        self.values = ["%x0", "%x1", "%x2"]
        self.squares: list[str] = []
        self.count = 0
        kinds: list[Callable[[str, str, str], None]] = [
            self._binary, self._binary, self._unary, self._transfer, self._expand, self._collapse, self._branch,
            self._loop, self._while, self._call, self._element, self._into, self._slice, self._select, self._load,
            self._constant,
        ]
        for _ in range(self.random.randrange(4, 18)):
            x, y = self.random.choice(self.values[-6:]), self.random.choice(self.values)
            self.random.choice(kinds)(self._name(), x, y)
        results = [self.values[-1], *self.random.choices(self.values, k=self.random.randrange(3))]
        arguments = ", ".join([*(f"%x{number}: {T}{self._pin()}" for number in range(3)), "%p: i1"])
        self.text = "\n".join([
            DEVICES,
            f"func.func private @g(%y: {T}) -> {T} {{",
            f"%0 = math.tanh %y : {T}", f"%1 = arith.addf %0, %y {self._somewhere()} : {T}", f"return %1 : {T} }}",
            f"func.func @f({arguments}) -> ({', '.join(T + self._pin() for _ in results)}) {{",
            *self.lines,
            f"return {', '.join(results)} : {', '.join(T for _ in results)} }}",
        ])

    # -- affinities ------------------------------------------------------------------------------

    def _device(self) -> str:
        queue = self.random.choice(["", "", ", [0]", ", [1]"])
        return f"#hal.device.affinity<@{self.random.choice('abc')}{queue}>"

    def _somewhere(self, chance: float = 0.4) -> str:
        if self.random.random() > chance:
            return ""
        return f"{{stream.affinity = {CHOICE if self.random.random() < 0.2 else self._device()}}}"

    def _pin(self) -> str:
        return f" {{iree.abi.affinity = {self._device()}}}" if self.random.random() < 0.4 else ""

    # -- operations ------------------------------------------------------------------------------

    def _name(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def _add(self, name: str, line: str) -> None:
        self.lines.append(f"{name} = {line}")
        self.values.append(name)

    def _binary(self, name: str, x: str, y: str) -> None:
        kind = self.random.choice(["addf", "mulf", "subf", "maximumf"])
        self._add(name, f"arith.{kind} {x}, {y} {self._somewhere()} : {T}")

    def _unary(self, name: str, x: str, y: str) -> None:
        self._add(name, f"math.{self.random.choice(['tanh', 'sin'])} {x} {self._somewhere()} : {T}")

    def _transfer(self, name: str, x: str, y: str) -> None:
        self._add(name, f"flow.tensor.transfer {x} : {T} to {self._device()}")

    def _expand(self, name: str, x: str, y: str) -> None:
        self.lines.append(f"{name} = tensor.expand_shape {x} [[0, 1]] output_shape [2, 2] : {T} into {SQUARE}")
        self.squares.append(name)

    def _collapse(self, name: str, x: str, y: str) -> None:
        if not self.squares:
            return
        square = self.random.choice(self.squares)
        if self.random.random() < 0.5:
            self.lines.append(f"{name}t = flow.tensor.transfer {square} : {SQUARE} to {self._device()}")
            square = f"{name}t"
        self._add(name, f"tensor.collapse_shape {square} [[0, 1]] : {SQUARE} into {T}")

    def _branch(self, name: str, x: str, y: str) -> None:
        passed = self.random.choice([f"{name}e", x, y])
        self._add(
            name,
            f"scf.if %p -> {T} {{ {name}t = arith.addf {x}, {y} {self._somewhere()} : {T}\nscf.yield {name}t : {T} }} "
            f"else {{ {name}e = math.tanh {y} : {T}\nscf.yield {passed} : {T} }}",
        )

    def _loop(self, name: str, x: str, y: str) -> None:
        self._add(
            name,
            f"scf.for {name}i = %c0 to %c2 step %c1 iter_args({name}a = {x}) -> {T} {{ "
            f"{name}b = arith.mulf {name}a, {y} {self._somewhere()} : {T}\n{name}c = math.tanh {name}b : {T}\n"
            f"scf.yield {name}c : {T} }}",
        )

    def _while(self, name: str, x: str, y: str) -> None:
        self.lines.append(
            f"{name}:2 = scf.while ({name}a = {x}, {name}i = %c0) : ({T}, index) -> ({T}, index) {{ "
            f"{name}p = arith.cmpi slt, {name}i, %c2 : index\nscf.condition({name}p) {name}a, {name}i : {T}, index }} "
            f"do {{ ^bb0({name}b: {T}, {name}j: index): {name}c = arith.addf {name}b, {y} : {T}\n"
            f"{name}k = arith.addi {name}j, %c1 : index\nscf.yield {name}c, {name}k : {T}, index }}"
        )
        self.values.append(f"{name}#0")

    def _call(self, name: str, x: str, y: str) -> None:
        self._add(name, f"func.call @g({x}) {self._somewhere()} : ({T}) -> {T}")

    def _element(self, name: str, x: str, y: str) -> None:
        self.lines += [f"{name}e = tensor.extract {x}[%c1] : {T}", f"{name}s = tensor.splat {name}e : {T}"]
        self._add(name, f"arith.addf {y}, {name}s {self._somewhere()} : {T}")

    def _into(self, name: str, x: str, y: str) -> None:
        self._add(name, f"linalg.add ins({x}, {y} : {T}, {T}) outs({self.random.choice(self.values)} : {T}) -> {T}")

    def _slice(self, name: str, x: str, y: str) -> None:
        self.lines.append(f"{name}s = tensor.extract_slice {x}[1] [2] [1] : {T} to tensor<2xf32>")
        self._add(name, f"tensor.insert_slice {name}s into {y}[{self.random.randrange(3)}] [2] [1] : "
                        f"tensor<2xf32> into {T}")

    def _select(self, name: str, x: str, y: str) -> None:
        self._add(name, f"arith.select %p, {x}, {y} : {T}")

    def _load(self, name: str, x: str, y: str) -> None:
        self._add(name, f"util.global.load @w : {T}")

    def _constant(self, name: str, x: str, y: str) -> None:
        self._add(name, f"arith.constant dense<[{self.random.randrange(3)}.0, 2.5, -1.0, 0.125]> : {T}")
