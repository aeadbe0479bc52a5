// RUN: motet opt %s --pipeline window-scatters,canonicalize | filecheck %s

// The index of an update is the same in all columns, and its column is its own.
// CHECK-LABEL: func.func @rows
// CHECK-NOT: tensor.extract %
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0>} {{.*}} ins(%arg2, %{{.*}} : tensor<5x7xf32>, tensor<5x1xi64>)
func.func @rows(%x: tensor<9x7xf32>, %i: tensor<5xi64>, %u: tensor<5x7xf32>) -> tensor<9x7xf32> {
  %e = tensor.empty() : tensor<5x7xi64>
  %k = linalg.generic {
      indexing_maps = [affine_map<(a, b) -> (a)>, affine_map<(a, b) -> (a, b)>],
      iterator_types = ["parallel", "parallel"]} ins(%i : tensor<5xi64>) outs(%e : tensor<5x7xi64>) {
  ^bb0(%in: i64, %out: i64):
    linalg.yield %in : i64
  } -> tensor<5x7xi64>
  %c5 = arith.constant 5 : index
  %c7 = arith.constant 7 : index
  %columns = tensor.empty() : tensor<35x1xi64>
  %elements = tensor.empty() : tensor<35xf32>
  %p:3 = linalg.generic {
      indexing_maps = [affine_map<(a) -> (a, 0)>, affine_map<(a) -> (a, 0)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} outs(%columns, %columns, %elements : tensor<35x1xi64>, tensor<35x1xi64>, tensor<35xf32>) {
  ^bb0(%a: i64, %b: i64, %c: f32):
    %n = linalg.index 0 : index
    %column = arith.remsi %n, %c7 : index
    %q = arith.divsi %n, %c7 : index
    %row = arith.remsi %q, %c5 : index
    %place = tensor.extract %k[%row, %column] : tensor<5x7xi64>
    %own = arith.index_cast %column : index to i64
    %update = tensor.extract %u[%row, %column] : tensor<5x7xf32>
    linalg.yield %place, %own, %update : i64, i64, f32
  } -> (tensor<35x1xi64>, tensor<35x1xi64>, tensor<35xf32>)
  %pairs = tensor.empty() : tensor<35x2xi64>
  %first = tensor.insert_slice %p#0 into %pairs[0, 0] [35, 1] [1, 1] : tensor<35x1xi64> into tensor<35x2xi64>
  %both = tensor.insert_slice %p#1 into %first[0, 1] [35, 1] [1, 1] : tensor<35x1xi64> into tensor<35x2xi64>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false)
      ins(%p#2, %both : tensor<35xf32>, tensor<35x2xi64>) outs(%x : tensor<9x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    tm_tensor.yield %s : f32
  } -> tensor<9x7xf32>
  return %y : tensor<9x7xf32>
}

// Another index in each column: elements, without the copies.
// CHECK-LABEL: func.func @elements
// CHECK-NOT: tensor.extract %
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 0, 1>} {{.*}} : tensor<35xf32>, tensor<35x2xi64>)
func.func @elements(%x: tensor<9x7xf32>, %k: tensor<5x7xi64>, %u: tensor<5x7xf32>) -> tensor<9x7xf32> {
  %c5 = arith.constant 5 : index
  %c7 = arith.constant 7 : index
  %columns = tensor.empty() : tensor<35x1xi64>
  %elements = tensor.empty() : tensor<35xf32>
  %p:3 = linalg.generic {
      indexing_maps = [affine_map<(a) -> (a, 0)>, affine_map<(a) -> (a, 0)>, affine_map<(a) -> (a)>],
      iterator_types = ["parallel"]} outs(%columns, %columns, %elements : tensor<35x1xi64>, tensor<35x1xi64>, tensor<35xf32>) {
  ^bb0(%a: i64, %b: i64, %c: f32):
    %n = linalg.index 0 : index
    %column = arith.remsi %n, %c7 : index
    %q = arith.divsi %n, %c7 : index
    %row = arith.remsi %q, %c5 : index
    %place = tensor.extract %k[%row, %column] : tensor<5x7xi64>
    %own = arith.index_cast %column : index to i64
    %update = tensor.extract %u[%row, %column] : tensor<5x7xf32>
    linalg.yield %place, %own, %update : i64, i64, f32
  } -> (tensor<35x1xi64>, tensor<35x1xi64>, tensor<35xf32>)
  %pairs = tensor.empty() : tensor<35x2xi64>
  %first = tensor.insert_slice %p#0 into %pairs[0, 0] [35, 1] [1, 1] : tensor<35x1xi64> into tensor<35x2xi64>
  %both = tensor.insert_slice %p#1 into %first[0, 1] [35, 1] [1, 1] : tensor<35x1xi64> into tensor<35x2xi64>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0, 1>} unique_indices(false)
      ins(%p#2, %both : tensor<35xf32>, tensor<35x2xi64>) outs(%x : tensor<9x7xf32>) {
  ^bb0(%a: f32, %b: f32):
    tm_tensor.yield %a : f32
  } -> tensor<9x7xf32>
  return %y : tensor<9x7xf32>
}

