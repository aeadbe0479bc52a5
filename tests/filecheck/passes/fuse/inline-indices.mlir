// RUN: motet opt %s --pipeline inline-indices | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK-COUNT-1: linalg.generic
// CHECK-SAME: ins(%arg0 : tensor<4xi64>)
// CHECK: arith.cmpi
// CHECK: arith.select
// CHECK: tensor.extract %arg1
// CHECK-NOT: linalg.generic
func.func @main(%i: tensor<4xi64>, %table: tensor<32x8xf32>) -> tensor<4x8xf32> {
  %zero = arith.constant 0 : i64
  %rows = arith.constant 32 : i64
  %e = tensor.empty() : tensor<4xi64>
  %n = linalg.generic {
      indexing_maps = [affine_map<(a) -> (a)>, affine_map<(a) -> (a)>], iterator_types = ["parallel"]}
      ins(%i : tensor<4xi64>) outs(%e : tensor<4xi64>) {
  ^bb0(%in: i64, %out: i64):
    %c = arith.cmpi slt, %in, %zero : i64
    %m = arith.addi %in, %rows : i64
    %s = arith.select %c, %m, %in : i64
    linalg.yield %s : i64
  } -> tensor<4xi64>
  %o = tensor.empty() : tensor<4x8xf32>
  %r = linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]}
      ins(%n : tensor<4xi64>) outs(%o : tensor<4x8xf32>) {
  ^bb0(%in: i64, %out: f32):
    %k = arith.index_cast %in : i64 to index
    %j = linalg.index 1 : index
    %v = tensor.extract %table[%k, %j] : tensor<32x8xf32>
    linalg.yield %v : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
