// RUN: motet opt %s --pipeline resolve-reshapes | filecheck %s

// CHECK-LABEL: func.func @merges
// CHECK: tensor.collapse_shape %arg0 {{\[}}[0, 1], [2]] : tensor<?x?x16xf32> into tensor<?x16xf32>
// CHECK-NOT: tensor.reshape
func.func @merges(%x: tensor<?x?x16xf32>) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c16 = arith.constant 16 : index
  %b = tensor.dim %x, %c0 : tensor<?x?x16xf32>
  %l = tensor.dim %x, %c1 : tensor<?x?x16xf32>
  %n = arith.muli %b, %l : index
  %s = tensor.from_elements %n, %c16 : tensor<2xindex>
  %r = tensor.reshape %x(%s) : (tensor<?x?x16xf32>, tensor<2xindex>) -> tensor<?x16xf32>
  return %r : tensor<?x16xf32>
}

// Extents that depend on data stay.
// CHECK-LABEL: func.func @depends
// CHECK: tensor.reshape
func.func @depends(%x: tensor<?xf32>, %s: tensor<2xindex>) -> tensor<?x?xf32> {
  %r = tensor.reshape %x(%s) : (tensor<?xf32>, tensor<2xindex>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
