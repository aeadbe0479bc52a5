// Memref arguments stay where they are; what is written is also a result, in place.
// RUN: motet compile %s --emit program | filecheck %s

// CHECK-LABEL: func.func @fragment
// CHECK-SAME: (%arg0: tensor<4x8xf32>, %arg1: tensor<4x8xf32>) -> (tensor<4x8xf32> {motet.destination = 1 : i64})
func.func @fragment(%x: memref<4x8xf32>, %y: memref<4x8xf32>) {
  // CHECK: %[[E:.*]] = tensor.empty() : tensor<4x8xf32>
  // CHECK: %[[R:.*]] = linalg.exp ins(%arg0 : tensor<4x8xf32>) outs(%[[E]] : tensor<4x8xf32>)
  %0 = bufferization.to_tensor %x restrict : memref<4x8xf32>
  %1 = tensor.empty() : tensor<4x8xf32>
  %2 = linalg.exp ins(%0 : tensor<4x8xf32>) outs(%1 : tensor<4x8xf32>) -> tensor<4x8xf32>
  bufferization.materialize_in_destination %2 in restrict writable %y : (tensor<4x8xf32>, memref<4x8xf32>) -> ()
  // CHECK: return %[[R]] : tensor<4x8xf32>
  return
}

// CHECK-LABEL: func.func @buffers
// CHECK-SAME: -> (tensor<8xf32> {motet.destination = 0 : i64}, tensor<8xf32> {motet.destination = 1 : i64})
func.func @buffers(%x: memref<8xf32>, %y: memref<8xf32>) -> memref<8xf32> {
  // CHECK: %[[A:.*]] = linalg.tanh ins(%arg0 : tensor<8xf32>) outs(%arg1 : tensor<8xf32>)
  linalg.tanh ins(%x : memref<8xf32>) outs(%y : memref<8xf32>)
  // CHECK: %[[B:.*]] = linalg.exp ins(%[[A]] : tensor<8xf32>) outs(%arg0 : tensor<8xf32>)
  linalg.exp ins(%y : memref<8xf32>) outs(%x : memref<8xf32>)
  // CHECK: return %[[B]], %[[A]] : tensor<8xf32>, tensor<8xf32>
  return %x : memref<8xf32>
}
