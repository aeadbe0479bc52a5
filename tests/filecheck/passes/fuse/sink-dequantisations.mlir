// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),sink-dequantisations' | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#window = affine_map<(a, b, i, j) -> (2 * a + i, 2 * b + j)>
#taps = affine_map<(a, b, i, j) -> (i, j)>
#point = affine_map<(a, b, i, j) -> (a, b)>

// Both readers read the bytes.
// CHECK-LABEL: func.func @added
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<4x8xf32>)
// CHECK: arith.extui
// CHECK: arith.subi
// CHECK: arith.sitofp
// CHECK: arith.mulf
// CHECK: arith.addf
// CHECK: linalg.generic {{.*}} ins(%arg0 : tensor<4x8xi8>)
// CHECK: arith.extui
// CHECK: math.exp
func.func @added(%x: tensor<4x8xi8>, %y: tensor<4x8xf32>) -> (tensor<4x8xf32>, tensor<4x8xf32>) {
  %a = tensor.empty() : tensor<4x8xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xi8>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %i = arith.extui %in : i8 to i32
    %z = arith.constant 3 : i32
    %d = arith.subi %i, %z : i32
    %f = arith.sitofp %d : i32 to f32
    %k = arith.constant 0.25 : f32
    %r = arith.mulf %f, %k : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %s = linalg.add ins(%v, %y : tensor<4x8xf32>, tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) -> tensor<4x8xf32>
  %e = linalg.exp ins(%v : tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s, %e : tensor<4x8xf32>, tensor<4x8xf32>
}

// The greatest byte of a window is that of the greatest number; padding by minus infinity is padding by the least byte.
// CHECK-LABEL: func.func @pooled
// CHECK: tensor.pad %arg0
// CHECK: tensor.yield {{.*}} : i8
// CHECK: linalg.generic {{.*}} outs({{.*}} : tensor<4x4xi8>)
// CHECK: arith.maxsi
// CHECK: arith.sitofp
func.func @pooled(%x: tensor<7x7xi8>) -> tensor<4x4xf32> {
  %a = tensor.empty() : tensor<7x7xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<7x7xi8>) outs(%a : tensor<7x7xf32>) {
  ^bb0(%in: i8, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    %k = arith.constant 0.25 : f32
    %r = arith.mulf %f, %k : f32
    linalg.yield %r : f32
  } -> tensor<7x7xf32>
  %least = arith.constant 0xFF800000 : f32
  %p = tensor.pad %v low[1, 1] high[1, 1] {
  ^bb0(%i: index, %j: index):
    tensor.yield %least : f32
  } : tensor<7x7xf32> to tensor<9x9xf32>
  %w = tensor.empty() : tensor<3x3xf32>
  %b = tensor.empty() : tensor<4x4xf32>
  %c = linalg.fill ins(%least : f32) outs(%b : tensor<4x4xf32>) -> tensor<4x4xf32>
  %m = linalg.generic {indexing_maps = [#window, #taps, #point],
      iterator_types = ["parallel", "parallel", "reduction", "reduction"]}
      ins(%p, %w : tensor<9x9xf32>, tensor<3x3xf32>) outs(%c : tensor<4x4xf32>) {
  ^bb0(%in: f32, %t: f32, %out: f32):
    %g = arith.maximumf %out, %in : f32
    linalg.yield %g : f32
  } -> tensor<4x4xf32>
  return %m : tensor<4x4xf32>
}
