// RUN: motet opt %s --pipeline normalise,outline-kernels | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-NEXT: %[[R:.*]] = call @main_kernel_0
// CHECK-NEXT: return %[[R]]
// CHECK: func.func private @main_kernel_0
// CHECK: arith.mulf
// CHECK: arith.maximumf
func.func @main(%a: tensor<4x8xf32>, %b: tensor<8x16xf32>) -> tensor<4x16xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%a, %b : tensor<4x8xf32>, tensor<8x16xf32>) outs(%f : tensor<4x16xf32>) -> tensor<4x16xf32>
  %r = linalg.elementwise kind=#linalg.elementwise_kind<max_signed> ins(%p, %f : tensor<4x16xf32>, tensor<4x16xf32>)
    outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// Kernels are written in languages whose names have no dots.
// CHECK: func.func private @main_values_kernel_0
func.func @main.values(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = math.exp %x : tensor<4xf32>
  return %0 : tensor<4xf32>
}
