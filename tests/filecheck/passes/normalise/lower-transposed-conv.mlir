// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),lower-transposed-conv,canonicalize' | filecheck %s
// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),lower-transposed-conv{phases=false}' | filecheck %s --check-prefix=HOST

// Step 2, window 2: four phases of a product each, which read the image itself.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tensor.insert_slice %arg0
// CHECK: linalg.generic {{.*}} ins(%arg0, {{.*}}) outs({{.*}} : tensor<1x9x5x2x7x2xf32>)
// CHECK: tensor.collapse_shape {{.*}} into tensor<1x9x10x14xf32>
// HOST-LABEL: func.func @main
// HOST: tensor.insert_slice %arg0 into
func.func @main(%x: tensor<1x10x5x7xf32>, %k: tensor<9x10x2x2xf32>) -> tensor<1x9x10x14xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x10x11x15xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x10x11x15xf32>) -> tensor<1x10x11x15xf32>
  %z = tensor.insert_slice %x into %f[0, 0, 1, 1] [1, 10, 5, 7] [1, 1, 2, 2]
    : tensor<1x10x5x7xf32> into tensor<1x10x11x15xf32>
  %o = tensor.empty() : tensor<1x9x10x14xf32>
  %i = linalg.fill ins(%zero : f32) outs(%o : tensor<1x9x10x14xf32>) -> tensor<1x9x10x14xf32>
  %r = linalg.conv_2d_nchw_fchw {strides = dense<1> : tensor<2xi64>, dilations = dense<1> : tensor<2xi64>}
    ins(%z, %k : tensor<1x10x11x15xf32>, tensor<9x10x2x2xf32>) outs(%i : tensor<1x9x10x14xf32>)
    -> tensor<1x9x10x14xf32>
  return %r : tensor<1x9x10x14xf32>
}
