// RUN: motet opt %s --pipeline resolve-extracts | filecheck %s

// CHECK: #[[COLUMN:.*]] = affine_map<(d0, d1) -> (d0, 0)>
// CHECK-LABEL: func.func @column
// CHECK: linalg.generic {indexing_maps = [#[[COLUMN]], {{.*}} ins(%arg0 : tensor<4x1xf32>)
// CHECK-NOT: tensor.extract
func.func @column(%x: tensor<4x1xf32>) -> tensor<4x8xf32> {
  %c0 = arith.constant 0 : index
  %0 = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      outs(%0 : tensor<4x8xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %v = tensor.extract %x[%i, %c0] : tensor<4x1xf32>
    linalg.yield %v : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
