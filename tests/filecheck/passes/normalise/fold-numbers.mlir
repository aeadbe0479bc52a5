// RUN: motet opt %s --pipeline fold-numbers | filecheck %s

#none = affine_map<() -> ()>

// CHECK-LABEL: func.func @root
// CHECK: %[[ROOT:.*]] = arith.constant dense<1.41421354> : tensor<f32>
// CHECK: return %[[ROOT]]
func.func @root() -> tensor<f32> {
  %two = arith.constant dense<2.0> : tensor<f32>
  %e = tensor.empty() : tensor<f32>
  %r = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
      ins(%two : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = math.sqrt %in : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}

// A number of an argument, and a function that is not exact.
// CHECK-LABEL: func.func @kept
// CHECK: math.sqrt
// CHECK: math.exp
func.func @kept(%x: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %two = arith.constant dense<2.0> : tensor<f32>
  %e = tensor.empty() : tensor<f32>
  %r = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
      ins(%x : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = math.sqrt %in : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  %p = linalg.generic {indexing_maps = [#none, #none], iterator_types = []}
      ins(%two : tensor<f32>) outs(%e : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = math.exp %in : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r, %p : tensor<f32>, tensor<f32>
}
