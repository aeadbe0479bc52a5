"""The statuses of a call as LLVM IR, part of the executor (`source.py`).

They are words in the call's arena that record which checks of its kernels failed (`motet/runtime/checks.py`).
"""

STATUS = r"""
declare extern_weak ptr @PyLong_FromVoidPtr(ptr)

; Makes the statuses in the arena zero; the address of the first, or null if the call has none.
define internal ptr @clear_statuses(ptr %call, i64 %arena) nounwind {
entry:
  %p_count = getelementptr i8, ptr %call, i64 $CALL_STATUSES
  %count = load i64, ptr %p_count
  %none = icmp eq i64 %count, 0
  br i1 %none, label %without, label %clear
clear:
  %p_offset = getelementptr i8, ptr %call, i64 $CALL_STATUS_OFFSET
  %offset = load i64, ptr %p_offset
  %at = add i64 %arena, %offset
  %first = inttoptr i64 %at to ptr
  %bytes = mul i64 %count, $STATUS_BYTES
  call void @llvm.memset.p0.i64(ptr %first, i8 0, i64 %bytes, i1 false)
  ret ptr %first
without:
  ret ptr null
}

; Whether one of the statuses at %first, null for none, is not zero.
define internal i1 @any_failed(ptr %call, ptr %first) nounwind {
entry:
  %none = icmp eq ptr %first, null
  br i1 %none, label %no, label %some
some:
  %p_count = getelementptr i8, ptr %call, i64 $CALL_STATUSES
  %count = load i64, ptr %p_count
  br label %next
next:
  %i = phi i64 [ 0, %some ], [ %i_after, %one ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %one, label %no
one:
  %at = mul i64 %i, $STATUS_BYTES
  %p_status = getelementptr i8, ptr %first, i64 %at
  %check = load i64, ptr %p_status
  %i_after = add i64 %i, 1
  %passed = icmp eq i64 %check, 0
  br i1 %passed, label %next, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}

; Raises what the statuses at %first say.
define internal void @raise_failed(ptr %call, ptr %first) noinline cold nounwind {
entry:
  %arguments = alloca ptr
  %address = call ptr @PyLong_FromVoidPtr(ptr %first)
  %none = icmp eq ptr %address, null
  br i1 %none, label %end, label %ask
ask:
  store ptr %address, ptr %arguments
  %p_failed = getelementptr i8, ptr %call, i64 $CALL_FAILED
  %failed = load ptr, ptr %p_failed
  %nothing = call ptr @PyObject_Vectorcall(ptr %failed, ptr %arguments, i64 1, ptr null)
  call void @Py_DecRef(ptr %address)
  br label %end
end:
  ret void
}
"""
