"""The call of a compiled function from Python as LLVM IR, part of the executor (`source.py`).

A METH_FASTCALL entry checks its arrays' fields in place and hands unsuitable arguments to Python.
"""

CALL = r"""
declare extern_weak ptr @PyTuple_GetItem(ptr, i64)
declare extern_weak ptr @PyLong_AsVoidPtr(ptr)
declare extern_weak ptr @PyEval_SaveThread()
declare extern_weak void @PyEval_RestoreThread(ptr)
declare extern_weak ptr @PyObject_Vectorcall(ptr, ptr, i64, ptr)
declare extern_weak ptr @PyObject_CallNoArgs(ptr)
declare extern_weak void @Py_IncRef(ptr)
declare extern_weak void @Py_DecRef(ptr)
declare extern_weak ptr @PyTuple_New(i64)
declare extern_weak i32 @PyTuple_SetItem(ptr, i64, ptr)

; The address of the data of %object, where it is an ndarray as %spec says; null where not.
define internal ptr @checked(ptr %object, ptr %spec, ptr %type) nounwind {
entry:
  %p_type = getelementptr i8, ptr %object, i64 $ARRAY_TYPE
  %its_type = load ptr, ptr %p_type
  %same_type = icmp eq ptr %its_type, %type
  br i1 %same_type, label %array, label %no
array:
  %p_descriptor = getelementptr i8, ptr %object, i64 $ARRAY_DESCRIPTOR
  %descriptor = load ptr, ptr %p_descriptor
  %wanted_descriptor = load ptr, ptr %spec
  %same_descriptor = icmp eq ptr %descriptor, %wanted_descriptor
  %p_rank = getelementptr i8, ptr %object, i64 $ARRAY_RANK
  %rank = load i32, ptr %p_rank
  %p_wanted_rank = getelementptr i8, ptr %spec, i64 $SPEC_RANK
  %wanted_rank = load i32, ptr %p_wanted_rank
  %same_rank = icmp eq i32 %rank, %wanted_rank
  %p_flags = getelementptr i8, ptr %object, i64 $ARRAY_FLAGS
  %flags = load i32, ptr %p_flags
  %p_needed = getelementptr i8, ptr %spec, i64 $SPEC_FLAGS
  %needed = load i32, ptr %p_needed
  %had = and i32 %flags, %needed
  %all_flags = icmp eq i32 %had, %needed
  %both = and i1 %same_descriptor, %same_rank
  %good = and i1 %both, %all_flags
  br i1 %good, label %shape, label %no
shape:
  %p_shape = getelementptr i8, ptr %object, i64 $ARRAY_SHAPE
  %extents = load ptr, ptr %p_shape
  %p_wanted_shape = getelementptr i8, ptr %spec, i64 $SPEC_SHAPE
  %wanted_extents = load ptr, ptr %p_wanted_shape
  %count = zext i32 %rank to i64
  br label %axis
axis:
  %i = phi i64 [ 0, %shape ], [ %i_after, %compare ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %compare, label %yes
compare:
  %p_extent = getelementptr i64, ptr %extents, i64 %i
  %extent = load i64, ptr %p_extent
  %p_wanted = getelementptr i64, ptr %wanted_extents, i64 %i
  %wanted = load i64, ptr %p_wanted
  %i_after = add i64 %i, 1
  %same = icmp eq i64 %extent, %wanted
  br i1 %same, label %axis, label %no
yes:
  %p_data = getelementptr i8, ptr %object, i64 $ARRAY_DATA
  %data = load ptr, ptr %p_data
  ret ptr %data
no:
  ret ptr null
}

; Whether %bytes bytes at %address overlap any of the first %count arrays, number %except left out.
define internal i1 @overlaps(ptr %call, ptr %table, ptr %address, i64 %bytes, i64 %except, i64 %count) nounwind {
entry:
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %begin = ptrtoint ptr %address to i64
  %end = add i64 %begin, %bytes
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %following ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %no
one:
  %at = mul i64 %i, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_its = getelementptr i64, ptr %table, i64 %external
  %its_begin = load i64, ptr %p_its
  %p_bytes = getelementptr i8, ptr %spec, i64 $SPEC_BYTES
  %its_bytes = load i64, ptr %p_bytes
  %its_end = add i64 %its_begin, %its_bytes
  %left = icmp ult i64 %begin, %its_end
  %right = icmp ult i64 %its_begin, %end
  %excepted = icmp ne i64 %i, %except
  %touch = and i1 %left, %right
  %hit = and i1 %touch, %excepted
  br i1 %hit, label %yes, label %following
following:
  %i_after = add i64 %i, 1
  br label %next
yes:
  ret i1 true
no:
  ret i1 false
}

; One result: the destination that was passed (%given), the input it is written to, an array of its factory's
; making, or a new one. Gives a new reference, or null: 0 with an error set, 1 (in %odd) where nothing is wrong but
; the call must go the long way.
define internal ptr @result(ptr %call, ptr %table, ptr %args, i64 %number, i1 %given, ptr %odd) nounwind {
entry:
  %p_inputs = getelementptr i8, ptr %call, i64 $CALL_INPUTS
  %inputs = load i64, ptr %p_inputs
  %p_type = getelementptr i8, ptr %call, i64 $CALL_ARRAY_TYPE
  %type = load ptr, ptr %p_type
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %place = add i64 %inputs, %number
  %at = mul i64 %place, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %p_bytes = getelementptr i8, ptr %spec, i64 $SPEC_BYTES
  %bytes = load i64, ptr %p_bytes
  br i1 %given, label %destination, label %own
destination:
  %p_passed = getelementptr ptr, ptr %args, i64 %place
  %passed = load ptr, ptr %p_passed
  %passed_data = call ptr @checked(ptr %passed, ptr %spec, ptr %type)
  %unfit = icmp eq ptr %passed_data, null
  br i1 %unfit, label %other, label %apart
apart:
  %shared = call i1 @overlaps(ptr %call, ptr %table, ptr %passed_data, i64 %bytes, i64 -1, i64 %place)
  br i1 %shared, label %other, label %refer
own:
  %p_input = getelementptr i8, ptr %spec, i64 $SPEC_INPUT
  %input = load i64, ptr %p_input
  %fresh = icmp slt i64 %input, 0
  br i1 %fresh, label %make, label %in_place
in_place:
  %p_argument = getelementptr ptr, ptr %args, i64 %input
  %argument = load ptr, ptr %p_argument
  %p_argument_data = getelementptr i8, ptr %argument, i64 $ARRAY_DATA
  %argument_data = load ptr, ptr %p_argument_data
  %touched = call i1 @overlaps(ptr %call, ptr %table, ptr %argument_data, i64 %bytes, i64 %input, i64 %inputs)
  br i1 %touched, label %other, label %refer
refer:
  %existing = phi ptr [ %passed, %apart ], [ %argument, %in_place ]
  %existing_data = phi ptr [ %passed_data, %apart ], [ %argument_data, %in_place ]
  call void @Py_IncRef(ptr %existing)
  br label %enter
make:
  %p_factory = getelementptr i8, ptr %spec, i64 $SPEC_FACTORY
  %factory = load ptr, ptr %p_factory
  %plain = icmp eq ptr %factory, null
  br i1 %plain, label %empty, label %ask
ask:
  %asked = call ptr @PyObject_CallNoArgs(ptr %factory)
  br label %made
empty:
  %p_empty = getelementptr i8, ptr %call, i64 $CALL_PYARRAY_EMPTY
  %new_array = load ptr, ptr %p_empty
  %descriptor = load ptr, ptr %spec
  call void @Py_IncRef(ptr %descriptor)
  %p_rank = getelementptr i8, ptr %spec, i64 $SPEC_RANK
  %rank = load i32, ptr %p_rank
  %p_shape = getelementptr i8, ptr %spec, i64 $SPEC_SHAPE
  %shape = load ptr, ptr %p_shape
  %emptied = call ptr %new_array(i32 %rank, ptr %shape, ptr %descriptor, i32 0)
  br label %made
made:
  %new = phi ptr [ %asked, %ask ], [ %emptied, %empty ]
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %error, label %verify
verify:
  %new_data = call ptr @checked(ptr %new, ptr %spec, ptr %type)
  %wrong = icmp eq ptr %new_data, null
  br i1 %wrong, label %drop, label %enter
drop:
  call void @Py_DecRef(ptr %new)
  br label %other
enter:
  %object = phi ptr [ %existing, %refer ], [ %new, %verify ]
  %data = phi ptr [ %existing_data, %refer ], [ %new_data, %verify ]
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_entry = getelementptr ptr, ptr %table, i64 %external
  store ptr %data, ptr %p_entry
  ret ptr %object
other:
  store i8 1, ptr %odd
  ret ptr null
error:
  store i8 0, ptr %odd
  ret ptr null
}

define internal void @drop_all(ptr %objects, i64 %count) nounwind {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i_after, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %end
one:
  %p_object = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %p_object
  call void @Py_DecRef(ptr %object)
  %i_after = add i64 %i, 1
  br label %next
end:
  ret void
}

; What the caller gets: nothing, the one result, or a tuple. Takes over the references.
define internal ptr @returned(ptr %call, ptr %objects, i64 %count) nounwind {
entry:
  switch i64 %count, label %several [ i64 0, label %nothing
                                      i64 1, label %single ]
nothing:
  %p_none = getelementptr i8, ptr %call, i64 $CALL_NONE
  %none = load ptr, ptr %p_none
  call void @Py_IncRef(ptr %none)
  ret ptr %none
single:
  %only = load ptr, ptr %objects
  ret ptr %only
several:
  %tuple = call ptr @PyTuple_New(i64 %count)
  %failed = icmp eq ptr %tuple, null
  br i1 %failed, label %error, label %fill
fill:
  %i = phi i64 [ 0, %several ], [ %i_after, %fill ]
  %p_object = getelementptr ptr, ptr %objects, i64 %i
  %object = load ptr, ptr %p_object
  call i32 @PyTuple_SetItem(ptr %tuple, i64 %i, ptr %object)
  %i_after = add i64 %i, 1
  %more = icmp ult i64 %i_after, %count
  br i1 %more, label %fill, label %end
end:
  ret ptr %tuple
error:
  call void @drop_all(ptr %objects, i64 %count)
  ret ptr null
}

; The method: METH_FASTCALL | METH_KEYWORDS. %self is a tuple whose first item is the address of the Call.
define ptr @motet_call(ptr %self, ptr %args, i64 %given, ptr %names) nounwind {
entry:
  %odd = alloca i8
  %item = call ptr @PyTuple_GetItem(ptr %self, i64 0)
  %call = call ptr @PyLong_AsVoidPtr(ptr %item)
  %program = load ptr, ptr %call
  %pool = load ptr, ptr %program
  %p_inputs = getelementptr i8, ptr %call, i64 $CALL_INPUTS
  %inputs = load i64, ptr %p_inputs
  %p_results = getelementptr i8, ptr %call, i64 $CALL_RESULTS
  %results = load i64, ptr %p_results
  %p_type = getelementptr i8, ptr %call, i64 $CALL_ARRAY_TYPE
  %type = load ptr, ptr %p_type
  %p_specs = getelementptr i8, ptr %call, i64 $CALL_SPECS
  %specs = load ptr, ptr %p_specs
  %p_externals = getelementptr i8, ptr %call, i64 $CALL_EXTERNALS
  %externals = load i64, ptr %p_externals
  %entries = add i64 %externals, 1
  %block = alloca i64, i64 %entries, align 16
  %table = getelementptr i64, ptr %block, i64 1
  %objects = alloca ptr, i64 %results, align 16
  %named = icmp ne ptr %names, null
  br i1 %named, label %long_way, label %count
count:
  %all = add i64 %inputs, %results
  %exact = icmp eq i64 %given, %inputs
  br i1 %exact, label %ready, label %destinations
destinations:
  %p_allowed = getelementptr i8, ptr %call, i64 $CALL_DESTINATIONS
  %allowed = load i64, ptr %p_allowed
  %may = icmp ne i64 %allowed, 0
  %fits = icmp eq i64 %given, %all
  %both = and i1 %may, %fits
  br i1 %both, label %ready, label %long_way
ready:
  %passed = phi i1 [ false, %count ], [ true, %destinations ]
  %p_parallel = getelementptr i8, ptr %program, i64 $PROGRAM_PARALLEL
  %parallel = load i64, ptr %p_parallel
  %p_started = getelementptr i8, ptr %pool, i64 $POOL_STARTED
  %started = load atomic i32, ptr %p_started monotonic, align 4
  %lone = icmp eq i64 %parallel, 0
  %running = icmp ne i32 %started, 0
  %able = or i1 %lone, %running
  br i1 %able, label %fill, label %long_way
fill:
  store i64 0, ptr %block
  br label %next_input
next_input:
  %i = phi i64 [ 0, %fill ], [ %i_after, %enter_input ]
  %more_inputs = icmp ult i64 %i, %inputs
  br i1 %more_inputs, label %input, label %next_result
input:
  %p_argument = getelementptr ptr, ptr %args, i64 %i
  %argument = load ptr, ptr %p_argument
  %at = mul i64 %i, $SPEC_STRIDE
  %spec = getelementptr i8, ptr %specs, i64 %at
  %data = call ptr @checked(ptr %argument, ptr %spec, ptr %type)
  %unfit = icmp eq ptr %data, null
  br i1 %unfit, label %long_way, label %enter_input
enter_input:
  %p_external = getelementptr i8, ptr %spec, i64 $SPEC_EXTERNAL
  %external = load i64, ptr %p_external
  %p_entry = getelementptr ptr, ptr %table, i64 %external
  store ptr %data, ptr %p_entry
  %i_after = add i64 %i, 1
  br label %next_input
next_result:
  %j = phi i64 [ 0, %next_input ], [ %j_after, %enter_result ]
  %more_results = icmp ult i64 %j, %results
  br i1 %more_results, label %make, label %arena
make:
  %object = call ptr @result(ptr %call, ptr %table, ptr %args, i64 %j, i1 %passed, ptr %odd)
  %without = icmp eq ptr %object, null
  br i1 %without, label %unmade, label %enter_result
enter_result:
  %p_object = getelementptr ptr, ptr %objects, i64 %j
  store ptr %object, ptr %p_object
  %j_after = add i64 %j, 1
  br label %next_result
unmade:
  call void @drop_all(ptr %objects, i64 %j)
  %why = load i8, ptr %odd
  %other_way = icmp ne i8 %why, 0
  br i1 %other_way, label %long_way, label %failed
failed:
  ret ptr null
arena:
  %p_arena_external = getelementptr i8, ptr %call, i64 $CALL_ARENA_EXTERNAL
  %arena_external = load i64, ptr %p_arena_external
  %p_free = getelementptr i8, ptr %call, i64 $CALL_ARENAS_FREE
  %no_arena = icmp slt i64 %arena_external, 0
  br i1 %no_arena, label %run, label %look
look:
  %free = load atomic i64, ptr %p_free monotonic, align 8
  %none_free = icmp eq i64 %free, 0
  br i1 %none_free, label %no_room, label %try
no_room:
  call void @drop_all(ptr %objects, i64 %results)
  br label %long_way
try:
  %number = call i64 @llvm.cttz.i64(i64 %free, i1 false)
  %bit = shl i64 1, %number
  %rest = xor i64 %free, %bit
  %swap = cmpxchg ptr %p_free, i64 %free, i64 %rest acquire monotonic
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %use, label %look
use:
  %p_arenas = getelementptr i8, ptr %call, i64 $CALL_ARENAS
  %arenas = load ptr, ptr %p_arenas
  %p_arena = getelementptr i64, ptr %arenas, i64 %number
  %arena_address = load i64, ptr %p_arena
  %p_arena_entry = getelementptr i64, ptr %table, i64 %arena_external
  store i64 %arena_address, ptr %p_arena_entry
  %own_status = call ptr @clear_statuses(ptr %call, i64 %arena_address)
  br label %run
run:
  %taken = phi i64 [ 0, %arena ], [ %bit, %use ]
  %first_status = phi ptr [ null, %arena ], [ %own_status, %use ]
  %p_release = getelementptr i8, ptr %call, i64 $CALL_RELEASE
  %release = load i64, ptr %p_release
  %free_lock = icmp ne i64 %release, 0
  br i1 %free_lock, label %unlocked, label %locked
locked:
  %status_locked = call i32 @motet_run(ptr %program, ptr %table, ptr null)
  br label %ran
unlocked:
  %state = call ptr @PyEval_SaveThread()
  %status_unlocked = call i32 @motet_run(ptr %program, ptr %table, ptr null)
  call void @PyEval_RestoreThread(ptr %state)
  br label %ran
ran:
  %status = phi i32 [ %status_locked, %locked ], [ %status_unlocked, %unlocked ]
  %failed_check = call i1 @any_failed(ptr %call, ptr %first_status)
  br i1 %failed_check, label %check_failed, label %end_run
check_failed:
  call void @raise_failed(ptr %call, ptr %first_status)
  atomicrmw or ptr %p_free, i64 %taken release
  call void @drop_all(ptr %objects, i64 %results)
  ret ptr null
end_run:
  %had_arena = icmp ne i64 %taken, 0
  br i1 %had_arena, label %leave, label %conclude
leave:
  atomicrmw or ptr %p_free, i64 %taken release
  br label %conclude
conclude:
  %bad = icmp ne i32 %status, 0
  br i1 %bad, label %no_memory, label %done
no_memory:
  call void @drop_all(ptr %objects, i64 %results)
  %p_failure = getelementptr i8, ptr %call, i64 $CALL_FAILURE
  %failure = load ptr, ptr %p_failure
  %raised = call ptr @PyObject_CallNoArgs(ptr %failure)
  ret ptr %raised
done:
  %answer = call ptr @returned(ptr %call, ptr %objects, i64 %results)
  ret ptr %answer
long_way:
  %p_fallback = getelementptr i8, ptr %call, i64 $CALL_FALLBACK
  %fallback = load ptr, ptr %p_fallback
  %long = call ptr @PyObject_Vectorcall(ptr %fallback, ptr %args, i64 %given, ptr %names)
  ret ptr %long
}
"""
