// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),fold-widening-casts' | filecheck %s
// RUN: motet opt %s --pipeline 'func.func(linalg-generalize-named-ops),fold-widening-casts{all-readers=true}' | filecheck %s --check-prefix=ALL

#same = affine_map<(a, b) -> (a, b)>

// CHECK-LABEL: func.func @product
// CHECK: linalg.generic {{.*}} ins(%arg0, %arg1 : tensor<4x8xbf16>, tensor<8x16xbf16>)
// CHECK: arith.extf
// CHECK: arith.extf
// CHECK: arith.mulf
func.func @product(%x: tensor<4x8xbf16>, %y: tensor<8x16xbf16>, %begin: tensor<4x16xf32>) -> tensor<4x16xf32> {
  %a = tensor.empty() : tensor<4x8xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xbf16>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<4x8xf32>
  %b = tensor.empty() : tensor<8x16xf32>
  %u = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%y : tensor<8x16xbf16>) outs(%b : tensor<8x16xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<8x16xf32>
  %r = linalg.matmul ins(%v, %u : tensor<4x8xf32>, tensor<8x16xf32>) outs(%begin : tensor<4x16xf32>) -> tensor<4x16xf32>
  return %r : tensor<4x16xf32>
}

// Another reader of a whole tensor reads it wide, unless all readers are asked for.
// CHECK-LABEL: func.func @reader
// CHECK: math.exp
// ALL-LABEL: func.func @reader
// ALL: linalg.generic {{.*}} ins(%arg0 : tensor<4x8xbf16>)
// ALL-NEXT: ^bb0
// ALL-NEXT: arith.extf
// ALL-NEXT: math.exp
func.func @reader(%x: tensor<4x8xbf16>) -> tensor<4x8xf32> {
  %a = tensor.empty() : tensor<4x8xf32>
  %v = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%x : tensor<4x8xbf16>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: bf16, %out: f32):
    %w = arith.extf %in : bf16 to f32
    linalg.yield %w : f32
  } -> tensor<4x8xf32>
  %r = linalg.generic {indexing_maps = [#same, #same], iterator_types = ["parallel", "parallel"]}
      ins(%v : tensor<4x8xf32>) outs(%a : tensor<4x8xf32>) {
  ^bb0(%in: f32, %out: f32):
    %w = math.exp %in : f32
    linalg.yield %w : f32
  } -> tensor<4x8xf32>
  return %r : tensor<4x8xf32>
}
