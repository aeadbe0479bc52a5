// A fragment as an inference framework hands it over: buffers in, the result written into the last of them.
//   result = lhs * weights + lhs
module @fragment {
  func.func @entry(%lhs: memref<64x128xf32>, %weights: memref<128x128xf32>, %result: memref<64x128xf32>) {
    %a = bufferization.to_tensor %lhs restrict : memref<64x128xf32>
    %b = bufferization.to_tensor %weights restrict : memref<128x128xf32>
    %zero = arith.constant 0.000000e+00 : f32
    %empty = tensor.empty() : tensor<64x128xf32>
    %filled = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x128xf32>) -> tensor<64x128xf32>
    %product = linalg.matmul ins(%a, %b : tensor<64x128xf32>, tensor<128x128xf32>)
                             outs(%filled : tensor<64x128xf32>) -> tensor<64x128xf32>
    %target = tensor.empty() : tensor<64x128xf32>
    %sum = linalg.add ins(%product, %a : tensor<64x128xf32>, tensor<64x128xf32>)
                      outs(%target : tensor<64x128xf32>) -> tensor<64x128xf32>
    bufferization.materialize_in_destination %sum in restrict writable %result
      : (tensor<64x128xf32>, memref<64x128xf32>) -> ()
    return
  }
}
