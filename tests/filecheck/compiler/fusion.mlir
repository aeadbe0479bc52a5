// What becomes one kernel.
// RUN: motet compile %s --emit kernels | filecheck %s

// CHECK-LABEL: func.func @matmul_bias_relu
// CHECK-NEXT: call @matmul_bias_relu_kernel_0
// CHECK-NEXT: return
func.func @matmul_bias_relu(%a: tensor<8x16xf32>, %b: tensor<16x32xf32>, %c: tensor<32xf32>) -> tensor<8x32xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x32xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %m = linalg.matmul ins(%a, %b : tensor<8x16xf32>, tensor<16x32xf32>) outs(%f : tensor<8x32xf32>) -> tensor<8x32xf32>
  %bias = linalg.broadcast ins(%c : tensor<32xf32>) outs(%e : tensor<8x32xf32>) dimensions = [0]
  %s = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%m, %bias : tensor<8x32xf32>, tensor<8x32xf32>)
    outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  %r = linalg.elementwise kind=#linalg.elementwise_kind<max_signed> ins(%s, %f : tensor<8x32xf32>, tensor<8x32xf32>)
    outs(%e : tensor<8x32xf32>) -> tensor<8x32xf32>
  return %r : tensor<8x32xf32>
}

// A transposition before an element-wise operation is a view; before a result it is a kernel.
// CHECK-LABEL: func.func @transposes
// CHECK-COUNT-2: call @transposes_kernel
// CHECK-NEXT: return
func.func @transposes(%a: tensor<4x8xf32>, %b: tensor<8x4xf32>) -> (tensor<8x4xf32>, tensor<4x8xf32>) {
  %e = tensor.empty() : tensor<8x4xf32>
  %g = tensor.empty() : tensor<4x8xf32>
  %t = linalg.transpose ins(%a : tensor<4x8xf32>) outs(%e : tensor<8x4xf32>) permutation = [1, 0]
  %s = linalg.elementwise kind=#linalg.elementwise_kind<add> ins(%t, %b : tensor<8x4xf32>, tensor<8x4xf32>)
    outs(%e : tensor<8x4xf32>) -> tensor<8x4xf32>
  %u = linalg.transpose ins(%s : tensor<8x4xf32>) outs(%g : tensor<4x8xf32>) permutation = [1, 0]
  return %s, %u : tensor<8x4xf32>, tensor<4x8xf32>
}

// Two products cannot be one kernel.
// CHECK-LABEL: func.func @two_products
// CHECK: call @two_products_kernel_0
// CHECK-NEXT: call @two_products_kernel_1
// CHECK-NEXT: return
func.func @two_products(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %z = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x8xf32>
  %f = linalg.fill ins(%z : f32) outs(%e : tensor<8x8xf32>) -> tensor<8x8xf32>
  %m = linalg.matmul ins(%a, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  %n = linalg.matmul ins(%m, %b : tensor<8x8xf32>, tensor<8x8xf32>) outs(%f : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %n : tensor<8x8xf32>
}
