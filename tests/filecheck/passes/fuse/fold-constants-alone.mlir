// RUN: motet opt %s --pipeline normalise,outline-kernels,fold-constants | filecheck %s

// The root of a number that all channels share and a table of places are computed now, without operands.
// CHECK-LABEL: func.func @main
// CHECK-SAME: tensor<64xf32> {motet.parameter = "folded_
// CHECK-SAME: tensor<64xi64> {motet.parameter = "folded_
// CHECK-SAME: -> (tensor<64xi64>, tensor<64x16xf32>)
// CHECK-NOT: linalg.index
#one = affine_map<(i) -> (i)>
#two = affine_map<(i, j) -> (i, j)>
#row = affine_map<(i, j) -> (i)>
func.func @main(%x: tensor<64x16xf32>) -> (tensor<64xi64>, tensor<64x16xf32>) {
  %w = arith.constant dense<2.0> : tensor<64xf32>
  %re = tensor.empty() : tensor<64xf32>
  %root = linalg.generic {indexing_maps = [#one, #one], iterator_types = ["parallel"]} ins(%w : tensor<64xf32>) outs(%re : tensor<64xf32>) {
  ^body(%v: f32, %o: f32):
    %r = math.sqrt %v : f32
    linalg.yield %r : f32
  } -> tensor<64xf32>
  %pe = tensor.empty() : tensor<64xi64>
  %places = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]} outs(%pe : tensor<64xi64>) {
  ^body(%o: i64):
    %i = linalg.index 0 : index
    %n = arith.index_cast %i : index to i64
    linalg.yield %n : i64
  } -> tensor<64xi64>
  %ye = tensor.empty() : tensor<64x16xf32>
  %y = linalg.generic {indexing_maps = [#two, #row, #two], iterator_types = ["parallel", "parallel"]} ins(%x, %root : tensor<64x16xf32>, tensor<64xf32>) outs(%ye : tensor<64x16xf32>) {
  ^body(%v: f32, %r: f32, %o: f32):
    %m = arith.mulf %v, %r : f32
    linalg.yield %m : f32
  } -> tensor<64x16xf32>
  return %places, %y : tensor<64xi64>, tensor<64x16xf32>
}
