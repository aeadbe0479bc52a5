// RUN: motet opt %s --pipeline reuse-sorted-extents | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[SORTED:.*]] = tm_tensor.sort
// CHECK: %[[N:.*]] = tensor.dim %[[SORTED]]
// CHECK: tensor.extract_slice %[[SORTED]][0, 0] [%[[N]], 2]
func.func @main(%x: tensor<?x8xf32>) -> tensor<?x2xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?x8xf32>
  %y = tm_tensor.sort dimension(1) outs(%x : tensor<?x8xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.cmpf ole, %a, %b : f32
    tm_tensor.yield %s : i1
  } -> tensor<?x8xf32>
  %v = tensor.extract_slice %y[0, 0] [%n, 2] [1, 1] : tensor<?x8xf32> to tensor<?x2xf32>
  return %v : tensor<?x2xf32>
}
