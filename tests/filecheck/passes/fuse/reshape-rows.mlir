// RUN: motet opt %s --pipeline reshape-rows | filecheck %s

#p = affine_map<(i, j) -> (i, j)>
#r = affine_map<(i, j) -> (i)>
#a = affine_map<(i, j, k) -> (i, j, k)>
#c = affine_map<(i, j, k) -> (j)>

// The sum of each row, what divides by it, and the scale of each channel run over 2x4x8; the reshape stands before.
// CHECK-LABEL: func.func @main
// CHECK: tensor.expand_shape %arg0 {{.*}} into tensor<2x4x8xf32>
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "reduction", "reduction"]
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "parallel"]
// CHECK: arith.divf
// CHECK-NOT: tensor.expand_shape
// CHECK: arith.mulf
func.func @main(%x: tensor<2x32xf32>, %scale: tensor<4xf32>) -> tensor<2x4x8xf32> {
  %zero = arith.constant 0.0 : f32
  %re = tensor.empty() : tensor<2xf32>
  %begin = linalg.generic {indexing_maps = [affine_map<(i) -> ()>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%zero : f32) outs(%re : tensor<2xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<2xf32>
  %sum = linalg.generic {indexing_maps = [#p, #r], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<2x32xf32>) outs(%begin : tensor<2xf32>) {
  ^bb0(%v: f32, %s: f32):
    %w = arith.addf %v, %s : f32
    linalg.yield %w : f32
  } -> tensor<2xf32>
  %we = tensor.empty() : tensor<2x32xf32>
  %normal = linalg.generic {indexing_maps = [#p, #r, #p], iterator_types = ["parallel", "parallel"]}
      ins(%x, %sum : tensor<2x32xf32>, tensor<2xf32>) outs(%we : tensor<2x32xf32>) {
  ^bb0(%v: f32, %s: f32, %o: f32):
    %d = arith.divf %v, %s : f32
    linalg.yield %d : f32
  } -> tensor<2x32xf32>
  %e = tensor.expand_shape %normal [[0], [1, 2]] output_shape [2, 4, 8] : tensor<2x32xf32> into tensor<2x4x8xf32>
  %ye = tensor.empty() : tensor<2x4x8xf32>
  %y = linalg.generic {indexing_maps = [#a, #c, #a], iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%e, %scale : tensor<2x4x8xf32>, tensor<4xf32>) outs(%ye : tensor<2x4x8xf32>) {
  ^bb0(%v: f32, %s: f32, %o: f32):
    %d = arith.mulf %v, %s : f32
    linalg.yield %d : f32
  } -> tensor<2x4x8xf32>
  return %y : tensor<2x4x8xf32>
}
