// RUN: motet opt %s --pipeline compute-slices | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#row = affine_map<(a, b) -> (a, 0)>

// Both slices are computed from slices of what the operation read; what only has one column is read as it is.
// CHECK-LABEL: func.func @columns
// CHECK: %[[A:.*]] = tensor.extract_slice %arg0[0, 0] [5, 1] [1, 1]
// CHECK: %[[X:.*]] = linalg.generic {{.*}} ins(%[[A]], %arg1 : tensor<5x1xf32>, tensor<5x1xf32>)
// CHECK: %[[B:.*]] = tensor.extract_slice %arg0[0, 2] [5, 2] [1, 1]
// CHECK: %[[Y:.*]] = linalg.generic {{.*}} ins(%[[B]], %arg1 : tensor<5x2xf32>, tensor<5x1xf32>)
// CHECK: return %[[X]], %[[Y]], %[[X]]
func.func @columns(%x: tensor<5x4xf32>, %y: tensor<5x1xf32>) -> (tensor<5x1xf32>, tensor<5x2xf32>, tensor<5x1xf32>) {
  %e = tensor.empty() : tensor<5x4xf32>
  %s = linalg.generic {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %y : tensor<5x4xf32>, tensor<5x1xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %other: f32, %out: f32):
    %v = arith.addf %in, %other : f32
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  %a = tensor.extract_slice %s[0, 0] [5, 1] [1, 1] : tensor<5x4xf32> to tensor<5x1xf32>
  %b = tensor.extract_slice %s[0, 2] [5, 2] [1, 1] : tensor<5x4xf32> to tensor<5x2xf32>
  %c = tensor.extract_slice %s[0, 0] [5, 1] [1, 1] : tensor<5x4xf32> to tensor<5x1xf32>
  return %a, %b, %c : tensor<5x1xf32>, tensor<5x2xf32>, tensor<5x1xf32>
}

// Elements that two slices share would be computed twice.
// CHECK-LABEL: func.func @overlapping
// CHECK: linalg.generic
// CHECK: tensor.extract_slice
// CHECK: tensor.extract_slice
func.func @overlapping(%x: tensor<5x4xf32>) -> (tensor<5x3xf32>, tensor<5x2xf32>) {
  %e = tensor.empty() : tensor<5x4xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<5x4xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  %a = tensor.extract_slice %s[0, 0] [5, 3] [1, 1] : tensor<5x4xf32> to tensor<5x3xf32>
  %b = tensor.extract_slice %s[0, 2] [5, 2] [1, 1] : tensor<5x4xf32> to tensor<5x2xf32>
  return %a, %b : tensor<5x3xf32>, tensor<5x2xf32>
}

// The end of a product stays in the product's kernel.
// CHECK-LABEL: func.func @product
// CHECK: math.exp {{.*}}
// CHECK: tensor.extract_slice
func.func @product(%x: tensor<5x4xf32>, %w: tensor<4x4xf32>) -> tensor<5x2xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<5x4xf32>
  %f = linalg.generic {indexing_maps = [affine_map<(a, b) -> ()>, #same], iterator_types = ["parallel", "parallel"]}
      ins(%zero : f32) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<5x4xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (c, b)>,
      affine_map<(a, b, c) -> (a, b)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<5x4xf32>, tensor<4x4xf32>) outs(%f : tensor<5x4xf32>) {
  ^bb0(%l: f32, %r: f32, %sum: f32):
    %m = arith.mulf %l, %r : f32
    %v = arith.addf %sum, %m : f32
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<5x4xf32>) outs(%e : tensor<5x4xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  %a = tensor.extract_slice %s[0, 0] [5, 2] [1, 1] : tensor<5x4xf32> to tensor<5x2xf32>
  return %a : tensor<5x2xf32>
}
