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

// A size that equals one calculated before is that one.
// CHECK-LABEL: func.func @clamped
// CHECK: %[[N:.*]] = arith.muli
// CHECK-NOT: arith.maxsi
// CHECK: tensor.empty(%[[N]]) : tensor<?xf32>
func.func @clamped(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %a = tensor.dim %x, %c0 : tensor<?x?xf32>
  %b = tensor.dim %x, %c1 : tensor<?x?xf32>
  %n = arith.muli %a, %b : index
  %least = arith.minsi %n, %c0 : index
  %rest = arith.subi %n, %least : index
  %most = arith.maxsi %rest, %c0 : index
  %e = tensor.empty(%most) : tensor<?xf32>
  return %e : tensor<?xf32>
}
