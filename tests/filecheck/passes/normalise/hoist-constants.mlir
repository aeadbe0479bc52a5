// RUN: motet opt %s --pipeline hoist-constants | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-SAME: %arg0: tensor<4xf32>, %arg1: tensor<4xf32> {motet.parameter = "constant_0"}
// CHECK-NEXT: %[[SPLAT:.*]] = arith.constant dense<2.0{{.*}}>
// CHECK-NEXT: %[[SUM:.*]] = arith.addf %arg0, %arg1
// CHECK-NEXT: arith.mulf %[[SUM]], %[[SPLAT]]
func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %two = arith.constant dense<2.0> : tensor<4xf32>
  %0 = arith.addf %x, %w : tensor<4xf32>
  %1 = arith.mulf %0, %two : tensor<4xf32>
  return %1 : tensor<4xf32>
}
