// RUN: motet opt %s --pipeline join-small-groups | filecheck %s

#same = affine_map<(a) -> (a)>
#two = affine_map<(a, b) -> (a, b)>

// Both read arguments alone. What reads the first of them, and a tensor that fills a GPU, stay as they are.
// CHECK-LABEL: func.func @main
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.exp
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.log
// CHECK-NOT: motet.beside
func.func @main(%x: tensor<50xf32>, %y: tensor<70xf32>, %z: tensor<2000000xf32>)
    -> (tensor<50xf32>, tensor<70xf32>, tensor<25xf32>, tensor<2000000xf32>) {
  %e = tensor.empty() : tensor<50xf32>
  %f = tensor.empty() : tensor<70xf32>
  %g = tensor.empty() : tensor<25xf32>
  %h = tensor.empty() : tensor<2000000xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<50xf32>) outs(%e : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  %t = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%y : tensor<70xf32>) outs(%f : tensor<70xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.log %in : f32
    linalg.yield %v : f32
  } -> tensor<70xf32>
  %half = tensor.extract_slice %s[0] [25] [1] : tensor<50xf32> to tensor<25xf32>
  %u = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%half : tensor<25xf32>) outs(%g : tensor<25xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.sin %in : f32
    linalg.yield %v : f32
  } -> tensor<25xf32>
  %w = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%z : tensor<2000000xf32>) outs(%h : tensor<2000000xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.cos %in : f32
    linalg.yield %v : f32
  } -> tensor<2000000xf32>
  return %s, %t, %u, %w : tensor<50xf32>, tensor<70xf32>, tensor<25xf32>, tensor<2000000xf32>
}

// What is computed of a parameter alone is left to fold-constants.
// CHECK-LABEL: func.func @with_parameter
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.exp
// CHECK-NOT: motet.beside
// CHECK: math.log
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.sin
func.func @with_parameter(%x: tensor<50xf32>, %w: tensor<50xf32> {motet.parameter = "w"}, %y: tensor<50xf32>)
    -> (tensor<50xf32>, tensor<50xf32>, tensor<50xf32>) {
  %e = tensor.empty() : tensor<50xf32>
  %s = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%x : tensor<50xf32>) outs(%e : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  %t = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%w : tensor<50xf32>) outs(%e : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.log %in : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  %u = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%y : tensor<50xf32>) outs(%e : tensor<50xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.sin %in : f32
    linalg.yield %v : f32
  } -> tensor<50xf32>
  return %s, %t, %u : tensor<50xf32>, tensor<50xf32>, tensor<50xf32>
}

// A concatenation of other shapes of results stays apart.
// CHECK-LABEL: func.func @reshaped
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: tensor.concat
// CHECK-NOT: motet.beside
func.func @reshaped(%x: tensor<2x3xf32>, %y: tensor<6xf32>) -> tensor<12xf32> {
  %e = tensor.empty() : tensor<2x3xf32>
  %f = tensor.empty() : tensor<6xf32>
  %s = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<2x3xf32>
  %t = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%y : tensor<6xf32>) outs(%f : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.log %in : f32
    linalg.yield %v : f32
  } -> tensor<6xf32>
  %c = tensor.collapse_shape %s [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %u = tensor.concat dim(0) %c, %t {motet.together} : (tensor<6xf32>, tensor<6xf32>) -> tensor<12xf32>
  return %u : tensor<12xf32>
}

// A concatenation of what is computed of results stays apart.
// CHECK-LABEL: func.func @computed_of_results
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.exp
// CHECK: linalg.generic {{.*}}motet.beside = 0
// CHECK: math.log
// CHECK-NOT: motet.beside
func.func @computed_of_results(%x: tensor<2x3xf32>, %y: tensor<5xf32>, %z: tensor<6xf32>)
    -> (tensor<2x3xf32>, tensor<5xf32>, tensor<12xf32>) {
  %e = tensor.empty() : tensor<2x3xf32>
  %f = tensor.empty() : tensor<5xf32>
  %g = tensor.empty() : tensor<6xf32>
  %s = linalg.generic {indexing_maps = [#two, #two], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<2x3xf32>) outs(%e : tensor<2x3xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.exp %in : f32
    linalg.yield %v : f32
  } -> tensor<2x3xf32>
  %t = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%y : tensor<5xf32>) outs(%f : tensor<5xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.log %in : f32
    linalg.yield %v : f32
  } -> tensor<5xf32>
  %c = tensor.collapse_shape %s [[0, 1]] : tensor<2x3xf32> into tensor<6xf32>
  %a = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%c : tensor<6xf32>) outs(%g : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.sin %in : f32
    linalg.yield %v : f32
  } -> tensor<6xf32>
  %b = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel"]}
      ins(%z : tensor<6xf32>) outs(%g : tensor<6xf32>) {
  ^bb0(%in: f32, %out: f32):
    %v = math.cos %in : f32
    linalg.yield %v : f32
  } -> tensor<6xf32>
  %u = tensor.concat dim(0) %a, %b {motet.together} : (tensor<6xf32>, tensor<6xf32>) -> tensor<12xf32>
  return %s, %t, %u : tensor<2x3xf32>, tensor<5xf32>, tensor<12xf32>
}
