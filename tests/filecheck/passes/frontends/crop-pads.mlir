// RUN: motet opt %s --pipeline crop-pads | filecheck %s

// CHECK-LABEL: func.func @shift
// CHECK: %[[S:.*]] = tensor.extract_slice %arg0[0] [3] [1] : tensor<4xf32> to tensor<3xf32>
// CHECK: tensor.pad %[[S]] {{.*}}low[1] high[0]
// CHECK: : tensor<3xf32> to tensor<4xf32>
func.func @shift(%x: tensor<4xf32>) -> tensor<4xf32> {
  %zero = arith.constant 0.0 : f32
  %r = tensor.pad %x low[1] high[-1] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<4xf32>
  return %r : tensor<4xf32>
}

// CHECK-LABEL: func.func @border
// CHECK-NOT: tensor.extract_slice
// CHECK: tensor.pad %arg0
func.func @border(%x: tensor<4xf32>) -> tensor<6xf32> {
  %zero = arith.constant 0.0 : f32
  %r = tensor.pad %x low[1] high[1] {
  ^bb0(%i: index):
    tensor.yield %zero : f32
  } : tensor<4xf32> to tensor<6xf32>
  return %r : tensor<6xf32>
}
