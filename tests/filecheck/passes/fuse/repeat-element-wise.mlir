// RUN: motet opt %s --pipeline repeat-element-wise | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#column = affine_map<(a, b) -> (0, b)>

// The difference is computed again for the sum of squares over rows; the last operation reads the first one.
// CHECK-LABEL: func.func @standardised
// CHECK: %[[FIRST:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1
// CHECK: %[[AGAIN:.*]] = linalg.generic {{.*}} ins(%arg0, %arg1
// CHECK: %[[SUM:.*]] = linalg.generic {{.*}} ins(%[[AGAIN]] :
// CHECK: linalg.generic {{.*}} ins(%[[FIRST]], %[[SUM]]
func.func @standardised(%x: tensor<7x5xf32>, %mean: tensor<1x5xf32>, %zero: tensor<1x5xf32>) -> tensor<7x5xf32> {
  %e = tensor.empty() : tensor<7x5xf32>
  %c = linalg.generic {indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %mean : tensor<7x5xf32>, tensor<1x5xf32>) outs(%e : tensor<7x5xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %v = arith.subf %in, %other : f32
    linalg.yield %v : f32
  } -> tensor<7x5xf32>
  %s = linalg.generic {indexing_maps = [#same, #column], iterator_types = ["reduction", "parallel"]}
      ins(%c : tensor<7x5xf32>) outs(%zero : tensor<1x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.mulf %in, %in : f32
    %w = arith.addf %out, %v : f32
    linalg.yield %w : f32
  } -> tensor<1x5xf32>
  %y = linalg.generic {indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
      ins(%c, %s : tensor<7x5xf32>, tensor<1x5xf32>) outs(%e : tensor<7x5xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %v = arith.mulf %in, %other : f32
    linalg.yield %v : f32
  } -> tensor<7x5xf32>
  return %y : tensor<7x5xf32>
}

// Along rows, all is one kernel; and two operands of the result's extents would both be read again.
// CHECK-LABEL: func.func @rows
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
func.func @rows(%x: tensor<7x5xf32>, %z: tensor<7xf32>) -> (tensor<7x5xf32>, tensor<7xf32>) {
  %e = tensor.empty() : tensor<7x5xf32>
  %c = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.negf %in : f32
    linalg.yield %v : f32
  } -> tensor<7x5xf32>
  %s = linalg.generic {indexing_maps = [#same, affine_map<(a, b) -> (a)>], iterator_types = ["parallel", "reduction"]}
      ins(%c : tensor<7x5xf32>) outs(%z : tensor<7xf32>) {
  ^bb0(%in: f32, %out: f32):
    %w = arith.addf %out, %in : f32
    linalg.yield %w : f32
  } -> tensor<7xf32>
  return %c, %s : tensor<7x5xf32>, tensor<7xf32>
}

// CHECK-LABEL: func.func @two
// CHECK-COUNT-2: linalg.generic
// CHECK-NOT: linalg.generic
func.func @two(%x: tensor<7x5xf32>, %y: tensor<7x5xf32>, %z: tensor<5xf32>) -> (tensor<7x5xf32>, tensor<5xf32>) {
  %e = tensor.empty() : tensor<7x5xf32>
  %c = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<7x5xf32>, tensor<7x5xf32>) outs(%e : tensor<7x5xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %v = arith.subf %in, %other : f32
    linalg.yield %v : f32
  } -> tensor<7x5xf32>
  %s = linalg.generic {indexing_maps = [#same, affine_map<(a, b) -> (b)>], iterator_types = ["reduction", "parallel"]}
      ins(%c : tensor<7x5xf32>) outs(%z : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %w = arith.addf %out, %in : f32
    linalg.yield %w : f32
  } -> tensor<5xf32>
  return %c, %s : tensor<7x5xf32>, tensor<5xf32>
}
