// RUN: motet opt %s --pipeline normalise,fuse-attention | filecheck %s

// CHECK-LABEL: func.func @attention
// CHECK: linalg.generic {{.*}}motet.attention = 0
// CHECK: arith.mulf
// CHECK: math.exp
// CHECK: linalg.generic {{.*}}motet.attention = 0
func.func @attention(
    %q: tensor<2x16x8xf32>, %k: tensor<2x8x16xf32>, %v: tensor<2x16x8xf32>
) -> tensor<2x16x8xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x16x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x16x8xf32>, tensor<2x8x16xf32>) outs(%f : tensor<2x16x16xf32>)
    -> tensor<2x16x16xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x16x16xf32>) outs(%e : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %o = tensor.empty() : tensor<2x16x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%o : tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x16x16xf32>, tensor<2x16x8xf32>) outs(%g : tensor<2x16x8xf32>)
    -> tensor<2x16x8xf32>
  return %r : tensor<2x16x8xf32>
}

// Scores that are read elsewhere, too, stay.
// CHECK-LABEL: func.func @scores_are_a_result
// CHECK-NOT: motet.attention
func.func @scores_are_a_result(
    %q: tensor<2x16x8xf32>, %k: tensor<2x8x16xf32>, %v: tensor<2x16x8xf32>
) -> (tensor<2x16x8xf32>, tensor<2x16x16xf32>) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<2x16x16xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %s = linalg.batch_matmul ins(%q, %k : tensor<2x16x8xf32>, tensor<2x8x16xf32>) outs(%f : tensor<2x16x16xf32>)
    -> tensor<2x16x16xf32>
  %p = linalg.softmax dimension(2) ins(%s : tensor<2x16x16xf32>) outs(%e : tensor<2x16x16xf32>) -> tensor<2x16x16xf32>
  %o = tensor.empty() : tensor<2x16x8xf32>
  %g = linalg.fill ins(%zero : f32) outs(%o : tensor<2x16x8xf32>) -> tensor<2x16x8xf32>
  %r = linalg.batch_matmul ins(%p, %v : tensor<2x16x16xf32>, tensor<2x16x8xf32>) outs(%g : tensor<2x16x8xf32>)
    -> tensor<2x16x8xf32>
  return %r, %p : tensor<2x16x8xf32>, tensor<2x16x16xf32>
}
