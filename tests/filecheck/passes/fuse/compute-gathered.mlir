// RUN: motet opt %s --pipeline compute-gathered | filecheck %s

// What a gather reads from another gather is computed where it is read, with the table of the first one.
// CHECK-LABEL: func.func @both
// CHECK: linalg.generic {{.*}} ins(%arg2
// CHECK: %[[ROW:.*]] = linalg.index 0
// CHECK: %[[COLUMN:.*]] = arith.index_cast
// CHECK: %[[PLACE:.*]] = tensor.extract %arg1[%[[ROW]]]
// CHECK: %[[AT:.*]] = arith.index_cast %[[PLACE]]
// CHECK: tensor.extract %arg0[%[[AT]], %[[COLUMN]]]
// CHECK-NOT: linalg.generic
func.func @both(%x: tensor<9x7xf32>, %i: tensor<5xi64>, %j: tensor<4xi64>) -> tensor<5x4xf32> {
  %e = tensor.empty() : tensor<5x7xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5x7xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 1 : index
    %v = tensor.extract %x[%k, %l] : tensor<9x7xf32>
    linalg.yield %v : f32
  } -> tensor<5x7xf32>
  %f = tensor.empty() : tensor<5x4xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a, b) -> (b)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%j : tensor<4xi64>) outs(%f : tensor<5x4xf32>) {
  ^bb0(%in: i64, %out: f32):
    %l = linalg.index 0 : index
    %k = arith.index_cast %in : i64 to index
    %v = tensor.extract %a[%l, %k] : tensor<5x7xf32>
    linalg.yield %v : f32
  } -> tensor<5x4xf32>
  return %y : tensor<5x4xf32>
}

// A gather with another reader stays.
// CHECK-LABEL: func.func @kept
// CHECK: %[[A:.*]] = linalg.generic
// CHECK: linalg.generic
// CHECK: tensor.extract %[[A]]
func.func @kept(%x: tensor<9xf32>, %i: tensor<5xi64>) -> (tensor<5xf32>, tensor<5xf32>) {
  %e = tensor.empty() : tensor<5xf32>
  %a = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %v = tensor.extract %x[%k] : tensor<9xf32>
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %v = tensor.extract %a[%k] : tensor<5xf32>
    linalg.yield %v : f32
  } -> tensor<5xf32>
  return %a, %y : tensor<5xf32>, tensor<5xf32>
}

// Few elements of a difference that is also read otherwise are computed where they are read; many are read from memory.
// CHECK-LABEL: func.func @few
// CHECK-SAME: %[[X:.*]]: tensor<64x100xf32>, %[[M:.*]]: tensor<64x1xf32>
// CHECK: linalg.generic
// CHECK: linalg.generic
// CHECK: %[[L:.*]] = tensor.extract %[[X]]
// CHECK: %[[R:.*]] = tensor.extract %[[M]]
// CHECK: arith.subf %[[L]], %[[R]]
// CHECK-LABEL: func.func @many
// CHECK: %[[D:.*]] = linalg.generic
// CHECK: tensor.extract %[[D]]
#same = affine_map<(a, b) -> (a, b)>
func.func @few(%x: tensor<64x100xf32>, %m: tensor<64x1xf32>, %i: tensor<64xi64>)
    -> (tensor<64x100xf32>, tensor<64xf32>) {
  %e = tensor.empty() : tensor<64x100xf32>
  %d = linalg.generic {indexing_maps = [#same, affine_map<(a, b) -> (a, 0)>, #same],
      iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<64x100xf32>, tensor<64x1xf32>)
      outs(%e : tensor<64x100xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %v = arith.subf %p, %q : f32
    linalg.yield %v : f32
  } -> tensor<64x100xf32>
  %f = tensor.empty() : tensor<64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<64xi64>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 0 : index
    %v = tensor.extract %d[%l, %k] : tensor<64x100xf32>
    linalg.yield %v : f32
  } -> tensor<64xf32>
  return %d, %y : tensor<64x100xf32>, tensor<64xf32>
}

func.func @many(%x: tensor<64x100xf32>, %m: tensor<64x1xf32>, %i: tensor<64x20xi64>) -> tensor<64x20xf32> {
  %e = tensor.empty() : tensor<64x100xf32>
  %d = linalg.generic {indexing_maps = [#same, affine_map<(a, b) -> (a, 0)>, #same],
      iterator_types = ["parallel", "parallel"]} ins(%x, %m : tensor<64x100xf32>, tensor<64x1xf32>)
      outs(%e : tensor<64x100xf32>) {
  ^bb0(%p: f32, %q: f32, %out: f32):
    %v = arith.subf %p, %q : f32
    linalg.yield %v : f32
  } -> tensor<64x100xf32>
  %f = tensor.empty() : tensor<64x20xf32>
  %y = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%i : tensor<64x20xi64>) outs(%f : tensor<64x20xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 0 : index
    %v = tensor.extract %d[%l, %k] : tensor<64x100xf32>
    linalg.yield %v : f32
  } -> tensor<64x20xf32>
  return %y : tensor<64x20xf32>
}

// What a product's kernel stores in any case is read from memory.
// CHECK-LABEL: func.func @product
// CHECK: arith.addf
// CHECK: %[[D:.*]] = linalg.generic
// CHECK: tensor.extract %[[D]]
func.func @product(%x: tensor<64x9xf32>, %w: tensor<9x100xf32>, %b: tensor<64x100xf32>, %i: tensor<64xi64>)
    -> tensor<64xf32> {
  %e = tensor.empty() : tensor<64x100xf32>
  %p = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a, c)>, affine_map<(a, b, c) -> (c, b)>,
      affine_map<(a, b, c) -> (a, b)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%x, %w : tensor<64x9xf32>, tensor<9x100xf32>) outs(%b : tensor<64x100xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %m = arith.mulf %l, %r : f32
    %v = arith.addf %m, %out : f32
    linalg.yield %v : f32
  } -> tensor<64x100xf32>
  %d = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<64x100xf32>) outs(%e : tensor<64x100xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.tanh %in : f32
    linalg.yield %v : f32
  } -> tensor<64x100xf32>
  %f = tensor.empty() : tensor<64xf32>
  %y = linalg.generic {indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} ins(%i : tensor<64xi64>) outs(%f : tensor<64xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %l = linalg.index 0 : index
    %v = tensor.extract %d[%l, %k] : tensor<64x100xf32>
    linalg.yield %v : f32
  } -> tensor<64xf32>
  return %y : tensor<64xf32>
}
