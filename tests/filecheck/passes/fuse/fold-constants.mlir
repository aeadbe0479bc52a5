// RUN: motet opt %s --pipeline normalise,outline-kernels,fold-constants | filecheck %s

// The square of a constant is computed now; what it is multiplied with is not.
// CHECK-LABEL: func.func @main
// CHECK-SAME: {motet.parameter = "folded_1"}
// CHECK-NEXT: %[[R:.*]] = call @main_kernel_1(%arg0, %arg2)
// CHECK-NEXT: return %[[R]]
// CHECK-NOT: @main_kernel_0
func.func @main(%x: tensor<2x4xf32>) -> tensor<2x1xf32> {
  %w = arith.constant dense<[1.0, 2.0, 3.0, 4.0]> : tensor<4xf32>
  %e = tensor.empty() : tensor<4xf32>
  %s = linalg.square ins(%w : tensor<4xf32>) outs(%e : tensor<4xf32>) -> tensor<4xf32>
  %m = tensor.expand_shape %s [[0, 1]] output_shape [4, 1] : tensor<4xf32> into tensor<4x1xf32>
  %zero = arith.constant 0.0 : f32
  %a = tensor.empty() : tensor<2x1xf32>
  %f = linalg.fill ins(%zero : f32) outs(%a : tensor<2x1xf32>) -> tensor<2x1xf32>
  %r = linalg.matmul ins(%x, %m : tensor<2x4xf32>, tensor<4x1xf32>) outs(%f : tensor<2x1xf32>) -> tensor<2x1xf32>
  return %r : tensor<2x1xf32>
}
