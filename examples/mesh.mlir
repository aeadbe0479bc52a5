// Two products on two nodes of a mesh of 2x2 devices; operands and the result are in the memories of the four nodes.
func.func @main(%a: tensor<8x16xf32> {iree.abi.affinity = #hal.device.affinity<@grid_0_0>},
                %b: tensor<16x12xf32> {iree.abi.affinity = #hal.device.affinity<@grid_0_1>},
                %c: tensor<12x8xf32> {iree.abi.affinity = #hal.device.affinity<@grid_1_0>})
    -> (tensor<8x8xf32> {iree.abi.affinity = #hal.device.affinity<@grid_1_1>}) {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<8x12xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<8x12xf32>) -> tensor<8x12xf32>
  %0 = linalg.matmul {stream.affinity = #hal.device.affinity<@grid_0_1>} ins(%a, %b : tensor<8x16xf32>, tensor<16x12xf32>) outs(%f : tensor<8x12xf32>) -> tensor<8x12xf32>
  %g = tensor.empty() : tensor<8x8xf32>
  %h = linalg.fill ins(%zero : f32) outs(%g : tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = linalg.matmul {stream.affinity = #hal.device.affinity<@grid_1_1>} ins(%0, %c : tensor<8x12xf32>, tensor<12x8xf32>) outs(%h : tensor<8x8xf32>) -> tensor<8x8xf32>
  return %1 : tensor<8x8xf32>
}
