// A program for two processes, of one machine or two: the product runs on rank 1, the rest on rank 0.
//   mpiexec -n 2 motet run examples/two_hosts.mlir --verify
// On other machines, and on one process, devices are bound by flags:
//   mpiexec -n 4 --hosts a,b,c,d motet run examples/two_hosts.mlir --verify --device here=rank:0/host --device there=d/host
//   motet run examples/two_hosts.mlir --verify
module {
  "motet.device"() {sym_name = "here", alternatives = ["rank:0/host"]} : () -> ()
  "motet.device"() {sym_name = "there", alternatives = ["rank:1/host", "@here"]} : () -> ()

  func.func @main(%x: tensor<64x128xf32> {motet.affinity = "here"}) -> (tensor<64x64xf32> {motet.affinity = "here"}) {
    %weights = arith.constant dense<0.125> : tensor<128x64xf32>
    %zero = arith.constant 0.0 : f32
    %shape = tensor.empty() : tensor<64x128xf32>
    %small = linalg.abs ins(%x : tensor<64x128xf32>) outs(%shape : tensor<64x128xf32>) -> tensor<64x128xf32>
    %empty = tensor.empty() : tensor<64x64xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    %product = linalg.matmul {motet.affinity = "there"}
      ins(%small, %weights : tensor<64x128xf32>, tensor<128x64xf32>) outs(%init : tensor<64x64xf32>) -> tensor<64x64xf32>
    %root = linalg.sqrt ins(%product : tensor<64x64xf32>) outs(%empty : tensor<64x64xf32>) -> tensor<64x64xf32>
    return %root : tensor<64x64xf32>
  }
}
