// RUN: motet opt %s --pipeline hoist-loop-products | filecheck %s

#a = affine_map<(m, n, k) -> (m, k)>
#b = affine_map<(m, n, k) -> (k, n)>
#c = affine_map<(m, n, k) -> (m, n)>

// CHECK-LABEL: func.func @sequence
// CHECK: linalg.generic {{.*}}"reduction"{{.*}} outs({{.*}}tensor<6x2x3xf32>)
// CHECK: scf.for
// CHECK-NOT: "reduction"
// CHECK: tensor.extract_slice %{{.*}}[%{{.*}}, 0, 0] [1, 2, 3]
func.func @sequence(%x: tensor<6x2x4xf32>, %w: tensor<4x3xf32>, %begin: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c5 = arith.constant 5 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant dense<0.0> : tensor<2x3xf32>
  %r = scf.for %i = %c0 to %c6 step %c1 iter_args(%s = %begin) -> (tensor<2x3xf32>) {
    %back = arith.subi %c5, %i : index
    %e = tensor.extract_slice %x[%back, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<6x2x4xf32> to tensor<2x4xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%e, %w : tensor<2x4xf32>, tensor<4x3xf32>) outs(%zero : tensor<2x3xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %a = arith.addf %out, %m : f32
      linalg.yield %a : f32
    } -> tensor<2x3xf32>
    %d = arith.addf %p, %s : tensor<2x3xf32>
    scf.yield %d : tensor<2x3xf32>
  }
  return %r : tensor<2x3xf32>
}

// A loop that reads few elements of a long sequence keeps their products.
// CHECK-LABEL: func.func @few
// CHECK: scf.for
// CHECK: "reduction"
func.func @few(%x: tensor<600x2x4xf32>, %w: tensor<4x3xf32>, %begin: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c6 = arith.constant 6 : index
  %zero = arith.constant dense<0.0> : tensor<2x3xf32>
  %r = scf.for %i = %c0 to %c6 step %c1 iter_args(%s = %begin) -> (tensor<2x3xf32>) {
    %e = tensor.extract_slice %x[%i, 0, 0] [1, 2, 4] [1, 1, 1] : tensor<600x2x4xf32> to tensor<2x4xf32>
    %p = linalg.generic {indexing_maps = [#a, #b, #c], iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%e, %w : tensor<2x4xf32>, tensor<4x3xf32>) outs(%zero : tensor<2x3xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %a = arith.addf %out, %m : f32
      linalg.yield %a : f32
    } -> tensor<2x3xf32>
    %d = arith.addf %p, %s : tensor<2x3xf32>
    scf.yield %d : tensor<2x3xf32>
  }
  return %r : tensor<2x3xf32>
}
