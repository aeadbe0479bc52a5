// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),transposed-conv-by-phases,canonicalize' | filecheck %s

// Step 2, window 3: the first phase reads one pixel, the second two. No pixel is multiplied by an inserted zero.
// CHECK-LABEL: func.func @main
// CHECK-NOT: tensor.insert_slice %arg0
// CHECK: linalg.generic {{.*}} ins(%arg0, {{.*}} : tensor<1x10x5xf32>, tensor<9x10x1xf32>) {{.*}} tensor<1x9x5xf32>
// CHECK: tensor.insert_slice {{.*}} [1, 9, 5] [1, 1, 2] {motet.interleaved = 0 : i64}
// CHECK: linalg.generic {{.*}} ins(%arg0, {{.*}}, tensor<9x10x2xf32>
// CHECK: tensor.insert_slice {{.*}} [1, 9, 4] [1, 1, 2] {motet.interleaved = 0 : i64}
func.func @main(%x: tensor<1x10x5xf32>, %k: tensor<9x10x3xf32> {motet.parameter = "k"}) -> tensor<1x9x9xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x10x11xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x10x11xf32>) -> tensor<1x10x11xf32>
  %z = tensor.insert_slice %x into %f[0, 0, 1] [1, 10, 5] [1, 1, 2] : tensor<1x10x5xf32> into tensor<1x10x11xf32>
  %o = tensor.empty() : tensor<1x9x9xf32>
  %i = linalg.fill ins(%zero : f32) outs(%o : tensor<1x9x9xf32>) -> tensor<1x9x9xf32>
  %r = linalg.conv_1d_ncw_fcw {strides = dense<1> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>}
    ins(%z, %k : tensor<1x10x11xf32>, tensor<9x10x3xf32>) outs(%i : tensor<1x9x9xf32>) -> tensor<1x9x9xf32>
  return %r : tensor<1x9x9xf32>
}

// Step 2, window 3: one phase reads one pixel, the other two. Phases become the innermost axis.
// CHECK-LABEL: func.func @dynamic
// CHECK-NOT: tensor.insert_slice
// CHECK: %[[IMAGE:.*]] = tensor.pad %arg0
// CHECK: tensor.extract_slice %[[IMAGE]]
// CHECK: linalg.generic {{.*}} tensor<9x10x1xf32>
// CHECK: linalg.generic {{.*}} ins({{.*}} : tensor<1x10x?xf32>, tensor<9x10x1xf32>)
// CHECK: tensor.extract_slice %[[IMAGE]]
// CHECK: linalg.generic {{.*}} tensor<9x10x2xf32>
// CHECK: linalg.generic {{.*}} ins({{.*}} : tensor<1x10x?xf32>, tensor<9x10x2xf32>)
// CHECK: tensor.insert_slice {{.*}} : tensor<1x9x?x1xf32> into tensor<1x9x?x2xf32>
// CHECK: tensor.insert_slice {{.*}}[0, 0, 0, 1] {{.*}} : tensor<1x9x?x1xf32> into tensor<1x9x?x2xf32>
// CHECK: tensor.collapse_shape {{.*}} into tensor<1x9x?xf32>
// CHECK: tensor.extract_slice {{.*}} to tensor<1x9x?xf32>
func.func @dynamic(%x: tensor<1x10x?xf32>, %k: tensor<9x10x3xf32> {motet.parameter = "k"}, %wide: index, %long: index)
    -> tensor<1x9x?xf32> {
  %zero = arith.constant 0.0 : f32
  %two = arith.constant 2 : index
  %own = tensor.dim %x, %two : tensor<1x10x?xf32>
  %e = tensor.empty(%wide) : tensor<1x10x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<1x10x?xf32>) -> tensor<1x10x?xf32>
  %z = tensor.insert_slice %x into %f[0, 0, 1] [1, 10, %own] [1, 1, 2] : tensor<1x10x?xf32> into tensor<1x10x?xf32>
  %o = tensor.empty(%long) : tensor<1x9x?xf32>
  %i = linalg.fill ins(%zero : f32) outs(%o : tensor<1x9x?xf32>) -> tensor<1x9x?xf32>
  %r = linalg.conv_1d_ncw_fcw {strides = dense<1> : tensor<1xi64>, dilations = dense<1> : tensor<1xi64>}
    ins(%z, %k : tensor<1x10x?xf32>, tensor<9x10x3xf32>) outs(%i : tensor<1x9x?xf32>) -> tensor<1x9x?xf32>
  return %r : tensor<1x9x?xf32>
}
