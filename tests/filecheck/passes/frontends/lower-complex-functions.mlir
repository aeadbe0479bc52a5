// RUN: motet opt %s --pipeline lower-complex-functions | filecheck %s

// CHECK-LABEL: func.func @main
// CHECK: complex.re %arg0
// CHECK: complex.im %arg0
// CHECK-NOT: complex.abs
// CHECK: math.sqrt
func.func @main(%z: complex<f32>) -> f32 {
  %m = complex.abs %z : complex<f32>
  return %m : f32
}
