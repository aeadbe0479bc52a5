// RUN: motet opt %s --pipeline unroll-loops | filecheck %s
// RUN: motet opt %s --pipeline 'unroll-loops{products=true}' | filecheck %s --check-prefix=PRODUCTS

// CHECK-LABEL: func.func @known
// CHECK-NOT: scf.for
// CHECK: %[[A:.*]] = tensor.extract_slice %arg0[0, 0]
// CHECK: %[[B:.*]] = arith.addf %arg1, %[[A]]
// CHECK: %[[C:.*]] = tensor.extract_slice %arg0[1, 0]
// CHECK: arith.addf %[[B]], %[[C]]
func.func @known(%x: tensor<2x4xf32>, %begin: tensor<4xf32>) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %r = scf.for %i = %c0 to %c2 step %c1 iter_args(%s = %begin) -> (tensor<4xf32>) {
    %a = tensor.extract_slice %x[%i, 0] [1, 4] [1, 1] : tensor<2x4xf32> to tensor<4xf32>
    %b = arith.addf %s, %a : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @unknown
// CHECK: scf.for
func.func @unknown(%x: tensor<4xf32>, %n: index) -> tensor<4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %r = scf.for %i = %c0 to %n step %c1 iter_args(%s = %x) -> (tensor<4xf32>) {
    %b = arith.addf %s, %x : tensor<4xf32>
    scf.yield %b : tensor<4xf32>
  }
  return %r : tensor<4xf32>
}

// With products=true, only a loop that multiplies matrices is unrolled.
// PRODUCTS-LABEL: func.func @known
// PRODUCTS: scf.for
// PRODUCTS-LABEL: func.func @powers
// PRODUCTS-NOT: scf.for
// PRODUCTS-COUNT-3: arith.mulf
func.func @powers(%w: tensor<4x4xf32>, %x: tensor<1x4xf32>) -> tensor<1x4xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c3 = arith.constant 3 : index
  %zero = arith.constant dense<0.0> : tensor<1x4xf32>
  %r = scf.for %i = %c0 to %c3 step %c1 iter_args(%s = %x) -> (tensor<1x4xf32>) {
    %p = linalg.generic {indexing_maps = [affine_map<(m, n, k) -> (m, k)>, affine_map<(m, n, k) -> (k, n)>,
                                          affine_map<(m, n, k) -> (m, n)>],
                         iterator_types = ["parallel", "parallel", "reduction"]}
        ins(%s, %w : tensor<1x4xf32>, tensor<4x4xf32>) outs(%zero : tensor<1x4xf32>) {
    ^bb0(%l: f32, %q: f32, %out: f32):
      %m = arith.mulf %l, %q : f32
      %a = arith.addf %out, %m : f32
      linalg.yield %a : f32
    } -> tensor<1x4xf32>
    scf.yield %p : tensor<1x4xf32>
  }
  return %r : tensor<1x4xf32>
}
