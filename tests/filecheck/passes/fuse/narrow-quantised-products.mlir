// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),narrow-quantised-products' | filecheck %s

#same = affine_map<(a, b) -> (a, b)>
#column = affine_map<(a, b) -> (b)>
#row = affine_map<(a, b) -> (a)>

// Both operands are bytes: zero points stay in the sum, scales follow it, and the division before the rounding becomes a
// multiplication.
// CHECK-LABEL: func.func @linear
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xi8>, tensor<8x16xi8>) outs({{.*}} : tensor<4x16xi32>)
// CHECK: arith.extui
// CHECK: arith.constant 128 : i32
// CHECK: arith.subi
// CHECK: arith.extsi
// CHECK: arith.muli
// CHECK: linalg.generic {{.*}} ins({{.*}}, %arg2 : tensor<4x16xi32>, tensor<16xf32>)
// CHECK: arith.sitofp
// CHECK: arith.constant 2.5{{.*}} : f32
// CHECK-NOT: arith.divf
// CHECK: arith.mulf
// CHECK: math.roundeven
func.func @linear(%x: tensor<4x8xi8>, %w: tensor<8x16xi8>, %s: tensor<16xf32>) -> tensor<4x16xf32> {
  %a = tensor.empty() : tensor<4x8xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xi8>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %i = arith.extui %in : i8 to i32
    %z = arith.constant 128 : i32
    %d = arith.subi %i, %z : i32
    %f = arith.sitofp %d : i32 to f32
    %k = arith.constant 0.25 : f32
    %r = arith.mulf %f, %k : f32
    linalg.yield %r : f32
  } -> tensor<4x8xf32>
  %b = tensor.empty() : tensor<8x16xf32>
  %u = linalg.generic {indexing_maps = [#same, #column, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w, %s : tensor<8x16xi8>, tensor<16xf32>) outs(%b : tensor<8x16xf32>) {
  ^bb0(%in: i8, %k: f32, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    %r = arith.mulf %f, %k : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%v, %u : tensor<4x8xf32>, tensor<8x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  %q = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%p : tensor<4x16xf32>) outs(%e : tensor<4x16xf32>) {
  ^bb0(%in: f32, %out: f32):
    %k = arith.constant 0.5 : f32
    %d = arith.divf %in, %k : f32
    %r = math.roundeven %d : f32
    linalg.yield %r : f32
  } -> tensor<4x16xf32>
  return %q : tensor<4x16xf32>
}

// A scale that changes along the summed dimension cannot follow the sum.
// CHECK-LABEL: func.func @scaled_along_depth
// CHECK: arith.mulf
// CHECK-NOT: arith.muli
func.func @scaled_along_depth(%x: tensor<4x8xi8>, %w: tensor<8x16xi8>, %s: tensor<8xf32>) -> tensor<4x16xf32> {
  %a = tensor.empty() : tensor<4x8xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xi8>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: i8, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    linalg.yield %f : f32
  } -> tensor<4x8xf32>
  %b = tensor.empty() : tensor<8x16xf32>
  %u = linalg.generic {indexing_maps = [#same, #row, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w, %s : tensor<8x16xi8>, tensor<8xf32>) outs(%b : tensor<8x16xf32>) {
  ^bb0(%in: i8, %k: f32, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    %r = arith.mulf %f, %k : f32
    linalg.yield %r : f32
  } -> tensor<8x16xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<4x16xf32>
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<4x16xf32>) -> tensor<4x16xf32>
  %p = linalg.matmul ins(%v, %u : tensor<4x8xf32>, tensor<8x16xf32>) outs(%c : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %p : tensor<4x16xf32>
}

// 70000 * 255 * 128 exceeds 32 bits.
// CHECK-LABEL: func.func @too_deep
// CHECK-NOT: arith.muli
func.func @too_deep(%x: tensor<1x70000xi8>, %w: tensor<70000x2xi8>) -> tensor<1x2xf32> {
  %a = tensor.empty() : tensor<1x70000xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<1x70000xi8>) outs(%a : tensor<1x70000xf32>) {
  ^bb0(%in: i8, %out: f32):
    %f = arith.uitofp %in : i8 to f32
    linalg.yield %f : f32
  } -> tensor<1x70000xf32>
  %b = tensor.empty() : tensor<70000x2xf32>
  %u = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%w : tensor<70000x2xi8>) outs(%b : tensor<70000x2xf32>) {
  ^bb0(%in: i8, %out: f32):
    %f = arith.sitofp %in : i8 to f32
    linalg.yield %f : f32
  } -> tensor<70000x2xf32>
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty() : tensor<1x2xf32>
  %c = linalg.fill ins(%zero : f32) outs(%e : tensor<1x2xf32>) -> tensor<1x2xf32>
  %p = linalg.matmul ins(%v, %u : tensor<1x70000xf32>, tensor<70000x2xf32>) outs(%c : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %p : tensor<1x2xf32>
}
