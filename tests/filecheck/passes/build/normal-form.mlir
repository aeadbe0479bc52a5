// RUN: motet opt %s --pipeline normal-form | filecheck %s

// Element-wise operations become linalg, large constants data.
// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg0: tensor<2x2xf32>, %arg1: tensor<2x2xf32> {motet.parameter = "constant_0"}) -> tensor<2x2xf32>
// CHECK-NOT: dense<
// CHECK: linalg.matmul ins(%arg0, %arg1
// CHECK: linalg.generic
// CHECK: math.exp %{{.*}} : f32
func.func @main(%x: tensor<2x2xf32>) -> tensor<2x2xf32> {
  %w = arith.constant dense<2.0> : tensor<2x2xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x2xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x2xf32>) -> tensor<2x2xf32>
  %0 = linalg.matmul ins(%x, %w : tensor<2x2xf32>, tensor<2x2xf32>) outs(%f : tensor<2x2xf32>) -> tensor<2x2xf32>
  %1 = math.exp %0 : tensor<2x2xf32>
  return %1 : tensor<2x2xf32>
}

// Small constants stay, and so do assertions, which kernels check.
// CHECK-LABEL: func.func @small(
// CHECK-SAME: %arg0: tensor<2xf32>, %arg1: tensor<i1>)
// CHECK: arith.constant dense<[1.000000e+00, 2.000000e+00]>
// CHECK: cf.assert
func.func @small(%x: tensor<2xf32>, %p: tensor<i1>) -> tensor<2xf32> {
  %holds = tensor.extract %p[] : tensor<i1>
  cf.assert %holds, "p must hold"
  %w = arith.constant dense<[1.0, 2.0]> : tensor<2xf32>
  %0 = arith.addf %x, %w : tensor<2xf32>
  return %0 : tensor<2xf32>
}
