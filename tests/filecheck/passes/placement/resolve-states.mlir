// Globals that functions write become arguments and results; initializers, a function that returns what they are first.
// RUN: motet opt %s --pipeline resolve-states | filecheck %s
// RUN: motet opt %s --pipeline resolve-states,resolve-globals | filecheck %s --check-prefix=RESOLVED

util.global private mutable @s {motet.affinity = "gpu"} = dense<1.0> : tensor<4xf32>
util.global private mutable @n : index
util.global private mutable @never = dense<3.0> : tensor<4xf32>
util.global private @w : tensor<4xf32>

// What initializers do is in one function, and that of the globals that functions write in another.
// RESOLVED-NOT: motet.initializer
util.initializer {
  %v = util.global.load @never : tensor<4xf32>
  %e = math.exp %v : tensor<4xf32>
  util.global.store %e, @w : tensor<4xf32>
  util.global.store %v, @s : tensor<4xf32>
  util.return
}

// One that is read and written: a trailing argument, a trailing result, on the device of the global.
// CHECK-LABEL: func.func @step(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>, %[[S:.*]]: tensor<4xf32> {motet.affinity = "gpu", motet.name = "s", motet.state = "s"})
// CHECK-SAME: -> (tensor<4xf32>, tensor<4xf32> {motet.affinity = "gpu", motet.name = "s", motet.state = "s"})
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %[[S]], %[[X]]
// CHECK-NEXT: return %[[S]], %[[SUM]]
func.func @step(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = util.global.load @s : tensor<4xf32>
  %1 = arith.addf %0, %x : tensor<4xf32>
  util.global.store %1, @s : tensor<4xf32>
  return %0 : tensor<4xf32>
}

// One that is read alone: no result; and one that no function writes stays a global.
// CHECK-LABEL: func.func @get(
// CHECK-SAME: %[[S:.*]]: tensor<4xf32> {{{.*}}motet.state = "s"}) -> (tensor<4xf32>, tensor<4xf32>) {
// CHECK-NEXT: %[[NEVER:.*]] = "util.global.load"() {global = @never}
// CHECK-NEXT: return %[[S]], %[[NEVER]]
func.func @get() -> (tensor<4xf32>, tensor<4xf32>) {
  %0 = util.global.load @s : tensor<4xf32>
  %1 = util.global.load @never : tensor<4xf32>
  return %0, %1 : tensor<4xf32>, tensor<4xf32>
}

// One that is written alone: no argument.
// CHECK-LABEL: func.func @put(
// CHECK-SAME: %[[X:.*]]: tensor<4xf32>) -> (tensor<4xf32> {{{.*}}motet.state = "s"}) {
// CHECK-NEXT: return %[[X]]
func.func @put(%x: tensor<4xf32>) {
  util.global.store %x, @s : tensor<4xf32>
  return
}

// In a branch: what is stored on one side is handed on by the other.
// CHECK-LABEL: func.func @branch(
// CHECK-SAME: %[[C:.*]]: i1, %[[X:.*]]: tensor<4xf32>, %[[S:[^ ]*]]: tensor<4xf32>
// CHECK: %[[R:.*]] = scf.if %[[C]] -> (tensor<4xf32>) {
// CHECK-NEXT: scf.yield %[[X]]
// CHECK-NEXT: } else {
// CHECK-NEXT: scf.yield %[[S]]
// CHECK: return %[[R]]
func.func @branch(%c: i1, %x: tensor<4xf32>) {
  scf.if %c {
    util.global.store %x, @s : tensor<4xf32>
  }
  return
}

// In a loop, by a call: handed from iteration to iteration; an index is an i64 as an argument.
// CHECK-LABEL: func.func @loop(
// CHECK-SAME: %[[K:[^ ]*]]: index, %[[N:[^ ]*]]: i64
// CHECK: %[[FIRST:.*]] = arith.index_cast %[[N]] : i64 to index
// CHECK: %[[R:.*]] = scf.for {{.*}} iter_args(%[[I:.*]] = %[[FIRST]]) -> (index) {
// CHECK-NEXT: %[[GIVEN:.*]] = arith.index_cast %[[I]] : index to i64
// CHECK-NEXT: %[[CALL:.*]] = func.call @count(%[[GIVEN]]) : (i64) -> i64
// CHECK-NEXT: %[[NEXT:.*]] = arith.index_cast %[[CALL]] : i64 to index
// CHECK-NEXT: scf.yield %[[NEXT]]
func.func @loop(%k: index) {
  %0 = arith.constant 0 : index
  %1 = arith.constant 1 : index
  scf.for %i = %0 to %k step %1 {
    func.call @count() : () -> ()
  }
  return
}

// CHECK-LABEL: func.func private @count(
// CHECK-NOT: motet.state
func.func private @count() {
  %0 = util.global.load @n : index
  %1 = arith.constant 1 : index
  %2 = arith.addi %0, %1 : index
  util.global.store %2, @n : index
  return
}

// CHECK-LABEL: func.func private @motet.initializer.0()
// CHECK: %[[W:.*]] = math.exp
// CHECK: "util.global.store"(%[[W]]) {global = @w}
// CHECK-NOT: util.global.store

// RESOLVED-LABEL: func.func @motet.initial_state()
// RESOLVED-SAME: motet.state = "s"}, i64 {motet.name = "n", motet.state = "n"})
// RESOLVED: %[[S:.*]] = arith.constant dense<3.0
// RESOLVED: %[[N:.*]] = arith.index_cast
// RESOLVED: return %[[S]], %[[N]]