// Updates and columns over all coordinates, reshaped to lists: rows written along the dimension in between.
// CHECK-LABEL: func.func @between
// CHECK: %[[TURNED:.*]] = linalg.generic {{.*}} ins(%arg2 : tensor<2x3x5xf32>)
// CHECK: %[[WINDOWS:.*]] = tensor.expand_shape %[[TURNED]] {{.*}} : tensor<3x2x5xf32> into tensor<3x2x1x5xf32>
// CHECK: tm_tensor.scatter {dimension_map = array<i64: 1>} {{.*}} ins(%[[WINDOWS]], %{{.*}} : tensor<3x2x1x5xf32>, tensor<3x1xi64>)
#one = affine_map<(a) -> (a)>
#all = affine_map<(a, b, c) -> (a, b, c)>
func.func @between(%x: tensor<2x9x5xf32>, %i: tensor<3xi64>, %u: tensor<2x3x5xf32>) -> tensor<2x9x5xf32> {
  %e2 = tensor.empty() : tensor<2xi64>
  %n2 = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]} outs(%e2 : tensor<2xi64>) {
  ^bb0(%out: i64):
    %p = linalg.index 0 : index
    %v = arith.index_cast %p : index to i64
    linalg.yield %v : i64
  } -> tensor<2xi64>
  %e5 = tensor.empty() : tensor<5xi64>
  %n5 = linalg.generic {indexing_maps = [#one], iterator_types = ["parallel"]} outs(%e5 : tensor<5xi64>) {
  ^bb0(%out: i64):
    %p = linalg.index 0 : index
    %v = arith.index_cast %p : index to i64
    linalg.yield %v : i64
  } -> tensor<5xi64>
  %e = tensor.empty() : tensor<2x3x5xi64>
  %a = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (a)>, #all],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%n2 : tensor<2xi64>) outs(%e : tensor<2x3x5xi64>) {
  ^bb0(%in: i64, %out: i64):
    linalg.yield %in : i64
  } -> tensor<2x3x5xi64>
  %b = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (b)>, #all],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%i : tensor<3xi64>) outs(%e : tensor<2x3x5xi64>) {
  ^bb0(%in: i64, %out: i64):
    linalg.yield %in : i64
  } -> tensor<2x3x5xi64>
  %c = linalg.generic {indexing_maps = [affine_map<(a, b, c) -> (c)>, #all],
      iterator_types = ["parallel", "parallel", "parallel"]} ins(%n5 : tensor<5xi64>) outs(%e : tensor<2x3x5xi64>) {
  ^bb0(%in: i64, %out: i64):
    linalg.yield %in : i64
  } -> tensor<2x3x5xi64>
  %fa = tensor.collapse_shape %a [[0, 1, 2]] : tensor<2x3x5xi64> into tensor<30xi64>
  %fb = tensor.collapse_shape %b [[0, 1, 2]] : tensor<2x3x5xi64> into tensor<30xi64>
  %fc = tensor.collapse_shape %c [[0, 1, 2]] : tensor<2x3x5xi64> into tensor<30xi64>
  %ca = tensor.expand_shape %fa [[0, 1]] output_shape [30, 1] : tensor<30xi64> into tensor<30x1xi64>
  %cb = tensor.expand_shape %fb [[0, 1]] output_shape [30, 1] : tensor<30xi64> into tensor<30x1xi64>
  %cc = tensor.expand_shape %fc [[0, 1]] output_shape [30, 1] : tensor<30xi64> into tensor<30x1xi64>
  %k = tensor.concat dim(1) %ca, %cb, %cc : (tensor<30x1xi64>, tensor<30x1xi64>, tensor<30x1xi64>) -> tensor<30x3xi64>
  %fu = tensor.collapse_shape %u [[0, 1, 2]] : tensor<2x3x5xf32> into tensor<30xf32>
  %v = tensor.expand_shape %fu [[0, 1, 2, 3]] output_shape [30, 1, 1, 1] : tensor<30xf32> into tensor<30x1x1x1xf32>
  %y = tm_tensor.scatter {dimension_map = array<i64: 0, 1, 2>} unique_indices(true)
      ins(%v, %k : tensor<30x1x1x1xf32>, tensor<30x3xi64>) outs(%x : tensor<2x9x5xf32>) {
  ^bb0(%p: f32, %q: f32):
    tm_tensor.yield %p : f32
  } -> tensor<2x9x5xf32>
  return %y : tensor<2x9x5xf32>
}
