; Whether this CPU has what a row of the table asks for. RBX may be the frame's base pointer, so
; CPUID's result leaves through another register.

%rammer_words = type { i32, i32, i32, i32 }

define %rammer_words @rammer_cpuid(i32 %leaf, i32 %subleaf) {
  %words = call %rammer_words asm sideeffect "xchgq %rbx, $${1:q}\0Acpuid\0Axchgq %rbx, $${1:q}",
      "={ax},=r,={cx},={dx},0,2,~{dirflag},~{fpsr},~{flags}"(i32 %leaf, i32 %subleaf)
  ret %rammer_words %words
}

define i32 @rammer_saved_state() {
  %words = call %rammer_words @rammer_cpuid(i32 1, i32 0)
  %ecx = extractvalue %rammer_words %words, 2
  %osxsave = and i32 %ecx, 134217728
  %readable = icmp ne i32 %osxsave, 0
  br i1 %readable, label %read, label %none
read:
  %xcr0 = call { i32, i32 } asm sideeffect "xgetbv", "={ax},={dx},{cx}"(i32 0)
  %state = extractvalue { i32, i32 } %xcr0, 0
  ret i32 %state
none:
  ret i32 0
}

define i1 @rammer_has(ptr %row) {
  %words = alloca %rammer_words, align 16
  %fields = load [5 x i32], ptr %row, align 4
  %leaf = extractvalue [5 x i32] %fields, 0
  %subleaf = extractvalue [5 x i32] %fields, 1
  %register = extractvalue [5 x i32] %fields, 2
  %bit = extractvalue [5 x i32] %fields, 3
  %needed = extractvalue [5 x i32] %fields, 4
  %base = and i32 %leaf, -2147483648
  %range = call %rammer_words @rammer_cpuid(i32 %base, i32 0)
  %last = extractvalue %rammer_words %range, 0
  %known = icmp ule i32 %leaf, %last
  %read = call %rammer_words @rammer_cpuid(i32 %leaf, i32 %subleaf)
  store %rammer_words %read, ptr %words, align 16
  %word_at = getelementptr i32, ptr %words, i32 %register
  %word = load i32, ptr %word_at, align 4
  %shifted = lshr i32 %word, %bit
  %present = trunc i32 %shifted to i1
  %state = call i32 @rammer_saved_state()
  %kept = and i32 %state, %needed
  %saved = icmp eq i32 %kept, %needed
  %there = and i1 %known, %present
  %usable = and i1 %there, %saved
  ret i1 %usable
}
