; A thread's floating-point mode. Intel's manual, volume 1, 10.2.3: bit 15 of MXCSR gives 0 for
; results that are subnormal, bit 6 takes such operands for 0.

declare void @llvm.x86.sse2.pause()
declare i64 @llvm.readcyclecounter()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i32 @rammer_mode() alwaysinline {
  %slot = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %slot)
  %mode = load i32, ptr %slot, align 4
  ret i32 %mode
}

define void @rammer_set_mode(i32 %mode) alwaysinline {
  %slot = alloca i32, align 4
  store i32 %mode, ptr %slot, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %slot)
  ret void
}
