// RUN: motet opt %s --pipeline join-loop-products | filecheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func.func @gates
// CHECK: %[[W:.*]] = tensor.concat dim(1) %arg1, %arg2
// CHECK: scf.for
// CHECK: %[[P:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins({{.*}}, %[[W]]
// CHECK-NOT: "reduction"
// CHECK-DAG: tensor.extract_slice %[[P]][0, 0] [2, 4]
// CHECK-DAG: tensor.extract_slice %[[P]][0, 4] [2, 4]
func.func @gates(%x: tensor<2x4xf32>, %v: tensor<4x4xf32>, %w: tensor<4x4xf32>, %n: index) -> tensor<2x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %zero = arith.constant dense<0.0> : tensor<2x4xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> (tensor<2x4xf32>) {
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %v : tensor<2x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<2x4xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %e = arith.addf %out, %m : f32
      linalg.yield %e : f32
    } -> tensor<2x4xf32>
    %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %w : tensor<2x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<2x4xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %e = arith.addf %out, %m : f32
      linalg.yield %e : f32
    } -> tensor<2x4xf32>
    %d = arith.mulf %p, %q : tensor<2x4xf32>
    scf.yield %d : tensor<2x4xf32>
  }
  return %r : tensor<2x4xf32>
}

// Parts of one tensor, in any order, are not copied.
// CHECK-LABEL: func.func @parts
// CHECK-NOT: tensor.concat
// CHECK: scf.for
// CHECK: %[[P:.*]] = linalg.generic {{.*}}"reduction"{{.*}} ins({{.*}}, %arg1
// CHECK-DAG: tensor.extract_slice %[[P]][0, 0] [2, 4]
// CHECK-DAG: tensor.extract_slice %[[P]][0, 4] [2, 4]
func.func @parts(%x: tensor<2x4xf32>, %both: tensor<4x8xf32>, %n: index) -> tensor<2x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %v = tensor.extract_slice %both[0, 4] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %w = tensor.extract_slice %both[0, 0] [4, 4] [1, 1] : tensor<4x8xf32> to tensor<4x4xf32>
  %zero = arith.constant dense<0.0> : tensor<2x4xf32>
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> (tensor<2x4xf32>) {
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %v : tensor<2x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<2x4xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %e = arith.addf %out, %m : f32
      linalg.yield %e : f32
    } -> tensor<2x4xf32>
    %q = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %w : tensor<2x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<2x4xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %e = arith.addf %out, %m : f32
      linalg.yield %e : f32
    } -> tensor<2x4xf32>
    %d = arith.subf %p, %q : tensor<2x4xf32>
    scf.yield %d : tensor<2x4xf32>
  }
  return %r : tensor<2x4xf32>
}
