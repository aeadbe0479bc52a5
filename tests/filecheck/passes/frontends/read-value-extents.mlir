// RUN: motet opt %s --pipeline read-value-extents | filecheck %s

// CHECK-LABEL: func.func @main(
// CHECK-SAME: %arg2: tensor<?x0xi8> {{.*}}motet.value = ["main.values", 0,
// CHECK: %[[N:.*]] = tensor.dim %arg2
// CHECK: tensor.empty(%[[N]])
// CHECK-LABEL: func.func @main.values(
// CHECK-SAME: -> tensor<1xi64>
// CHECK: tensor.from_elements
func.func @main(%v: tensor<f32>, %r: tensor<1xi64>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %0 = tensor.extract %r[%c0] : tensor<1xi64>
  %n = arith.index_cast %0 : i64 to index
  %e = tensor.empty(%n) : tensor<?xf32>
  %s = linalg.broadcast ins(%v : tensor<f32>) outs(%e : tensor<?xf32>) dimensions = [0]
  return %s : tensor<?xf32>
}
