"""The thread pool as LLVM IR, part of the executor (`source.py`).

The tasks of a job are divided into one *share* per thread, generation << 32 | remaining tasks, always in the same way,
so that a thread works on data that its caches hold from the previous job. By compare-and-swap, a thread claims three
quarters of the rest of its share, and when that is empty, half of the rest of the next ones: tasks of other threads
need data from elsewhere. A thread reads the job's description only after a claim, and it cannot change before the
claimed tasks are reported, so that the pool never waits for a thread without a claim. Threads without work spin, then
sleep, until the *ticket*, generation << 32, changes. The submitter works too, then spins, then sleeps on the count of
finished tasks. (Shares with stealing: Markatos and LeBlanc, "Using Processor Affinity in Loop Scheduling on
Shared-Memory Multiprocessors", 1994.)
"""

POOL = r"""
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @clock_gettime(i32, ptr)
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare i32 @madvise(ptr, i64, i32)
declare void @$PAUSE_TYPE
declare i64 @llvm.cttz.i64(i64, i1)
declare i32 @llvm.umax.i32(i32, i32)
declare i32 @llvm.umin.i32(i32, i32)
declare i64 @llvm.smin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

; Pauses, for measuring how long one takes.
define void @motet_spin(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  call void @$PAUSE
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %count
  br i1 %more, label %loop, label %end
end:
  ret void
}

; The lane's memory, of at least %need bytes: 64-byte aligned, in huge pages where large; null: there is none.
define internal ptr @ensure(ptr %lane, i64 %need) nounwind {
entry:
  %p_size = getelementptr i8, ptr %lane, i64 $LANE_SIZE
  %size = load i64, ptr %p_size
  %old = load ptr, ptr %lane
  %enough = icmp uge i64 %size, %need
  br i1 %enough, label %as_is, label %grow
as_is:
  ret ptr %old
grow:
  call void @free(ptr %old)
  %large = icmp uge i64 %need, 1048576
  %alignment = select i1 %large, i64 2097152, i64 64
  %below = sub i64 %alignment, 1
  %raised = add i64 %need, %below
  %mask = xor i64 %below, -1
  %rounded = and i64 %raised, %mask
  %new = call ptr @aligned_alloc(i64 %alignment, i64 %rounded)
  store ptr %new, ptr %lane
  %none = icmp eq ptr %new, null
  %had = select i1 %none, i64 0, i64 %rounded
  store i64 %had, ptr %p_size
  %advise = icmp ugt i64 %had, 1048575
  br i1 %advise, label %huge, label %done
huge:
  call i32 @madvise(ptr %new, i64 %rounded, i32 14)
  br label %done
done:
  ret ptr %new
}

; Claim tasks of the current job, of share %home first, and run them until none is left to claim.
define internal void @participate(ptr %pool, ptr %lane, i64 %home) nounwind {
entry:
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load atomic i64, ptr %p_workers monotonic, align 8
  br label %look
look:
  %at = phi i64 [ %home, %entry ], [ %at, %ran ], [ %after_at, %next ]
  %passed = phi i64 [ 0, %entry ], [ 0, %ran ], [ %passed_now, %next ]
  %count = phi i32 [ 0, %entry ], [ %counted, %ran ], [ %count, %next ]
  %last_target = phi i32 [ 0, %entry ], [ %target, %ran ], [ %last_target, %next ]
  %at_offset = mul i64 %at, $LANE_STRIDE
  %p_share = getelementptr i8, ptr %p_shares, i64 %at_offset
  %first = load atomic i64, ptr %p_share acquire, align 8
  br label %check
check:
  %ticket = phi i64 [ %first, %look ], [ %seen, %claim ]
  %left = trunc i64 %ticket to i32
  %empty = icmp eq i32 %left, 0
  br i1 %empty, label %pass, label %claim
pass:
  %passed_now = add i64 %passed, 1
  %through = icmp ugt i64 %passed_now, %workers
  br i1 %through, label %report, label %next
next:
  %raised = add i64 %at, 1
  %over = icmp ugt i64 %raised, %workers
  %after_at = select i1 %over, i64 0, i64 %raised
  br label %look
claim:
  %own = icmp eq i64 %at, %home
  %portion = lshr i32 %left, 1
  %portion_or_one = call i32 @llvm.umax.i32(i32 %portion, i32 1)
  %rest = lshr i32 %left, 2
  %most = sub i32 %left, %rest
  %share = select i1 %own, i32 %most, i32 %portion_or_one
  %share64 = zext i32 %share to i64
  %claimed = sub i64 %ticket, %share64
  %swap = cmpxchg ptr %p_share, i64 %ticket, i64 %claimed acq_rel acquire
  %seen = extractvalue { i64, i1 } %swap, 0
  %mine = extractvalue { i64, i1 } %swap, 1
  br i1 %mine, label %prepare, label %check
prepare:
  %p_function = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  %function = load ptr, ptr %p_function
  %p_buffers = getelementptr i8, ptr %pool, i64 $POOL_BUFFERS
  %buffers = load ptr, ptr %p_buffers
  %p_sizes = getelementptr i8, ptr %pool, i64 $POOL_SIZES
  %sizes = load ptr, ptr %p_sizes
  %p_end = getelementptr i8, ptr %pool, i64 $POOL_END
  %last = load i64, ptr %p_end
  %p_target = getelementptr i8, ptr %pool, i64 $POOL_TARGET
  %target = load i32, ptr %p_target
  %target64 = zext i32 %target to i64
  %p_base = getelementptr i8, ptr %pool, i64 $POOL_BASE
  %base = load i64, ptr %p_base
  %p_extra = getelementptr i8, ptr %pool, i64 $POOL_EXTRA
  %extra = load i64, ptr %p_extra
  %p_need = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  %need = load i64, ptr %p_need
  %left64 = zext i32 %left to i64
  ; The share ends (number + 1) * base + min(number + 1, extra) tasks after the first.
  %begun = add i64 %at, 1
  %even = mul i64 %begun, %base
  %longer = call i64 @llvm.smin.i64(i64 %begun, i64 %extra)
  %before_end = add i64 %even, %longer
  %job_begin = sub i64 %last, %target64
  %share_end = add i64 %job_begin, %before_end
  %begin = sub i64 %share_end, %left64
  %end = add i64 %begin, %share64
  %plain = icmp eq i64 %need, 0
  br i1 %plain, label %run, label %with_scratch
with_scratch:
  %memory = call ptr @ensure(ptr %lane, i64 %need)
  %none = icmp eq ptr %memory, null
  br i1 %none, label %failed, label %run
failed:
  %p_failed = getelementptr i8, ptr %pool, i64 $POOL_FAILED
  store atomic i32 1, ptr %p_failed monotonic, align 4
  br label %ran
run:
  %scratch = phi ptr [ null, %prepare ], [ %memory, %with_scratch ]
  call void %function(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch)
  br label %ran
ran:
  %counted = add i32 %count, %share
  br label %look
report:
  %idle = icmp eq i32 %count, 0
  br i1 %idle, label %out, label %add
add:
  %p_done = getelementptr i8, ptr %pool, i64 $POOL_DONE
  %before = atomicrmw add ptr %p_done, i32 %count seq_cst
  %after = add i32 %before, %count
  %all = icmp eq i32 %after, %last_target
  br i1 %all, label %finished, label %out
finished:
  %p_waiting = getelementptr i8, ptr %pool, i64 $POOL_WAITING
  %waiting = load atomic i32, ptr %p_waiting seq_cst, align 4
  %asleep = icmp ne i32 %waiting, 0
  br i1 %asleep, label %wake, label %out
wake:
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_done, i32 $WAKE, i32 1, ptr null, ptr null, i32 0)
  br label %out
out:
  ret void
}

; The life of a worker; returns when the pool stops.
define void @motet_worker(ptr %pool, ptr %lane) nounwind {
entry:
  %p_sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %p_stop = getelementptr i8, ptr %pool, i64 $POOL_STOP
  %p_generation = getelementptr i8, ptr %pool, i64 4
  %p_spin = getelementptr i8, ptr %pool, i64 $POOL_SPIN
  %limit = load i64, ptr %p_spin
  ; Its share lies in its lane; the submitter's, which is the first, in the lane before the first worker's.
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  %p_own = getelementptr i8, ptr %lane, i64 $LANE_SHARE
  %own = ptrtoint ptr %p_own to i64
  %shares = ptrtoint ptr %p_shares to i64
  %distance = sub i64 %own, %shares
  %home = udiv i64 %distance, $LANE_STRIDE
  br label %awake
awake:
  %known = phi i32 [ 0, %entry ], [ %generation, %take ], [ %past, %sleep ]
  br label %look
look:
  %past = phi i32 [ %known, %awake ], [ %past, %again ]
  %spins = phi i64 [ 0, %awake ], [ %spun, %again ]
  %ticket = load atomic i64, ptr %pool acquire, align 8
  %upper = lshr i64 %ticket, 32
  %generation = trunc i64 %upper to i32
  %work = icmp ne i32 %generation, %past
  br i1 %work, label %take, label %idle
take:
  call void @participate(ptr %pool, ptr %lane, i64 %home)
  br label %awake
idle:
  %stop = load atomic i32, ptr %p_stop monotonic, align 4
  %stopped = icmp ne i32 %stop, 0
  br i1 %stopped, label %end, label %wait
wait:
  %spun = add i64 %spins, 1
  %patient = icmp ult i64 %spun, %limit
  br i1 %patient, label %again, label %sleep
again:
  call void @$PAUSE
  br label %look
sleep:
  atomicrmw add ptr %p_sleepers, i32 1 seq_cst
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAIT, i32 %generation,
                               ptr null, ptr null, i32 0)
  atomicrmw sub ptr %p_sleepers, i32 1 seq_cst
  br label %awake
end:
  ret void
}

; Tell the workers to return. The new generation keeps one that is about to sleep from it.
define void @motet_stop(ptr %pool) nounwind {
  %p_stop = getelementptr i8, ptr %pool, i64 $POOL_STOP
  store atomic i32 1, ptr %p_stop seq_cst, align 4
  atomicrmw add ptr %pool, i64 4294967296 seq_cst
  %p_generation = getelementptr i8, ptr %pool, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAKE, i32 2147483647,
                               ptr null, ptr null, i32 0)
  ret void
}

; Run tasks [%begin, %end) in all threads; the caller holds the pool's lock.
define internal void @fork_join(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %begin, i64 %end,
                                i64 %need, ptr %lane) nounwind {
entry:
  %p_function = getelementptr i8, ptr %pool, i64 $POOL_FUNCTION
  store ptr %function, ptr %p_function
  %p_buffers = getelementptr i8, ptr %pool, i64 $POOL_BUFFERS
  store ptr %buffers, ptr %p_buffers
  %p_sizes = getelementptr i8, ptr %pool, i64 $POOL_SIZES
  store ptr %sizes, ptr %p_sizes
  %p_end = getelementptr i8, ptr %pool, i64 $POOL_END
  store i64 %end, ptr %p_end
  %tasks = sub i64 %end, %begin
  %target = trunc i64 %tasks to i32
  %p_target = getelementptr i8, ptr %pool, i64 $POOL_TARGET
  store i64 %tasks, ptr %p_target
  %p_need = getelementptr i8, ptr %pool, i64 $POOL_SCRATCH
  store i64 %need, ptr %p_need
  %p_done = getelementptr i8, ptr %pool, i64 $POOL_DONE
  store atomic i32 0, ptr %p_done monotonic, align 4
  %old = load atomic i64, ptr %pool monotonic, align 8
  %ticket = add i64 %old, 4294967296
  %p_workers = getelementptr i8, ptr %pool, i64 $POOL_WORKERS
  %workers = load i64, ptr %p_workers
  %threads = add i64 %workers, 1
  %base = udiv i64 %tasks, %threads
  %extra = urem i64 %tasks, %threads
  %p_base = getelementptr i8, ptr %pool, i64 $POOL_BASE
  store i64 %base, ptr %p_base
  %p_extra = getelementptr i8, ptr %pool, i64 $POOL_EXTRA
  store i64 %extra, ptr %p_extra
  %p_shares = getelementptr i8, ptr %pool, i64 $SHARES
  br label %share
share:
  %number = phi i64 [ 0, %entry ], [ %number_after, %share ]
  %is_longer = icmp ult i64 %number, %extra
  %more_by = zext i1 %is_longer to i64
  %size = add i64 %base, %more_by
  %word = or i64 %ticket, %size
  %share_offset = mul i64 %number, $LANE_STRIDE
  %p_share = getelementptr i8, ptr %p_shares, i64 %share_offset
  store atomic i64 %word, ptr %p_share release, align 8
  %number_after = add i64 %number, 1
  %shared = icmp eq i64 %number_after, %threads
  br i1 %shared, label %publish, label %share
publish:
  store atomic i64 %ticket, ptr %pool seq_cst, align 8
  %p_sleepers = getelementptr i8, ptr %pool, i64 $POOL_SLEEPERS
  %sleepers = load atomic i32, ptr %p_sleepers seq_cst, align 4
  %some = icmp ne i32 %sleepers, 0
  br i1 %some, label %consider, label %work
consider:
  %workers32 = trunc i64 %workers to i32
  %others = sub i32 %target, 1
  %useful = call i32 @llvm.umin.i32(i32 %others, i32 %workers32)
  %awake = sub i32 %workers32, %sleepers
  %lacking = sub i32 %useful, %awake
  %lack = icmp sgt i32 %lacking, 0
  br i1 %lack, label %wake, label %work
wake:
  %p_generation = getelementptr i8, ptr %pool, i64 4
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_generation, i32 $WAKE, i32 %lacking,
                               ptr null, ptr null, i32 0)
  br label %work
work:
  call void @participate(ptr %pool, ptr %lane, i64 0)
  %p_spin = getelementptr i8, ptr %pool, i64 $POOL_SPIN
  %limit = load i64, ptr %p_spin
  br label %look
look:
  %spins = phi i64 [ 0, %work ], [ %spun, %again ]
  %done = load atomic i32, ptr %p_done acquire, align 4
  %all = icmp eq i32 %done, %target
  br i1 %all, label %end_of_job, label %wait
wait:
  %spun = add i64 %spins, 1
  %patient = icmp ult i64 %spun, %limit
  br i1 %patient, label %again, label %sleep
again:
  call void @$PAUSE
  br label %look
sleep:
  %p_waiting = getelementptr i8, ptr %pool, i64 $POOL_WAITING
  store atomic i32 1, ptr %p_waiting seq_cst, align 4
  br label %doze
doze:
  %now = load atomic i32, ptr %p_done seq_cst, align 4
  %complete = icmp eq i32 %now, %target
  br i1 %complete, label %rise, label %down
down:
  call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %p_done, i32 $WAIT, i32 %now, ptr null, ptr null, i32 0)
  br label %doze
rise:
  store atomic i32 0, ptr %p_waiting monotonic, align 4
  br label %end_of_job
end_of_job:
  ret void
}

; Run tasks [0, %tasks): in all threads while the pool is free, in this one while another submitter has it.
define internal i32 @parallel(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %tasks, i64 %need,
                              ptr %lane, ptr %scratch) nounwind {
entry:
  %p_lock = getelementptr i8, ptr %pool, i64 $POOL_LOCK
  %p_shift = getelementptr i8, ptr %pool, i64 $POOL_SHIFT
  %shift = load i64, ptr %p_shift
  br label %look
look:
  %begin = phi i64 [ 0, %entry ], [ %end, %alone ]
  %held = load atomic i32, ptr %p_lock monotonic, align 4
  %free = icmp eq i32 %held, 0
  br i1 %free, label %try, label %alone
try:
  %swap = cmpxchg ptr %p_lock, i32 0, i32 1 acquire monotonic
  %mine = extractvalue { i32, i1 } %swap, 1
  br i1 %mine, label %together, label %alone
together:
  %p_failed = getelementptr i8, ptr %pool, i64 $POOL_FAILED
  store atomic i32 0, ptr %p_failed monotonic, align 4
  call void @fork_join(ptr %pool, ptr %function, ptr %buffers, ptr %sizes, i64 %begin, i64 %tasks,
                       i64 %need, ptr %lane)
  %failed = load atomic i32, ptr %p_failed monotonic, align 4
  store atomic i32 0, ptr %p_lock release, align 4
  ret i32 %failed
alone:
  %left = sub i64 %tasks, %begin
  %portion = lshr i64 %left, %shift
  %share = call i64 @llvm.umax.i64(i64 %portion, i64 1)
  %end = add i64 %begin, %share
  call void %function(ptr %buffers, ptr %sizes, i64 %begin, i64 %end, ptr %scratch)
  %more = icmp ult i64 %end, %tasks
  br i1 %more, label %look, label %finished
finished:
  ret i32 0
}
"""
