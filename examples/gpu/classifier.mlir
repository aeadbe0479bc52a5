// A classifier of one row and of many, for a host and a GPU. Nothing here says where anything runs: costs do. One row is
// not worth moving the weights; 4096 rows are.
//   motet compile classifier.mlir --placement=auto --device cpu=host --device 'gpu=cuda,@cpu' --emit program
module {
  func.func @one(%x: tensor<1x1024xf32>, %w: tensor<1024x4096xf32>, %v: tensor<4096x16xf32>) -> tensor<1x16xf32> {
    %zero = arith.constant 0.0 : f32
    %e0 = tensor.empty() : tensor<1x4096xf32>
    %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<1x4096xf32>) -> tensor<1x4096xf32>
    %hidden = linalg.matmul ins(%x, %w : tensor<1x1024xf32>, tensor<1024x4096xf32>)
                            outs(%i0 : tensor<1x4096xf32>) -> tensor<1x4096xf32>
    %positive = linalg.max ins(%hidden, %i0 : tensor<1x4096xf32>, tensor<1x4096xf32>)
                           outs(%e0 : tensor<1x4096xf32>) -> tensor<1x4096xf32>
    %e1 = tensor.empty() : tensor<1x16xf32>
    %i1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<1x16xf32>) -> tensor<1x16xf32>
    %scores = linalg.matmul ins(%positive, %v : tensor<1x4096xf32>, tensor<4096x16xf32>)
                            outs(%i1 : tensor<1x16xf32>) -> tensor<1x16xf32>
    return %scores : tensor<1x16xf32>
  }
  func.func @many(%x: tensor<4096x1024xf32>, %w: tensor<1024x4096xf32>, %v: tensor<4096x16xf32>) -> tensor<4096x16xf32> {
    %zero = arith.constant 0.0 : f32
    %e0 = tensor.empty() : tensor<4096x4096xf32>
    %i0 = linalg.fill ins(%zero : f32) outs(%e0 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %hidden = linalg.matmul ins(%x, %w : tensor<4096x1024xf32>, tensor<1024x4096xf32>)
                            outs(%i0 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %positive = linalg.max ins(%hidden, %i0 : tensor<4096x4096xf32>, tensor<4096x4096xf32>)
                           outs(%e0 : tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
    %e1 = tensor.empty() : tensor<4096x16xf32>
    %i1 = linalg.fill ins(%zero : f32) outs(%e1 : tensor<4096x16xf32>) -> tensor<4096x16xf32>
    %scores = linalg.matmul ins(%positive, %v : tensor<4096x4096xf32>, tensor<4096x16xf32>)
                            outs(%i1 : tensor<4096x16xf32>) -> tensor<4096x16xf32>
    return %scores : tensor<4096x16xf32>
  }
}
