// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),sink-reshapes' | filecheck %s

#same = affine_map<(a, b, c) -> (a, b, c)>
#last = affine_map<(a, b, c) -> (c)>

// CHECK-LABEL: func.func @main
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1
// CHECK: %[[BIAS:.*]] = linalg.generic {{.*}} ins(%[[SUM]], %arg3 : tensor<8x16xf32>, tensor<16xf32>)
// CHECK: tensor.expand_shape %[[BIAS]] {{.*}} into tensor<2x4x16xf32>
func.func @main(
    %x: tensor<8x4xf32>, %w: tensor<4x16xf32>, %begin: tensor<8x16xf32>, %bias: tensor<16xf32>
) -> tensor<2x4x16xf32> {
  %p = linalg.matmul ins(%x, %w : tensor<8x4xf32>, tensor<4x16xf32>) outs(%begin : tensor<8x16xf32>) -> tensor<8x16xf32>
  %e = tensor.expand_shape %p [[0, 1], [2]] output_shape [2, 4, 16] : tensor<8x16xf32> into tensor<2x4x16xf32>
  %o = tensor.empty() : tensor<2x4x16xf32>
  %g = linalg.generic {indexing_maps = [#same, #last, #same], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %bias : tensor<2x4x16xf32>, tensor<16xf32>) outs(%o : tensor<2x4x16xf32>) {
  ^bb0(%in: f32, %b: f32, %out: f32):
    %v = arith.addf %in, %b : f32
    linalg.yield %v : f32
  } -> tensor<2x4x16xf32>
  return %g : tensor<2x4x16xf32>
}
