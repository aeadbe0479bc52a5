// RUN: motet opt %s --pipeline resolve-flow | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: tensor.splat
// CHECK-NOT: flow.tensor
func.func @main(%v: f32) -> tensor<4xf32> {
  %0 = flow.tensor.splat %v : tensor<4xf32>
  return %0 : tensor<4xf32>
}
