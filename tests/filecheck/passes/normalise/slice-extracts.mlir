// RUN: motet opt %s --pipeline slice-extracts | filecheck %s

// CHECK-LABEL: func.func @layer
// CHECK: tensor.extract_slice %arg0[3, 0, 0] [1, 4, 5] [1, 1, 1] : tensor<6x4x5xf32> to tensor<1x4x5xf32>
// CHECK-NOT: linalg.generic
func.func @layer(%x: tensor<6x4x5xf32>) -> tensor<1x4x5xf32> {
  %k = arith.constant dense<3> : tensor<1xi64>
  %0 = tensor.empty() : tensor<1x4x5xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b, c) -> (a)>, affine_map<(a, b, c) -> (a, b, c)>],
      iterator_types = ["parallel", "parallel", "parallel"]}
      ins(%k : tensor<1xi64>) outs(%0 : tensor<1x4x5xf32>) {
  ^bb0(%in: i64, %out: f32):
    %i = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %l = linalg.index 2 : index
    %v = tensor.extract %x[%i, %j, %l] : tensor<6x4x5xf32>
    linalg.yield %v : f32
  } -> tensor<1x4x5xf32>
  return %r : tensor<1x4x5xf32>
}
