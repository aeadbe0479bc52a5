// RUN: motet opt %s --pipeline collect-insertions | filecheck %s

#own = affine_map<(d0) -> (d0)>
#none = affine_map<(d0) -> ()>

// Two insertions, a reversal and its slice are one group; the fill is computed where it is read.
// CHECK-LABEL: func.func @reflected
// CHECK: tensor.extract_slice {{.*}} {motet.interleaved = 0 : i64}
// CHECK: linalg.generic {{.*}} attrs =  {motet.interleaved = 0 : i64}
// CHECK: tensor.insert_slice {{.*}} {motet.interleaved = 0 : i64}
// CHECK: tensor.insert_slice {{.*}} {motet.interleaved = 0 : i64}
func.func @reflected(%x: tensor<9xf32>) -> tensor<12xf32> {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2 : index
  %e = tensor.empty() : tensor<12xf32>
  %f = linalg.generic {indexing_maps = [#none, #own], iterator_types = ["parallel"]}
      ins(%zero : f32) outs(%e : tensor<12xf32>) {
  ^bb0(%in: f32, %out: f32):
    linalg.yield %in : f32
  } -> tensor<12xf32>
  %s = tensor.extract_slice %x[1] [3] [1] : tensor<9xf32> to tensor<3xf32>
  %r = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%s : tensor<3xf32>) outs(%s : tensor<3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %i = linalg.index 0 : index
    %j = arith.subi %two, %i : index
    %v = tensor.extract %s[%j] : tensor<3xf32>
    linalg.yield %v : f32
  } -> tensor<3xf32>
  %a = tensor.insert_slice %r into %f[0] [3] [1] : tensor<3xf32> into tensor<12xf32>
  %b = tensor.insert_slice %x into %a[3] [9] [1] : tensor<9xf32> into tensor<12xf32>
  return %b : tensor<12xf32>
}

// What an argument has is not written again, and a part that is read elsewhere stays.
// CHECK-LABEL: func.func @kept
// CHECK-NOT: motet.interleaved
func.func @kept(%x: tensor<3xf32>, %y: tensor<12xf32>) -> (tensor<12xf32>, tensor<12xf32>) {
  %e = tensor.empty() : tensor<12xf32>
  %a = tensor.insert_slice %x into %y[0] [3] [1] : tensor<3xf32> into tensor<12xf32>
  %b = tensor.insert_slice %x into %a[3] [3] [1] : tensor<3xf32> into tensor<12xf32>
  %c = tensor.insert_slice %x into %e[0] [3] [1] : tensor<3xf32> into tensor<12xf32>
  return %b, %c : tensor<12xf32>, tensor<12xf32>
}

// Results of element-wise operations become one kernel with their concatenation.
// CHECK-LABEL: func.func @joined
// CHECK: tensor.concat {{.*}} {motet.together}
func.func @joined(%x: tensor<12xf32>, %y: tensor<12xf32>) -> tensor<24xf32> {
  %e = tensor.empty() : tensor<12xf32>
  %a = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%x : tensor<12xf32>) outs(%e : tensor<12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.negf %in : f32
    linalg.yield %v : f32
  } -> tensor<12xf32>
  %b = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%y : tensor<12xf32>) outs(%e : tensor<12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.mulf %in, %in : f32
    linalg.yield %v : f32
  } -> tensor<12xf32>
  %c = tensor.concat dim(0) %a, %b : (tensor<12xf32>, tensor<12xf32>) -> tensor<24xf32>
  return %c : tensor<24xf32>
}

// A part that is read elsewhere, or that is no such result, leaves the concatenation separate.
// CHECK-LABEL: func.func @separate
// CHECK-NOT: motet.together
func.func @separate(%x: tensor<12xf32>, %y: tensor<12xf32>) -> (tensor<24xf32>, tensor<12xf32>) {
  %e = tensor.empty() : tensor<12xf32>
  %a = linalg.generic {indexing_maps = [#own, #own], iterator_types = ["parallel"]}
      ins(%x : tensor<12xf32>) outs(%e : tensor<12xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = arith.negf %in : f32
    linalg.yield %v : f32
  } -> tensor<12xf32>
  %c = tensor.concat dim(0) %a, %y : (tensor<12xf32>, tensor<12xf32>) -> tensor<24xf32>
  return %c, %a : tensor<24xf32>, tensor<12xf32>
}
