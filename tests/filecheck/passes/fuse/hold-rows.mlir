// RUN: motet opt %s --pipeline hold-rows | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#column = affine_map<(a, b) -> (b)>
#row = affine_map<(a, b) -> (a)>

// CHECK-LABEL: func.func @columns
// CHECK: linalg.generic {{.*}}motet.held
func.func @columns(%x: tensor<70x50xf32>, %begin: tensor<50xf32>) -> tensor<50xf32> {
  %s = linalg.generic {indexing_maps = [#same, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<70x50xf32>) outs(%begin : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  return %s : tensor<50xf32>
}

// Columns that no program holds, few columns, and rows along memory stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NOT: motet.held
func.func @others(%x: tensor<7000x50xf32>, %y: tensor<70x5xf32>, %a: tensor<50xf32>, %b: tensor<5xf32>,
    %c: tensor<70xf32>) -> (tensor<50xf32>, tensor<5xf32>, tensor<70xf32>) {
  %s = linalg.generic {indexing_maps = [#same, #column], iterator_types = ["reduction", "parallel"]}
      ins(%x : tensor<7000x50xf32>) outs(%a : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  %t = linalg.generic {indexing_maps = [#same, #column], iterator_types = ["reduction", "parallel"]}
      ins(%y : tensor<70x5xf32>) outs(%b : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %u = linalg.generic {indexing_maps = [#same, #row], iterator_types = ["parallel", "reduction"]}
      ins(%y : tensor<70x5xf32>) outs(%c : tensor<70xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<70xf32>
  return %s, %t, %u : tensor<50xf32>, tensor<5xf32>, tensor<70xf32>
}
