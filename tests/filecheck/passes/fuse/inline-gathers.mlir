// RUN: motet opt %s --pipeline inline-gathers | filecheck %s

// Two gathers and the product that alone reads them are one operation.
// CHECK-LABEL: func.func @product
// CHECK: linalg.generic {{.*}} ins(%arg1, %arg2
// CHECK: tensor.extract %arg0
// CHECK: tensor.extract %arg0
// CHECK: arith.mulf
// CHECK-NOT: linalg.generic
func.func @product(%x: tensor<9x7xf32>, %i: tensor<5xi64>, %j: tensor<5xi64>) -> tensor<5x7xf32> {
  %e = tensor.empty() : tensor<5x7xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 1 : index
    %v = tensor.extract %x[%k, %l] : tensor<9x7xf32>
    linalg.yield %v : f32
  } -> tensor<5x7xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%j : tensor<5xi64>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 1 : index
    %v = tensor.extract %x[%k, %l] : tensor<9x7xf32>
    linalg.yield %v : f32
  } -> tensor<5x7xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a, b)>, affine_map<(a, b) -> (a, b)>,
      affine_map<(a, b) -> (a, b)>], iterator_types = ["parallel", "parallel"]}
      ins(%a, %b : tensor<5x7xf32>, tensor<5x7xf32>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %v = arith.mulf %p, %q : f32
    linalg.yield %v : f32
  } -> tensor<5x7xf32>
  return %y : tensor<5x7xf32>
}

// A gather that is also a result stays, and so does one whose reader has a function that is not vectorised with it.
// CHECK-LABEL: func.func @kept
// CHECK: linalg.generic
// CHECK: tensor.extract
// CHECK: linalg.generic
// CHECK: arith.addf
// CHECK: linalg.generic
// CHECK: tensor.extract
// CHECK: linalg.generic
// CHECK: math.exp
func.func @kept(%x: tensor<9xf32>, %i: tensor<5xi64>) -> (tensor<5xf32>, tensor<5xf32>, tensor<5xf32>) {
  %e = tensor.empty() : tensor<5xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %v = tensor.extract %x[%k] : tensor<9xf32>
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%a : tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %out: f32):
    %v = arith.addf %p, %p : f32
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %b = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %v = tensor.extract %x[%k] : tensor<9xf32>
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %z = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%b : tensor<5xf32>) outs(%e : tensor<5xf32>) {
  ^bb0(%p: f32, %out: f32):
    %v = math.exp %p : f32
    linalg.yield %v : f32
  } -> tensor<5xf32>
  return %a, %y, %z : tensor<5xf32>, tensor<5xf32>, tensor<5xf32>
}
