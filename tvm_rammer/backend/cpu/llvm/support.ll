; For any processor: the abort flag, pointer tables, subnormal numbers, stamps. An architecture
; has a file of its own beside this one, and so have waits.

define i32 @rammer_aborted(ptr %abort) alwaysinline {
  %flag = load atomic i32, ptr %abort monotonic, align 4
  ret i32 %flag
}

define void @rammer_abort(ptr %abort) alwaysinline {
  store atomic i32 ${failed}, ptr %abort release, align 4
  ret void
}

define i32 @rammer_flush_subnormals() alwaysinline {
  %mode = call i32 @rammer_mode()
  %flushing = or i32 %mode, ${flushing}
  call void @rammer_set_mode(i32 %flushing)
  ret i32 %mode
}

define void @rammer_set_base(ptr %bases, i32 %number, ptr %pointer) alwaysinline {
  %slot = getelementptr ptr, ptr %bases, i32 %number
  store ptr %pointer, ptr %slot, align 8
  ret void
}

define ptr @rammer_address(ptr %bases, i32 %place, i32 %lines) alwaysinline {
  %number = lshr i32 %place, 6
  %slot = getelementptr ptr, ptr %bases, i32 %number
  %base = load ptr, ptr %slot, align 8
  %wide = zext i32 %lines to i64
  %whole_lines = shl i64 %wide, 6
  %rest = and i32 %place, 63
  %wide_rest = zext i32 %rest to i64
  %bytes = or i64 %whole_lines, %wide_rest
  %address = getelementptr i8, ptr %base, i64 %bytes
  ret ptr %address
}

define void @rammer_stamp(ptr %header, i32 %line, i32 %number) alwaysinline {
  %wide = zext i32 %line to i64
  %bytes = shl i64 %wide, 6
  %stamps = getelementptr i8, ptr %header, i64 %bytes
  %slot = getelementptr i64, ptr %stamps, i32 %number
  %ticks = ${ticks}
  store i64 %ticks, ptr %slot, align 8
  ret void
}

define void @rammer_stamp_time(ptr %header, i32 %line, i32 %number) alwaysinline {
  %clock = alloca [2 x i64], align 8
  %unused = call i32 @clock_gettime(i32 1, ptr %clock)
  %seconds = load i64, ptr %clock, align 8
  %fraction_at = getelementptr i64, ptr %clock, i32 1
  %fraction = load i64, ptr %fraction_at, align 8
  %whole = mul i64 %seconds, 1000000000
  %time = add i64 %whole, %fraction
  %wide = zext i32 %line to i64
  %bytes = shl i64 %wide, 6
  %stamps = getelementptr i8, ptr %header, i64 %bytes
  %slot = getelementptr i64, ptr %stamps, i32 %number
  store i64 %time, ptr %slot, align 8
  ret void
}
