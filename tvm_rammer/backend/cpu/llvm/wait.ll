; Signals and waits between cores.

declare i32 @sched_yield()
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)
declare i32 @clock_gettime(i32, ptr)
declare i32 @snprintf(ptr, i64, ptr, ...)
declare void @TVMFFIErrorSetRaisedFromCStrParts(ptr, ptr, i32)

define void @rammer_signal(ptr %counter, i32 %count) alwaysinline {
  %cpu = call i32 @sched_getcpu()
  %cpu_at = getelementptr i32, ptr %counter, i32 1
  store atomic i32 %cpu, ptr %cpu_at monotonic, align 4
  store atomic i32 %count, ptr %counter release, align 4
  ret void
}

define void @rammer_wait(ptr %counter, i32 %count, ptr %abort, i32 %limit, i32 %veu, i32 %other)
    alwaysinline {
  %first = load atomic i32, ptr %counter acquire, align 4
  %at_once = icmp sge i32 %first, %count
  br i1 %at_once, label %reached, label %poll
poll:
  call void @rammer_poll(ptr %counter, i32 %count, ptr %abort, i32 %limit, i32 %veu, i32 %other)
  br label %reached
reached:
  ret void
}

define linkonce_odr hidden void @rammer_leave(i32 %cpu) {
  %mask = alloca [128 x i64], align 8
  %unknown = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %mask)
  %failed = icmp ne i32 %unknown, 0
  br i1 %failed, label %stay, label %leave
leave:
  %number = lshr i32 %cpu, 6
  %word_at = getelementptr i64, ptr %mask, i32 %number
  %word = load i64, ptr %word_at, align 8
  %place = and i32 %cpu, 63
  %wide_place = zext i32 %place to i64
  %bit = shl i64 1, %wide_place
  %not_here = xor i64 %bit, -1
  %elsewhere = and i64 %word, %not_here
  store i64 %elsewhere, ptr %word_at, align 8
  %left = call i32 @sched_setaffinity(i32 0, i64 1024, ptr %mask)
  store i64 %word, ptr %word_at, align 8
  %restored = call i32 @sched_setaffinity(i32 0, i64 1024, ptr %mask)
  br label %stay
stay:
  ret void
}

define linkonce_odr hidden void @rammer_poll(
    ptr %counter, i32 %count, ptr %abort, i32 %limit, i32 %veu, i32 %other) {
entry:
  %clock = alloca [2 x i64], align 8
  %limit_wide = zext i32 %limit to i64
  %limit_ns = mul i64 %limit_wide, 1000000
  br label %poll
poll:
  %spins = phi i32 [ 0, %entry ], [ %spun, %paused ], [ %polled, %yielded ]
  %before = phi i64 [ 0, %entry ], [ %before, %paused ], [ %time, %yielded ]
  %waited = phi i64 [ 0, %entry ], [ %waited, %paused ], [ %longer, %yielded ]
  %now = load atomic i32, ptr %counter acquire, align 4
  %done = icmp sge i32 %now, %count
  br i1 %done, label %reached, label %behind
behind:
  %patient = icmp slt i32 %spins, ${spins}
  br i1 %patient, label %early, label %tired
early:
  %fresh = icmp slt i32 %spins, ${looking}
  br i1 %fresh, label %paused, label %look
look:
  %cpu_at = getelementptr i32, ptr %counter, i32 1
  %theirs = load atomic i32, ptr %cpu_at monotonic, align 4
  %ours = call i32 @sched_getcpu()
  %shared = icmp eq i32 %theirs, %ours
  br i1 %shared, label %crowded, label %paused
crowded:
  %found_out = icmp eq i32 %spins, ${looking}
  br i1 %found_out, label %move, label %tired
move:
  call void @rammer_leave(i32 %ours)
  br label %paused
paused:
  ${pause}
  %spun = add i32 %spins, 1
  br label %poll
tired:
  %aborted = load atomic i32, ptr %abort acquire, align 4
  %given_up = icmp ne i32 %aborted, 0
  br i1 %given_up, label %reached, label %timed
timed:
  %unused = call i32 @clock_gettime(i32 1, ptr %clock)
  %seconds = load i64, ptr %clock, align 8
  %fraction_at = getelementptr i64, ptr %clock, i32 1
  %fraction = load i64, ptr %fraction_at, align 8
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %fraction
  %elapsed = sub i64 %time, %before
  %long = icmp ugt i64 %elapsed, ${longest}
  %bounded = select i1 %long, i64 ${longest}, i64 %elapsed
  %first_look = icmp eq i64 %before, 0
  %counted = select i1 %first_look, i64 0, i64 %bounded
  %longer = add i64 %waited, %counted
  %limited = icmp ne i32 %limit, 0
  %past = icmp ugt i64 %longer, %limit_ns
  %expired = and i1 %limited, %past
  br i1 %expired, label %give_up, label %yielded
yielded:
  %ignored = call i32 @sched_yield()
  %polled = add i32 %spins, 1
  br label %poll
give_up:
  %exchange = cmpxchg ptr %abort, i32 0, i32 ${expired} seq_cst seq_cst
  %mine = extractvalue { i32, i1 } %exchange, 1
  br i1 %mine, label %record, label %reached
record:
  %veu_at = getelementptr i32, ptr %abort, i32 1
  store i32 %veu, ptr %veu_at, align 4
  %limit_at = getelementptr i32, ptr %abort, i32 2
  store i32 %limit, ptr %limit_at, align 4
  %count_at = getelementptr i32, ptr %abort, i32 3
  store i32 %count, ptr %count_at, align 4
  %other_at = getelementptr i32, ptr %abort, i32 4
  store i32 %other, ptr %other_at, align 4
  %now_at = getelementptr i32, ptr %abort, i32 5
  store i32 %now, ptr %now_at, align 4
  br label %reached
reached:
  ret void
}
