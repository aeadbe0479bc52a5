// RUN: motet opt %s --pipeline simplify-sizes,canonicalize,cse | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: %[[B:.*]] = tensor.dim %arg0
// CHECK: tensor.empty(%[[B]]) : tensor<?x16x64xf32>
// CHECK-NOT: arith.divsi
func.func @main(%x: tensor<?x1024xf32>) -> tensor<?x16x64xf32> {
  %c0 = arith.constant 0 : index
  %c1024 = arith.constant 1024 : index
  %b = tensor.dim %x, %c0 : tensor<?x1024xf32>
  %all = arith.muli %b, %c1024 : index
  %n = arith.divsi %all, %c1024 : index
  %e = tensor.empty(%n) : tensor<?x16x64xf32>
  return %e : tensor<?x16x64xf32>
}
