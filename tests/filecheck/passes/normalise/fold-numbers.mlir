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

// A sum of equal numbers is none of them.
// CHECK-LABEL: func.func @sum
// CHECK: linalg.generic
// CHECK: arith.addf
func.func @sum() -> tensor<f32> {
  %ones = arith.constant dense<1.0> : tensor<2x1xf32>
  %zero = arith.constant dense<0.0> : tensor<f32>
  %r = linalg.generic {indexing_maps = [affine_map<(d0, d1) -> (d0, d1)>, affine_map<(d0, d1) -> ()>],
      iterator_types = ["reduction", "reduction"]} ins(%ones : tensor<2x1xf32>) outs(%zero : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %s = arith.addf %in, %out : f32
    linalg.yield %s : f32
  } -> tensor<f32>
  return %r : tensor<f32>
}
