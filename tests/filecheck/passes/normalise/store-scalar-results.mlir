// RUN: motet opt %s --pipeline store-scalar-results | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[S:.*]] = scf.for
// CHECK: %[[T:.*]] = tensor.from_elements %[[S]] : tensor<f32>
// CHECK: %[[U:.*]] = tensor.extract %[[T]][] : tensor<f32>
// CHECK: math.sqrt %[[U]]
func.func @main(%x: tensor<4xf32>) -> tensor<f32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c4 = arith.constant 4 : index
  %zero = arith.constant 0.0 : f32
  %s = scf.for %i = %c0 to %c4 step %c1 iter_args(%a = %zero) -> (f32) {
    %v = tensor.extract %x[%i] : tensor<4xf32>
    %b = arith.addf %a, %v : f32
    scf.yield %b : f32
  }
  %r = math.sqrt %s : f32
  %t = tensor.from_elements %r : tensor<f32>
  return %t : tensor<f32>
}

// CHECK-LABEL: func.func @branch
// CHECK: %[[S:.*]] = scf.if
// CHECK: %[[T:.*]] = tensor.from_elements %[[S]] : tensor<f32>
// CHECK: %[[U:.*]] = tensor.extract %[[T]][] : tensor<f32>
// CHECK: math.sqrt %[[U]]
func.func @branch(%p: i1, %a: f32, %b: f32) -> tensor<f32> {
  %s = scf.if %p -> f32 {
    scf.yield %a : f32
  } else {
    scf.yield %b : f32
  }
  %r = math.sqrt %s : f32
  %t = tensor.from_elements %r : tensor<f32>
  return %t : tensor<f32>
}
