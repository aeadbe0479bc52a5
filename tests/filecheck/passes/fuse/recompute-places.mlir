// RUN: motet opt %s --pipeline recompute-places | filecheck %s

#same = affine_map<(a) -> (a)>

// CHECK-LABEL: func.func @places
// CHECK: linalg.generic {{.*}}motet.places
func.func @places() -> tensor<50xi32> {
  %e = tensor.empty() : tensor<50xi32>
  %s = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel"]} outs(%e : tensor<50xi32>) {
  ^bb0(%out: i32):
    %i = linalg.index 0 : index
    %v = arith.index_cast %i : index to i32
    linalg.yield %v : i32
  } -> tensor<50xi32>
  return %s : tensor<50xi32>
}

// Floats, dynamic extents, equal numbers and what reads a tensor stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NOT: motet.places
func.func @others(%x: tensor<50xi32>, %n: index) -> (tensor<50xf32>, tensor<?xi32>, tensor<50xi32>, tensor<50xi32>) {
  %e = tensor.empty() : tensor<50xf32>
  %f = tensor.empty(%n) : tensor<?xi32>
  %g = tensor.empty() : tensor<50xi32>
  %c = arith.constant 3 : i32
  %s = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel"]} outs(%e : tensor<50xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %v = arith.index_cast %i : index to i32
    %w = arith.sitofp %v : i32 to f32
    linalg.yield %w : f32
  } -> tensor<50xf32>
  %t = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel"]} outs(%f : tensor<?xi32>) {
  ^bb0(%out: i32):
    %i = linalg.index 0 : index
    %v = arith.index_cast %i : index to i32
    linalg.yield %v : i32
  } -> tensor<?xi32>
  %u = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel"]} outs(%g : tensor<50xi32>) {
  ^bb0(%out: i32):
    linalg.yield %c : i32
  } -> tensor<50xi32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<50xi32>) outs(%g : tensor<50xi32>) {
  ^bb0(%in: i32, %out: i32):
    %i = linalg.index 0 : index
    %j = arith.index_cast %i : index to i32
    %w = arith.addi %in, %j : i32
    linalg.yield %w : i32
  } -> tensor<50xi32>
  return %s, %t, %u, %v : tensor<50xf32>, tensor<?xi32>, tensor<50xi32>, tensor<50xi32>
}

// Padding is read as a condition where elements are moved or combined, also by way of slices. A product reads memory.
// CHECK-LABEL: func.func @points
// CHECK: tensor.pad {{.*}}
// CHECK: {motet.places}
func.func @points(%x: tensor<5xf32>) -> tensor<7xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[3] high[0] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<5xf32> to tensor<8xf32>
  %a = tensor.extract_slice %p[0] [7] [1] : tensor<8xf32> to tensor<7xf32>
  %b = tensor.extract_slice %p[1] [7] [1] : tensor<8xf32> to tensor<7xf32>
  %e = tensor.empty() : tensor<7xf32>
  %s = linalg.generic {indexing_maps = [#same, #same, #same], iterator_types = ["parallel"]}
      ins(%a, %b : tensor<7xf32>, tensor<7xf32>) outs(%e : tensor<7xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %v = arith.addf %l, %r : f32
    linalg.yield %v : f32
  } -> tensor<7xf32>
  return %s : tensor<7xf32>
}

// CHECK-LABEL: func.func @product
// CHECK-NOT: motet.places
func.func @product(%x: tensor<5x4xf32>, %y: tensor<8x3xf32>, %o: tensor<4x3xf32>) -> tensor<4x3xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[3, 0] high[0, 0] {
  ^bb0(%i: index, %j: index):
    tensor.yield %zero : f32
  } : tensor<5x4xf32> to tensor<8x4xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (k, m)>, affine_map<(m, n, k) -> (k, n)>,
      affine_map<(m, n, k) -> (m, n)>], iterator_types = ["parallel", "parallel", "reduction"]}
      ins(%p, %y : tensor<8x4xf32>, tensor<8x3xf32>) outs(%o : tensor<4x3xf32>) {
  ^bb0(%l: f32, %r: f32, %out: f32):
    %v = arith.mulf %l, %r : f32
    %w = arith.addf %out, %v : f32
    linalg.yield %w : f32
  } -> tensor<4x3xf32>
  return %s : tensor<4x3xf32>
}
