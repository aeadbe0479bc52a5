// A program for two devices: the product runs on @acc, the rest on @cpu. What @acc is, a flag says or the run:
//   motet run examples/two_devices.mlir --input 64x128xf32=random:1 --verify
//   motet run examples/two_devices.mlir --input 64x128xf32=random:1 --verify --device acc=riscv:qemu --trace t.json
module {
  "motet.device"() {sym_name = "cpu", alternatives = ["host"]} : () -> ()
  "motet.device"() {sym_name = "acc", alternatives = ["riscv", "@cpu"]} : () -> ()

  func.func @main(%x: tensor<64x128xf32> {motet.affinity = "cpu"}) -> (tensor<64x64xf32> {motet.affinity = "cpu"}) {
    %weights = arith.constant dense<0.125> : tensor<128x64xf32>
    %zero = arith.constant 0.0 : f32
    %shape = tensor.empty() : tensor<64x128xf32>
    %small = linalg.abs ins(%x : tensor<64x128xf32>) outs(%shape : tensor<64x128xf32>) -> tensor<64x128xf32>
    %empty = tensor.empty() : tensor<64x64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    %product = linalg.matmul {motet.affinity = "acc"}
      ins(%small, %weights : tensor<64x128xf32>, tensor<128x64xf32>) outs(%init : tensor<64x64xf32>) -> tensor<64x64xf32>
    %root = linalg.sqrt ins(%product : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    return %root : tensor<64x64xf32>
  }
}
