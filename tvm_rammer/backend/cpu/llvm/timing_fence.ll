; Keeps LLVM from merging repetitions.

define void @timing_fence() alwaysinline {
  call void asm sideeffect "", "~{memory}"()
  ret void
}
