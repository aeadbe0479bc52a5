// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),narrow-products{dtype=bf16}' | filecheck %s
// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),narrow-products{dtype=f16}' | filecheck %s --check-prefix=HALF

// Sums stay in f32.
// CHECK-LABEL: func.func @product
// CHECK: arith.truncf {{.*}} : f32 to bf16
// CHECK: arith.truncf {{.*}} : f32 to bf16
// CHECK: linalg.generic {{.*}} ins(%{{.*}}, %{{.*}} : tensor<4x8xbf16>, tensor<8x16xbf16>) outs({{.*}} : tensor<4x16xf32>)
// CHECK: arith.extf
// CHECK: arith.extf
// CHECK: arith.mulf {{.*}} : f32
// HALF-LABEL: func.func @product
// HALF: arith.truncf {{.*}} : f32 to f16
func.func @product(%x: tensor<4x8xf32>, %y: tensor<8x16xf32>, %begin: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %r = linalg.matmul ins(%x, %y : tensor<4x8xf32>, tensor<8x16xf32>) outs(%begin : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// An operand of two products is rounded once.
// CHECK-LABEL: func.func @shared
// CHECK-COUNT-2: arith.truncf
// CHECK-NOT: arith.truncf
func.func @shared(%x: tensor<?x8xf32>, %y: tensor<8x8xf32>, %begin: tensor<?x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %r = linalg.matmul ins(%x, %y : tensor<?x8xf32>, tensor<8x8xf32>) outs(%begin : tensor<?x8xf32>) -> tensor<?x8xf32>
  %s = linalg.matmul ins(%x, %y : tensor<?x8xf32>, tensor<8x8xf32>) outs(%r : tensor<?x8xf32>) -> tensor<?x8xf32>
  return %r, %s : tensor<?x8xf32>, tensor<?x8xf32>
}

// A padded image is rounded before it is padded.
// CHECK-LABEL: func.func @convolution
// CHECK: arith.truncf
// CHECK: tensor.pad {{.*}} low[0, 1, 1, 0] high[0, 1, 1, 0]
// CHECK: tensor<1x5x5x8xbf16> to tensor<1x7x7x8xbf16>
// CHECK: ins(%{{.*}}, %{{.*}} : tensor<1x7x7x8xbf16>, tensor<3x3x8x4xbf16>)
func.func @convolution(%x: tensor<1x5x5x8xf32>, %w: tensor<3x3x8x4xf32>, %begin: tensor<1x5x5x4xf32>) -> tensor<1x5x5x4xf32> {
  %zero = arith.constant 0.0 : f32
  %p = tensor.pad %x low[0, 1, 1, 0] high[0, 1, 1, 0] {
  ^bb0(%a: index, %b: index, %c: index, %d: index):
    tensor.yield %zero : f32
  } : tensor<1x5x5x8xf32> to tensor<1x7x7x8xf32>
  %r = linalg.conv_2d_nhwc_hwcf ins(%p, %w : tensor<1x7x7x8xf32>, tensor<3x3x8x4xf32>)
      outs(%begin : tensor<1x5x5x4xf32>) -> tensor<1x5x5x4xf32>
  return %r : tensor<1x5x5x4xf32>
}

// Integers, doubles and sums that are no products stay.
// CHECK-LABEL: func.func @others
// CHECK-NOT: arith.truncf
func.func @others(%x: tensor<4x8xf64>, %y: tensor<8x16xf64>, %begin: tensor<4x16xf64>) -> tensor<4x16xf64> {
  %r = linalg.matmul ins(%x, %y : tensor<4x8xf64>, tensor<8x16xf64>) outs(%begin : tensor<4x16xf64>) -> tensor<4x16xf64>
  return %r : tensor<4x16xf64>
}

// A weight that is broadcast for a dynamic number of images is rounded before, and so stays a constant.
// CHECK-LABEL: func.func @broadcast
// CHECK-SAME: %[[X:.*]]: tensor<?x4x8xf32>, %[[W:.*]]: tensor<8x16xf32>
// CHECK: %[[ROUNDED:.*]] = linalg.generic {{.*}} ins(%[[W]] : tensor<8x16xf32>) outs(%{{.*}} : tensor<8x16xbf16>)
// CHECK: arith.truncf
// CHECK: linalg.generic {{.*}} ins(%[[ROUNDED]] : tensor<8x16xbf16>) outs(%{{.*}} : tensor<?x8x16xbf16>)
// CHECK-NOT: arith.truncf
// CHECK: ins(%{{.*}}, %{{.*}} : tensor<?x4x8xbf16>, tensor<?x8x16xbf16>)
func.func @broadcast(%x: tensor<?x4x8xf32>, %w: tensor<8x16xf32>, %begin: tensor<?x4x16xf32>) -> tensor<?x4x16xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x4x8xf32>
  %e = tensor.empty(%n) : tensor<?x8x16xf32>
  %b = linalg.broadcast ins(%w : tensor<8x16xf32>) outs(%e : tensor<?x8x16xf32>) dimensions = [0]
  %r = linalg.batch_matmul ins(%x, %b : tensor<?x4x8xf32>, tensor<?x8x16xf32>) outs(%begin : tensor<?x4x16xf32>) -> tensor<?x4x16xf32>
  return %r : tensor<?x4x16xf32>
}
