; A thread's floating-point mode. Arm's Architecture Reference Manual: bit 24 of FPCR gives 0 for
; results that are subnormal, and takes such operands for 0.

define i32 @rammer_mode() alwaysinline {
  %wide = call i64 asm sideeffect "mrs $$0, fpcr", "=r"()
  %mode = trunc i64 %wide to i32
  ret i32 %mode
}

define void @rammer_set_mode(i32 %mode) alwaysinline {
  %wide = zext i32 %mode to i64
  call void asm sideeffect "msr fpcr, $$0", "r"(i64 %wide)
  ret void
}
