// RUN: motet opt %s --pipeline reduce-rows-first | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#row = affine_map<(a, b) -> (a)>
#none = affine_map<(a, b) -> ()>

// CHECK-LABEL: func.func @main
// CHECK: %[[R:.*]] = linalg.generic
// CHECK: %[[Y:.*]] = linalg.generic {{.*}}ins(%{{.*}}, %[[R]]
// CHECK: %[[P:.*]] = linalg.generic {{.*}}["parallel", "reduction"]} ins(%[[Y]]
// CHECK: linalg.generic {{.*}}["reduction"]} ins(%[[P]]
func.func @main(%x: tensor<64x50xf32>, %z: tensor<64xf32>, %s: tensor<f32>) -> tensor<f32> {
  %e = tensor.empty() : tensor<64x50xf32>
  %r = linalg.generic {indexing_maps = [#same, #row], iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<64x50xf32>) outs(%z : tensor<64xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<64xf32>
  %y = linalg.generic {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x, %r : tensor<64x50xf32>, tensor<64xf32>) outs(%e : tensor<64x50xf32>) {
  ^bb0(%in: f32, %by: f32, %out: f32):
    %v = arith.divf %in, %by : f32
    linalg.yield %v : f32
  } -> tensor<64x50xf32>
  %t = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%y : tensor<64x50xf32>) outs(%s : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<f32>
  return %t : tensor<f32>
}

// Sums of what no rows are reduced for, and products, stay as they are.
// CHECK-LABEL: func.func @others
// CHECK-NOT: "parallel"
func.func @others(%x: tensor<64x50xf32>, %s: tensor<f32>) -> (tensor<f32>, tensor<f32>) {
  %t = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<64x50xf32>) outs(%s : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.addf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<f32>
  %u = linalg.generic {indexing_maps = [#same, #none], iterator_types = ["reduction", "reduction"]}
      ins(%x : tensor<64x50xf32>) outs(%s : tensor<f32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.mulf %in, %out : f32
    linalg.yield %v : f32
  } -> tensor<f32>
  return %t, %u : tensor<f32>, tensor<f32>
}
