// Two convolutions of one image, and their sum.
module {
  func.func @main(%x: tensor<1024x1x28x28xf32>) -> tensor<1024x64x26x26xf32> {
    %v = arith.constant dense<0.25> : tensor<64x1x3x3xf32>
    %w = arith.constant dense<-0.5> : tensor<64x1x3x3xf32>
    %zero = arith.constant 0.0 : f32
    %empty = tensor.empty() : tensor<1024x64x26x26xf32>
    %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<1024x64x26x26xf32>) -> tensor<1024x64x26x26xf32>
    %one = linalg.conv_2d_nchw_fchw ins(%x, %v : tensor<1024x1x28x28xf32>, tensor<64x1x3x3xf32>)
                                    outs(%init : tensor<1024x64x26x26xf32>) -> tensor<1024x64x26x26xf32>
    %other = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1024x1x28x28xf32>, tensor<64x1x3x3xf32>)
                                      outs(%init : tensor<1024x64x26x26xf32>) -> tensor<1024x64x26x26xf32>
    %sum = linalg.add ins(%one, %other : tensor<1024x64x26x26xf32>, tensor<1024x64x26x26xf32>)
                      outs(%empty : tensor<1024x64x26x26xf32>) -> tensor<1024x64x26x26xf32>
    return %sum : tensor<1024x64x26x26xf32>
  }
}
