; A signal and a wait as plain as they can be, to measure what they cost. A waiting worker yields
; now and then: the one it waits for may need this very core.

${declare_pause}
declare i32 @sched_yield()
define void @measure_signal(ptr %counter, i32 %value) alwaysinline {
  store atomic i32 %value, ptr %counter release, align 4
  ret void
}
define void @measure_wait(ptr %counter, i32 %value) alwaysinline {
entry:
  br label %look
look:
  %spins = phi i32 [ 0, %entry ], [ %more, %spin ], [ %more, %yield ]
  %seen = load atomic i32, ptr %counter acquire, align 4
  %done = icmp sge i32 %seen, %value
  br i1 %done, label %go, label %spin_or_yield
spin_or_yield:
  %more = add i32 %spins, 1
  %low = and i32 %more, 1023
  %tired = icmp eq i32 %low, 0
  br i1 %tired, label %yield, label %spin
spin:
  ${call_pause}
  br label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %look
go:
  ret void
}
