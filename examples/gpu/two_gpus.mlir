// The two halves of a product, each on a GPU of its own at the same time; the second goes to the first GPU directly.
//   motet compile two_gpus.mlir --device a=cuda:0 --device b=cuda:1,@a -o two_gpus.motet
module {
  func.func @main(%x: tensor<2048x2048xf32>, %y: tensor<2048x2048xf32>, %z: tensor<2048x2048xf32>)
      -> (tensor<2048x2048xf32> {motet.affinity = "a"}) {
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<2048x2048xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    %one = linalg.matmul {motet.affinity = "a"}
      ins(%x, %y : tensor<2048x2048xf32>, tensor<2048x2048xf32>) outs(%init : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    %other = linalg.matmul {motet.affinity = "b"}
      ins(%x, %z : tensor<2048x2048xf32>, tensor<2048x2048xf32>) outs(%init : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    %sum = linalg.add {motet.affinity = "a"}
      ins(%one, %other : tensor<2048x2048xf32>, tensor<2048x2048xf32>) outs(%empty : tensor<2048x2048xf32>) -> tensor<2048x2048xf32>
    return %sum : tensor<2048x2048xf32>
  }
}
