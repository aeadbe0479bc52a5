// RUN: motet opt %s --pipeline scatter-in-place | filecheck %s

// CHECK-LABEL: func.func @cache
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0, 1>} {{.*}} : tensor<20x7xf32>, tensor<20x2xi64>) outs(%arg0 : tensor<4x9x7xf32>)
// CHECK-NOT: linalg.generic
func.func @cache(%x: tensor<4x9x7xf32>, %i: tensor<5x1xi64>, %u: tensor<5x4x7xf32>) -> tensor<4x9x7xf32> {
  %e = tensor.empty() : tensor<9x4x7xf32>
  %t = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (b, a, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%x : tensor<4x9x7xf32>) outs(%e : tensor<9x4x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<9x4x7xf32>
  %s = tm_tensor.scatter {dimension_map = array<i64: 0>} unique_indices(false)
      ins(%u, %i : tensor<5x4x7xf32>, tensor<5x1xi64>) outs(%t : tensor<9x4x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    tm_tensor.yield %a : f32
  } -> tensor<9x4x7xf32>
  %o = tensor.empty() : tensor<4x9x7xf32>
  %y = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (b, a, c)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%s : tensor<9x4x7xf32>) outs(%o : tensor<4x9x7xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<4x9x7xf32>
  return %y : tensor<4x9x7xf32>
}
