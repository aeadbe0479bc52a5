// RUN: motet opt %s --pipeline repeat-extracts | filecheck %s

#same = affine_map<(a, b) -> (a, b)>

// Columns are repeated twice: index j / 2.
// CHECK-DAG: #[[READ:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-LABEL: func.func @twice
// CHECK: %[[R:.*]] = linalg.generic {indexing_maps = [#[[READ]], {{.*}} ins(%arg0 : tensor<3x5xf32>)
// CHECK-SAME: outs({{.*}} : tensor<3x5x2xf32>)
// CHECK: tensor.collapse_shape %[[R]] {{.*}} : tensor<3x5x2xf32> into tensor<3x10xf32>
func.func @twice(%x: tensor<3x5xf32>) -> tensor<3x10xf32> {
  %two = arith.constant 2.0 : f32
  %e = tensor.empty() : tensor<3x10xf32>
  %r = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<3x10xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %a = arith.index_cast %j : index to i64
    %b = arith.sitofp %a : i64 to f32
    %c = arith.divf %b, %two : f32
    %d = math.floor %c : f32
    %f = arith.fptosi %d : f32 to i64
    %g = arith.index_cast %f : i64 to index
    %v = tensor.extract %x[%i, %g] : tensor<3x5xf32>
    linalg.yield %v : f32
  } -> tensor<3x10xf32>
  return %r : tensor<3x10xf32>
}

// 10 columns of 4 are no whole number of times.
// CHECK-LABEL: func.func @uneven
// CHECK: tensor.extract
func.func @uneven(%x: tensor<3x4xf32>) -> tensor<3x10xf32> {
  %scale = arith.constant 2.5 : f32
  %e = tensor.empty() : tensor<3x10xf32>
  %r = linalg.generic {indexing_maps = [#same], iterator_types = ["parallel", "parallel"]} outs(%e : tensor<3x10xf32>) {
  ^bb0(%out: f32):
    %i = linalg.index 0 : index
    %j = linalg.index 1 : index
    %a = arith.index_cast %j : index to i64
    %b = arith.sitofp %a : i64 to f32
    %c = arith.divf %b, %scale : f32
    %d = math.floor %c : f32
    %f = arith.fptosi %d : f32 to i64
    %g = arith.index_cast %f : i64 to index
    %v = tensor.extract %x[%i, %g] : tensor<3x4xf32>
    linalg.yield %v : f32
  } -> tensor<3x10xf32>
  return %r : tensor<3x10xf32>
}
