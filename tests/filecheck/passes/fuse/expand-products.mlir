// RUN: motet opt %s --pipeline expand-products | filecheck %s

#lhs = affine_map<(m, n, k) -> (m, k)>
#rhs = affine_map<(m, n, k) -> (k, n)>
#out = affine_map<(m, n, k) -> (m, n)>
#id = affine_map<(m, n) -> (m, n)>
#row = affine_map<(m, n) -> (n)>
#none = affine_map<(m, n) -> ()>

// The bias joins the product, which runs over the dimensions of its operand.
// CHECK-LABEL: func.func @bias
// CHECK-NOT: tensor.collapse_shape
// CHECK: %[[p:.*]] = linalg.generic {{.*}}iterator_types = ["parallel", "parallel", "parallel", "reduction"]{{.*}} ins(%arg0, %arg1 : tensor<4x7x64xf32>, tensor<64x128xf32>)
// CHECK: %[[b:.*]] = linalg.generic {{.*}} ins(%[[p]], %arg2 : tensor<4x7x128xf32>, tensor<128xf32>)
// CHECK-NOT: tensor.expand_shape
// CHECK: return %[[b]]
func.func @bias(%x: tensor<4x7x64xf32>, %w: tensor<64x128xf32>, %b: tensor<128xf32>) -> tensor<4x7x128xf32> {
  %zero = arith.constant 0.0 : f32
  %x2 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x7x64xf32> into tensor<28x64xf32>
  %0 = tensor.empty() : tensor<28x128xf32>
  %z = linalg.generic {indexing_maps = [#none, #id], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%0 : tensor<28x128xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<28x128xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x2, %w : tensor<28x64xf32>, tensor<64x128xf32>) outs(%z : tensor<28x128xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %m = arith.mulf %l, %r : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<28x128xf32>
  %q = linalg.generic {indexing_maps = [#id, #row, #id], iterator_types = ["parallel", "parallel"]}
      ins(%p, %b : tensor<28x128xf32>, tensor<128xf32>) outs(%0 : tensor<28x128xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %s = arith.addf %l, %r : f32
    linalg.yield %s : f32
  } -> tensor<28x128xf32>
  %e = tensor.expand_shape %q [[0, 1], [2]] output_shape [4, 7, 128] : tensor<28x128xf32> into tensor<4x7x128xf32>
  return %e : tensor<4x7x128xf32>
}

// The rows are of two dimensions, the columns become two behind the product.
// CHECK-LABEL: func.func @heads
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x7x64xf32>, tensor<64x128xf32>)
// CHECK: tensor.expand_shape %{{.*}} {{\[}}[0], [1], [2, 3]] output_shape [4, 7, 8, 16]
func.func @heads(%x: tensor<4x7x64xf32>, %w: tensor<64x128xf32>, %z: tensor<28x128xf32>) -> tensor<4x7x8x16xf32> {
  %x2 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<4x7x64xf32> into tensor<28x64xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x2, %w : tensor<28x64xf32>, tensor<64x128xf32>) outs(%z : tensor<28x128xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %m = arith.mulf %l, %r : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<28x128xf32>
  %e = tensor.expand_shape %p [[0, 1], [2, 3]] output_shape [4, 7, 8, 16]
      : tensor<28x128xf32> into tensor<4x7x8x16xf32>
  return %e : tensor<4x7x8x16xf32>
}

// 2x14 is not 4x7: the operand stays collapsed.
// CHECK-LABEL: func.func @other
// CHECK: tensor.collapse_shape
func.func @other(%x: tensor<2x14x64xf32>, %w: tensor<64x128xf32>, %z: tensor<28x128xf32>) -> tensor<4x7x128xf32> {
  %x2 = tensor.collapse_shape %x [[0, 1], [2]] : tensor<2x14x64xf32> into tensor<28x64xf32>
  %p = linalg.generic {indexing_maps = [#lhs, #rhs, #out], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x2, %w : tensor<28x64xf32>, tensor<64x128xf32>) outs(%z : tensor<28x128xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %m = arith.mulf %l, %r : f32
    %s = arith.addf %out, %m : f32
    linalg.yield %s : f32
  } -> tensor<28x128xf32>
  %e = tensor.expand_shape %p [[0, 1], [2]] output_shape [4, 7, 128] : tensor<28x128xf32> into tensor<4x7x128xf32>
  return %e : tensor<4x7x128xf32>
}
