"""Where operations run and what is moved between devices, for every rule by which that is told."""

from __future__ import annotations

import pytest
from tests.unit.compiler.placement.modules import DEVICES, described, place, read, spelled

# What is expected is in the notation of `described`.
CASES = {
    # -- what operations, functions and arguments say ------------------------------------------------
    "nothing is said": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T }",
        "exp:a",
    ),
    "an operation says where it runs": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on $B} : $T return %0 : $T }",
        ">b exp:b",
    ),
    "an operation follows a transfer": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %0 : $T return %1 : $T }",
        ">b exp:b",
    ),
    "a chain follows a transfer": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %0 : $T %2 = math.tanh %1 : $T "
        "%3 = math.sqrt %2 : $T return %3 : $T }",
        ">b exp:b tanh:b sqrt:b",
    ),
    "what an operation says counts before its operands": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on $B} : $T %1 = math.tanh %0 {$on $C} : $T return %1 : $T }",
        ">b exp:b >c tanh:c",
    ),
    "operands on two devices lead to the default one": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on $B} : $T %1 = arith.addf %0, %x : $T return %1 : $T }",
        ">b exp:b >a addf:a",
    ),
    "operands on two devices that are not the default one": (
        "func.func @f(%x: $T {$pin $B}, %y: $T {$pin $C}) -> $T { %0 = arith.addf %x, %y : $T return %0 : $T }",
        ">a >a addf:a",
    ),
    "an argument is pinned": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %0 = math.exp %x : $T return %0 : $T }",
        "exp:b",
    ),
    "an argument has an affinity": (
        "func.func @f(%x: $T {$on $B}) -> $T { %0 = math.exp %x : $T return %0 : $T }",
        "exp:b",
    ),
    "a pin counts before an affinity": (
        "func.func @f(%x: $T {$on $B, $pin $C}) -> $T { %0 = math.exp %x : $T return %0 : $T }",
        "exp:c",
    ),
    "a result is pinned elsewhere": (
        "func.func @f(%x: $T) -> ($T {$pin $B}) { %0 = math.exp %x : $T return %0 : $T }",
        "exp:a >b",
    ),
    "a result is pinned where it is made": (
        "func.func @f(%x: $T {$pin $B}) -> ($T {$pin $B}) { %0 = math.exp %x : $T return %0 : $T }",
        "exp:b",
    ),
    "results of one value are pinned to two devices": (
        "func.func @f(%x: $T) -> ($T {$pin $B}, $T {$pin $C}) { %0 = math.exp %x : $T return %0, %0 : $T, $T }",
        "exp:a >c >b",
    ),
    "an argument is returned on another device": (
        "func.func @f(%x: $T) -> ($T {$pin $B}) { return %x : $T }",
        ">b",
    ),
    "a function has an affinity": (
        "func.func @f(%x: $T) -> $T attributes {$on $B} { %0 = math.exp %x : $T return %0 : $T }",
        "exp:b",
    ),
    "an operation differs from its function": (
        "func.func @f(%x: $T) -> $T attributes {$on $B} { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $C} : $T "
        "return %1 : $T }",
        "exp:b >c tanh:c >b",
    ),
    "a function's affinity counts before the operands": (
        "func.func @f(%x: $T {$pin $C}) -> $T attributes {$on $B} { %0 = math.exp %x : $T return %0 : $T }",
        ">b exp:b",
    ),
    "a function's pin is for arguments, results and operations": (
        "func.func @f(%x: $T) -> $T attributes {$pin $C} { %0 = math.exp %x : $T return %0 : $T }",
        "exp:c",
    ),
    "a function's pin beside its affinity": (
        "func.func @f(%x: $T) -> $T attributes {$on $B, $pin $C} { %0 = math.exp %x : $T return %0 : $T }",
        ">b exp:b >c",
    ),
    "the choice of an operation: where its operand lies": (
        "func.func @f(%x: $T {$pin $C}) -> $T { %0 = math.exp %x {$on #hal.device.optimal<[$B, $C]>} : $T "
        "return %0 : $T }",
        "exp:c",
    ),
    "the choice of an operation: its first device": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.optimal<[$B, $C]>} : $T return %0 : $T }",
        ">b exp:b",
    ),
    "the choice of an operation: where most operands lie": (
        "func.func @f(%x: $T {$pin $C}, %y: $T {$pin $C}, %z: $T {$pin $B}, %p: i1) -> $T { "
        "%0 = math.fma %x, %y, %z {$on #hal.device.optimal<[$B, $C]>} : $T return %0 : $T }",
        ">c fma:c",
    ),
    "readers follow what a choice became": (
        "func.func @f(%x: $T {$pin $C}) -> $T { %0 = math.exp %x {$on #hal.device.optimal<[$B, $C]>} : $T "
        "%1 = math.tanh %0 : $T return %1 : $T }",
        "exp:c tanh:c",
    ),
    "the choice of what has no operands: its reader": (
        "func.func @f(%x: $T {$pin $C}) -> $T { %e = tensor.empty() : $T "
        "%0 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>], iterator_types = [\"parallel\"]} "
        "outs(%e : $T) attrs = {$on #hal.device.optimal<[$B, $C]>} { ^bb0(%o: f32): "
        "%v = arith.constant 1.0 : f32 linalg.yield %v : f32 } -> $T %1 = arith.addf %0, %x : $T return %1 : $T }",
        "empty:c generic:c addf:c",
    ),
    "a promise is an affinity": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.promise<@b>} : $T return %0 : $T }",
        ">b exp:b",
    ),
    # -- defaults ------------------------------------------------------------------------------------
    "the module says the default": (
        "module attributes {stream.affinity.default = $B} { $DEVICES "
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } }",
        "exp:b",
    ),
    "the module names the default": (
        'module attributes {hal.device.default = "b"} { $DEVICES '
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } }",
        "exp:b",
    ),
    "the module numbers the default": (
        "module attributes {hal.device.default = 2 : index} { $DEVICES "
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } }",
        "exp:c",
    ),
    "an affinity counts before a name": (
        'module attributes {hal.device.default = "b", stream.affinity.default = $C} { $DEVICES '
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } }",
        "exp:c",
    ),
    "a function has a default of its own": (
        "module attributes {stream.affinity.default = $B} { $DEVICES "
        "func.func @f(%x: $T, %y: $T {$pin $A}) -> $T attributes {stream.affinity.default = $C} { "
        "%0 = math.exp %y : $T %1 = arith.addf %0, %x : $T return %1 : $T } }",
        "exp:a >c addf:c",
    ),
    "the default has queues": (
        "module attributes {stream.affinity.default = #hal.device.affinity<@b, [1]>} { $DEVICES "
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T return %0 : $T } }",
        "exp:b[1]",
    ),
    # -- what has no operands ------------------------------------------------------------------------
    "a constant is made where it is read": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = arith.addf %x, %c : $T return %0 : $T }",
        "constant:b addf:b",
    ),
    "a constant is made on both devices that read it": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = arith.addf %x, %c : $T %1 = arith.mulf %y, %c : $T return %0, %1 : $T, $T }",
        "constant:a|b addf:a mulf:b",
    ),
    "a constant that is returned is made once": (
        "func.func @f(%y: $T {$pin $B}) -> ($T {$pin $A}, $T) { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = arith.mulf %y, %c : $T return %c, %0 : $T, $T }",
        "constant:a >b mulf:b",
    ),
    "an empty and filled tensor is made everywhere": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %z = arith.constant 0.0 : f32 "
        "%e = tensor.empty() : $T %i = linalg.fill ins(%z : f32) outs(%e : $T) -> $T "
        "%0 = linalg.add ins(%x, %x : $T, $T) outs(%i : $T) -> $T "
        "%1 = linalg.mul ins(%y, %y : $T, $T) outs(%i : $T) -> $T return %0, %1 : $T, $T }",
        "constant:a|b empty:a|b fill:a|b add:a mul:b",
    ),
    "a splat is made where it is read": (
        "func.func @f(%x: $T {$pin $C}, %s: f32) -> $T { %c = tensor.splat %s : $T "
        "%0 = arith.addf %x, %c : $T return %0 : $T }",
        "splat:c addf:c",
    ),
    "what is made of a constant runs where it is read": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = math.exp %c : $T %1 = arith.addf %x, %0 : $T return %1 : $T }",
        "constant:b exp:b addf:b",
    ),
    "what is made of a constant runs once": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = math.exp %c : $T %1 = arith.addf %x, %0 : $T %2 = arith.mulf %y, %0 : $T return %1, %2 : $T, $T }",
        "constant:a exp:a >b addf:a mulf:b",
    ),
    "what no operand places runs where it is returned": (
        "func.func @f() -> ($T {$pin $C}) { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = math.exp %c : $T return %0 : $T }",
        "constant:c exp:c",
    ),
    "what nobody places runs on the default device": (
        "func.func @f() -> $T { %c = arith.constant dense<[1., 2., 3., 4.]> : $T "
        "%0 = math.exp %c : $T return %0 : $T }",
        "constant:a exp:a",
    ),
    "what only a transfer reads runs where it goes": (
        "func.func @f() -> $T { %c = arith.constant dense<[1., 2., 3., 4.]> : $T %0 = math.exp %c : $T "
        "%1 = $move %0 : $T to $B %2 = math.tanh %1 : $T return %2 : $T }",
        "constant:b exp:b tanh:b",
    ),
    "numbers made into a tensor": (
        "func.func @f(%x: $T {$pin $B}, %s: f32) -> $T { %c = tensor.from_elements %s, %s, %s, %s : $T "
        "%0 = arith.addf %x, %c : $T return %0 : $T }",
        "from_elements:b addf:b",
    ),
    "a size is read on every device": (
        "func.func @f(%x: tensor<?xf32>, %y: $T {$pin $B}) -> (tensor<?xf32>, $T) { %c = arith.constant 0 : index "
        "%n = tensor.dim %x, %c : tensor<?xf32> %i = arith.index_cast %n : index to i32 "
        "%s = arith.sitofp %i : i32 to f32 %z = tensor.splat %s : $T %0 = arith.addf %y, %z : $T "
        "%1 = math.exp %x : tensor<?xf32> return %1, %0 : tensor<?xf32>, $T }",
        "constant:a dim:a index_cast:b sitofp:b splat:b addf:b exp:a",
    ),
    # -- globals -------------------------------------------------------------------------------------
    "a global is made where it is loaded": (
        "util.global private @w = dense<[1.0, 2.0, 3.0, 4.0]> : $T "
        "func.func @f(%x: $T {$pin $B}) -> $T { %w = util.global.load immutable @w : $T "
        "%0 = arith.addf %x, %w : $T return %0 : $T }",
        "constant:b addf:b",
    ),
    "a global is made on both devices that load it": (
        "util.global private @w = dense<2.0> : $T "
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %w = util.global.load @w : $T "
        "%0 = arith.addf %x, %w : $T %v = util.global.load @w : $T %1 = arith.mulf %y, %v : $T "
        "return %0, %1 : $T, $T }",
        "constant:a addf:a constant:b mulf:b",
    ),
    "a global says where it lies": (
        "util.global private @w {$on $C} = dense<2.0> : $T "
        "func.func @f() -> $T { %w = util.global.load @w : $T %0 = math.exp %w : $T return %0 : $T }",
        "constant:c exp:c",
    ),
    "a load says where it is": (
        "util.global private @w = dense<2.0> : $T func.func @f() -> $T { "
        "%w = \"util.global.load\"() {global = @w, $on $B} : () -> $T %0 = math.exp %w : $T return %0 : $T }",
        "constant:b exp:b",
    ),
    # -- transfers -----------------------------------------------------------------------------------
    "a chain of transfers is one": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = $move %0 : $T to $C %2 = math.exp %1 : $T "
        "return %2 : $T }",
        ">c exp:c",
    ),
    "a chain of transfers whose first is read too": (
        "func.func @f(%x: $T) -> ($T, $T) { %0 = $move %x : $T to $B %1 = $move %0 : $T to $C %2 = math.exp %1 : $T "
        "%3 = math.tanh %0 : $T return %2, %3 : $T, $T }",
        ">b >c exp:c tanh:b",
    ),
    "there and back": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = $move %0 : $T to $A %2 = math.exp %1 : $T "
        "return %2 : $T }",
        "exp:a",
    ),
    "to where it lies": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $A %1 = math.exp %0 : $T return %1 : $T }",
        "exp:a",
    ),
    "twice to one device": (
        "func.func @f(%x: $T) -> ($T, $T) { %0 = $move %x : $T to $B %1 = $move %x : $T to $B %2 = math.exp %0 : $T "
        "%3 = math.tanh %1 : $T return %2, %3 : $T, $T }",
        ">b exp:b tanh:b",
    ),
    "readers on one device share a transfer": (
        "func.func @f(%x: $T) -> ($T, $T) { %2 = math.exp %x {$on $B} : $T %3 = math.tanh %x {$on $B} : $T "
        "return %2, %3 : $T, $T }",
        ">b exp:b tanh:b",
    ),
    "a transfer that nobody reads": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %x : $T return %1 : $T }",
        "exp:a",
    ),
    "a transfer that a reshape reads": (
        "func.func @f(%x: $T) -> tensor<2x2xf32> { %0 = math.exp %x : $T %1 = $move %0 : $T to $B "
        "%2 = tensor.expand_shape %1 [[0, 1]] output_shape [2, 2] : $T into tensor<2x2xf32> "
        "%3 = math.tanh %2 : tensor<2x2xf32> return %3 : tensor<2x2xf32> }",
        "exp:a expand_shape:a >b tanh:b",
    ),
    "transfers meet behind reshapes": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B "
        "%1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 2] : $T into tensor<2x2xf32> "
        "%2 = tensor.collapse_shape %1 [[0, 1]] : tensor<2x2xf32> into $T %3 = $move %2 : $T to $C "
        "%4 = math.exp %3 : $T return %4 : $T }",
        ">c expand_shape:c collapse_shape:c exp:c",
    ),
    "an argument is moved before it is reshaped": (
        "func.func @f(%x: $T) -> tensor<2x2xf32> { "
        "%0 = tensor.expand_shape %x [[0, 1]] output_shape [2, 2] : $T into tensor<2x2xf32> "
        "%1 = math.exp %0 {$on $B} : tensor<2x2xf32> return %1 : tensor<2x2xf32> }",
        ">b expand_shape:b exp:b",
    ),
    "an argument that is read besides is moved once": (
        "func.func @f(%x: $T) -> (tensor<2x2xf32>, $T) { "
        "%0 = tensor.expand_shape %x [[0, 1]] output_shape [2, 2] : $T into tensor<2x2xf32> "
        "%1 = math.exp %0 {$on $B} : tensor<2x2xf32> %2 = math.exp %x {$on $B} : $T "
        "return %1, %2 : tensor<2x2xf32>, $T }",
        ">b expand_shape:b exp:b exp:b",
    ),
    "a transfer that a reshape and another read stays": (
        "func.func @f(%x: $T) -> (tensor<2x2xf32>, $T) { %0 = $move %x : $T to $B "
        "%1 = tensor.expand_shape %0 [[0, 1]] output_shape [2, 2] : $T into tensor<2x2xf32> %2 = math.exp %0 : $T "
        "return %1, %2 : tensor<2x2xf32>, $T }",
        ">b expand_shape:b exp:b",
    ),
    "a transfer with a choice: where the value lies": (
        "func.func @f(%x: $T {$pin $C}) -> $T { %0 = $move %x : $T to #hal.device.optimal<[$B, $C]> "
        "%1 = math.exp %0 : $T return %1 : $T }",
        "exp:c",
    ),
    "a transfer with a choice: the first device": (
        "func.func @f(%x: $T) -> $T { %0 = $move %x : $T to #hal.device.optimal<[$B, $C]> "
        "%1 = math.exp %0 : $T return %1 : $T }",
        ">b exp:b",
    ),
    "a result with a choice stays": (
        "func.func @f(%x: $T {$pin $C}) -> ($T {$pin #hal.device.optimal<[$B, $C]>}) { %0 = math.exp %x : $T "
        "return %0 : $T }",
        "exp:c",
    ),
    "a result with a choice elsewhere": (
        "func.func @f(%x: $T) -> ($T {$pin #hal.device.optimal<[$C, $B]>}) { %0 = math.exp %x : $T return %0 : $T }",
        "exp:a >c",
    ),
    "a transfer of dynamic extents": (
        "func.func @f(%x: tensor<?xf32>, %n: index) -> tensor<?xf32> { "
        "%0 = $move %x : tensor<?xf32>{%n} to $B %1 = math.exp %0 : tensor<?xf32> return %1 : tensor<?xf32> }",
        ">b exp:b",
    ),
    "a barrier is a transfer": (
        "func.func @f(%x: $T) -> $T { %0 = flow.tensor.barrier %x : $T on $B %1 = math.exp %0 : $T return %1 : $T }",
        ">b exp:b",
    ),
    "back and forth between operations": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x : $T %1 = math.tanh %0 {$on $B} : $T "
        "%2 = math.sqrt %1 {$on $A} : $T %3 = arith.addf %2, %0 : $T return %3 : $T }",
        "exp:a >b tanh:b >a sqrt:a addf:a",
    ),
    # -- links ---------------------------------------------------------------------------------------
    "a link with transparent access": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@a -> @b = {transparent_access = true})]>}"
        " { $DEVICES func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %0 : $T return %1 : $T } }",
        "exp:b",
    ),
    "a link the other way": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@b -> @a = {transparent_access = true})]>}"
        " { $DEVICES func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %0 : $T "
        "%2 = math.tanh %1 {$on $A} : $T return %2 : $T } }",
        ">b exp:b tanh:a",
    ),
    "a link with unified memory alone": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@a -> @b = {unified_memory = true})]>}"
        " { $DEVICES func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = math.exp %0 : $T return %1 : $T } }",
        ">b exp:b",
    ),
    "a chain of which the ends are linked": (
        "module attributes {stream.topology = #hal.device.topology<links = [(@a -> @c = {transparent_access = true})]>}"
        " { $DEVICES func.func @f(%x: $T) -> $T { %0 = $move %x : $T to $B %1 = $move %0 : $T to $C "
        "%2 = math.exp %1 : $T return %2 : $T } }",
        "exp:c",
    ),
    # -- queues --------------------------------------------------------------------------------------
    "queues are kept": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.affinity<@b, [0, 2]>} : $T return %0 : $T }",
        ">b exp:b[0,2]",
    ),
    "readers run on the queues of their operand": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.affinity<@b, [1]>} : $T "
        "%1 = math.tanh %0 : $T return %1 : $T }",
        ">b exp:b[1] tanh:b[1]",
    ),
    "queues of several operands are joined": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %0 = math.exp %x {$on #hal.device.affinity<@b, [1]>} : $T "
        "%1 = math.tanh %x {$on #hal.device.affinity<@b, [3]>} : $T %2 = arith.addf %0, %1 : $T return %2 : $T }",
        "exp:b[1] tanh:b[3] addf:b[1,3]",
    ),
    "another queue of one device needs no transfer": (
        "func.func @f(%x: $T {$pin #hal.device.affinity<@b, [0]>}) -> $T { "
        "%0 = $move %x : $T to #hal.device.affinity<@b, [1]> %1 = math.exp %0 : $T return %1 : $T }",
        "exp:b[1]",
    ),
    "any queue": (
        "func.func @f(%x: $T) -> $T { %0 = math.exp %x {$on #hal.device.affinity<@b, *>} : $T return %0 : $T }",
        ">b exp:b",
    ),
    # -- results that are states of operands ---------------------------------------------------------
    "what is written into decides between operands": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> $T { %0 = linalg.add ins(%x, %x : $T, $T) outs(%y : $T) -> $T "
        "return %0 : $T }",
        ">b add:b",
    ),
    "what is written into lies on the default device": (
        "func.func @f(%x: $T {$pin $B}, %y: $T) -> $T { %0 = linalg.add ins(%x, %x : $T, $T) outs(%y : $T) -> $T "
        "return %0 : $T }",
        ">a add:a",
    ),
    "what is written into is made anew": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %e = tensor.empty() : $T "
        "%0 = linalg.add ins(%x, %x : $T, $T) outs(%e : $T) -> $T return %0 : $T }",
        "empty:b add:b",
    ),
    "a slice is inserted where the whole lies": (
        "func.func @f(%x: tensor<2xf32>, %y: $T {$pin $C}) -> $T { "
        "%0 = tensor.insert_slice %x into %y[1] [2] [1] : tensor<2xf32> into $T return %0 : $T }",
        ">c insert_slice:c",
    ),
    # -- select --------------------------------------------------------------------------------------
    "select of one device": (
        "func.func @f(%p: i1, %x: $T {$pin $B}, %y: $T {$pin $B}) -> $T { %0 = arith.select %p, %x, %y : $T "
        "%1 = math.exp %0 : $T return %1 : $T }",
        "select:b exp:b",
    ),
    "select of two devices": (
        "func.func @f(%p: i1, %x: $T {$pin $C}, %y: $T {$pin $B}) -> $T { %0 = arith.select %p, %x, %y : $T "
        "%1 = math.exp %0 : $T return %1 : $T }",
        ">a >a select:a exp:a",
    ),
    # -- branches and loops --------------------------------------------------------------------------
    "a branch of which nothing is said": (
        "func.func @f(%p: i1, %x: $T) -> $T { %0 = scf.if %p -> $T { %1 = math.exp %x : $T scf.yield %1 : $T } "
        "else { scf.yield %x : $T } return %0 : $T }",
        "if:a",
    ),
    "a branch over values of one device": (
        "func.func @f(%p: i1, %x: $T {$pin $B}) -> $T { %0 = scf.if %p -> $T { %1 = math.exp %x : $T "
        "scf.yield %1 : $T } else { scf.yield %x : $T } %2 = math.tanh %0 : $T return %2 : $T }",
        "if:b tanh:b",
    ),
    "a branch that says where it runs": (
        "func.func @f(%p: i1, %x: $T) -> $T { %0 = scf.if %p -> $T { %1 = math.exp %x : $T scf.yield %1 : $T } "
        "else { scf.yield %x : $T } {$on $B} return %0 : $T }",
        ">b if:b",
    ),
    "a part of a branch says where it runs": (
        "func.func @f(%p: i1, %x: $T) -> $T { %0 = scf.if %p -> $T { %1 = math.exp %x {$on $B} : $T "
        "%2 = math.tanh %x : $T %3 = arith.addf %1, %2 : $T scf.yield %3 : $T } else { scf.yield %x : $T } "
        "%4 = math.sqrt %0 : $T return %4 : $T }",
        ">b if:b sqrt:b",
    ),
    "a branch that passes on what lies on two devices": (
        "func.func @f(%p: i1, %x: $T {$pin $B}, %y: $T {$pin $C}) -> $T { %0 = scf.if %p -> $T { scf.yield %x : $T } "
        "else { scf.yield %y : $T } %1 = math.exp %0 : $T return %1 : $T }",
        ">a >a if:a exp:a",
    ),
    "a transfer in a branch": (
        "func.func @f(%p: i1, %x: $T) -> $T { %0 = scf.if %p -> $T { %1 = $move %x : $T to $B "
        "%2 = math.exp %1 : $T scf.yield %2 : $T } else { %3 = $move %x : $T to $B scf.yield %3 : $T } "
        "%4 = math.tanh %0 : $T return %4 : $T }",
        ">b if:b tanh:b",
    ),
    "a loop over what lies on one device": (
        "func.func @f(%n: index, %x: $T {$pin $B}) -> $T { %c = arith.constant 0 : index %d = arith.constant 1 : index "
        "%0 = scf.for %i = %c to %n step %d iter_args(%v = %x) -> $T { %1 = math.exp %v : $T scf.yield %1 : $T } "
        "%2 = math.tanh %0 : $T return %2 : $T }",
        "constant:b constant:b for:b tanh:b",
    ),
    "a loop whose body says where it runs": (
        "func.func @f(%n: index, %x: $T) -> $T { %c = arith.constant 0 : index %d = arith.constant 1 : index "
        "%0 = scf.for %i = %c to %n step %d iter_args(%v = %x) -> $T { %1 = math.exp %v {$on $C} : $T "
        "scf.yield %1 : $T } return %0 : $T }",
        ">c constant:c constant:c for:c",
    ),
    "a loop that starts with a constant": (
        "func.func @f(%n: index, %x: $T {$pin $B}) -> $T { %c = arith.constant 0 : index %d = arith.constant 1 : index "
        "%z = arith.constant dense<0.0> : $T %0 = scf.for %i = %c to %n step %d iter_args(%v = %z) -> $T { "
        "%1 = arith.addf %v, %x : $T scf.yield %1 : $T } return %0 : $T }",
        "constant:b constant:b constant:b for:b",
    ),
    "a loop over two devices": (
        "func.func @f(%n: index, %x: $T {$pin $B}, %y: $T {$pin $C}) -> $T { %c = arith.constant 0 : index "
        "%d = arith.constant 1 : index %0 = scf.for %i = %c to %n step %d iter_args(%v = %y) -> $T { "
        "%1 = arith.addf %v, %x : $T scf.yield %1 : $T } return %0 : $T }",
        ">a >a constant:a constant:a for:a",
    ),
    "a while loop": (
        "func.func @f(%x: $T {$pin $B}, %n: i32) -> $T { %z = arith.constant 0 : i32 %d = arith.constant 1 : i32 "
        "%0:2 = scf.while (%v = %x, %i = %z) : ($T, i32) -> ($T, i32) { %p = arith.cmpi slt, %i, %n : i32 "
        "scf.condition(%p) %v, %i : $T, i32 } do { ^bb0(%v: $T, %i: i32): %1 = math.exp %v : $T "
        "%j = arith.addi %i, %d : i32 scf.yield %1, %j : $T, i32 } %2 = math.tanh %0#0 : $T return %2 : $T }",
        "constant:b constant:b while:b tanh:b",
    ),
    "a loop in a branch": (
        "func.func @f(%p: i1, %n: index, %x: $T) -> $T { %c = arith.constant 0 : index "
        "%d = arith.constant 1 : index %0 = scf.if %p -> $T { %1 = scf.for %i = %c to %n step %d "
        "iter_args(%v = %x) -> $T { %2 = math.exp %v {$on $B} : $T scf.yield %2 : $T } scf.yield %1 : $T } "
        "else { scf.yield %x : $T } %3 = math.tanh %0 : $T return %3 : $T }",
        ">b constant:b constant:b if:b tanh:b",
    ),
    "a switch": (
        "func.func @f(%k: index, %x: $T {$pin $C}) -> $T { %0 = scf.index_switch %k -> $T case 0 { "
        "%1 = math.exp %x : $T scf.yield %1 : $T } default { scf.yield %x : $T } return %0 : $T }",
        "index_switch:c",
    ),
    # -- calls ---------------------------------------------------------------------------------------
    "a call runs where its operands lie": (
        "func.func @f(%x: $T {$pin $B}) -> $T { %0 = func.call @g(%x) : ($T) -> $T return %0 : $T } "
        "func.func private @g(%y: $T) -> $T { %0 = math.exp %y : $T return %0 : $T }",
        "exp:b",
    ),
    "one function called for two devices": (
        "func.func @f(%x: $T, %y: $T {$pin $B}) -> ($T, $T) { %0 = func.call @g(%x) : ($T) -> $T "
        "%1 = func.call @g(%y) : ($T) -> $T return %0, %1 : $T, $T } "
        "func.func private @g(%y: $T) -> $T { %0 = math.exp %y : $T return %0 : $T }",
        "exp:a exp:b",
    ),
    "a callee has an affinity": (
        "func.func @f(%x: $T) -> $T { %0 = func.call @g(%x) : ($T) -> $T %1 = math.tanh %0 : $T return %1 : $T } "
        "func.func private @g(%y: $T) -> $T attributes {$on $B} { %0 = math.exp %y : $T return %0 : $T }",
        ">b exp:b tanh:b",
    ),
    "a callee's argument and result are pinned": (
        "func.func @f(%x: $T) -> $T { %0 = func.call @g(%x) : ($T) -> $T %1 = math.tanh %0 : $T return %1 : $T } "
        "func.func private @g(%y: $T {$on $B}) -> ($T {$on $C}) { %0 = math.exp %y : $T return %0 : $T }",
        ">b exp:b >c tanh:c",
    ),
    "a call says where it runs": (
        "func.func @f(%x: $T) -> $T { %0 = func.call @g(%x) {$on $C} : ($T) -> $T return %0 : $T } "
        "func.func private @g(%y: $T) -> $T { %0 = math.exp %y : $T %1 = math.tanh %0 {$on $B} : $T return %1 : $T }",
        ">c exp:c >b tanh:b",
    ),
    "calls in calls": (
        "func.func @f(%x: $T) -> $T { %0 = func.call @g(%x) : ($T) -> $T return %0 : $T } "
        "func.func private @g(%y: $T) -> $T { %0 = func.call @h(%y) : ($T) -> $T %1 = math.exp %0 : $T return %1 : $T }"
        " func.func private @h(%y: $T) -> $T { %0 = $move %y : $T to $B %1 = math.tanh %0 : $T return %1 : $T }",
        ">b tanh:b exp:b",
    ),
    "a call in a branch": (
        "func.func @f(%p: i1, %x: $T) -> $T { %0 = scf.if %p -> $T { %1 = func.call @g(%x) : ($T) -> $T "
        "scf.yield %1 : $T } else { scf.yield %x : $T } return %0 : $T } "
        "func.func private @g(%y: $T) -> $T { %0 = math.exp %y {$on $B} : $T return %0 : $T }",
        ">b if:b",
    ),
    "a callee with a transfer between devices": (
        "util.func public @f(%x: $T) -> $T { %0 = util.call @g(%x) : ($T) -> $T util.return %0 : $T } "
        "util.func private @g(%y: $T) -> $T { %0 = math.exp %y : $T %1 = $move %0 : $T to $B "
        "%2 = math.tanh %1 : $T util.return %2 : $T }",
        "exp:a >b tanh:b",
    ),
    # -- several results -----------------------------------------------------------------------------
    "several results of one operation": (
        "func.func @f(%x: $T {$pin $B}) -> ($T, $T) { %e = tensor.empty() : $T "
        "%0:2 = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>, "
        "affine_map<(d0) -> (d0)>], iterator_types = [\"parallel\"]} ins(%x : $T) outs(%e, %e : $T, $T) { "
        "^bb0(%i: f32, %o: f32, %p: f32): linalg.yield %i, %i : f32, f32 } -> ($T, $T) "
        "%1 = math.exp %0#0 : $T %2 = math.tanh %0#1 {$on $C} : $T return %1, %2 : $T, $T }",
        "empty:b generic:b >c exp:b tanh:c",
    ),
    "written in Motet's own words": (
        'module attributes {motet.default_device = "c"} { $DEVICES '
        'func.func @f(%x: $T {motet.affinity = "b"}) -> $T { %0 = "motet.transfer"(%x) {to = "a"} : ($T) -> $T '
        '%1 = math.exp %0 : $T %2 = math.tanh %1 {motet.affinity = "b|c"} : $T %3 = arith.addf %1, %2 : $T '
        "return %3 : $T } }",
        ">a exp:a >c >b tanh:b >c addf:c",
    ),
    "affinities under other names": (
        "#here = #hal.device.affinity<@b> #there = #hal.device.optimal<[#here, #hal.device.affinity<@c>]> "
        "module { $DEVICES func.func @f(%x: $T {$pin #here}) -> ($T {$pin #there}) { %0 = math.exp %x : $T "
        "return %0 : $T } }",
        "exp:b",
    ),
}


@pytest.mark.parametrize(("text", "expected"), CASES.values(), ids=CASES.keys())
def test_operations_run_and_values_move_as_is_said(text: str, expected: str):
    body = spelled(text.replace("$DEVICES", DEVICES) if "$DEVICES" in text else DEVICES + text)
    assert described(place(read(body))) == expected
