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
