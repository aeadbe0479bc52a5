// Passes of upstream MLIR run under `motet opt`.
// RUN: motet opt %s --pipeline canonicalize | filecheck %s
// RUN: motet opt %s --pipeline 'func.func(cse)' | filecheck %s --check-prefix=SAME

// CHECK-LABEL: func.func @folds
// SAME-LABEL: func.func @folds
func.func @folds(%x: i32) -> i32 {
  // CHECK-NOT: arith.constant
  // CHECK: return %arg0
  // SAME: arith.constant 0
  // SAME: arith.addi
  %zero = arith.constant 0 : i32
  %sum = arith.addi %x, %zero : i32
  return %sum : i32
}
