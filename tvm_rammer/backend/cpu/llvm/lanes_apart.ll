; Blocks of a function on vectors: if any lane is to be computed apart, a loop over all of them, in
; memory, that calls libm's function. Nothing unrolls what must not be duplicated.
  %lanes = alloca ${vector}
  br i1 ${some}, label %apart, label %done
apart:
  store ${vector} ${x}, ptr %lanes
  br label %lane
lane:
  %k = phi i32 [ 0, %apart ], [ %next, %lane ]
  call void asm sideeffect "", ""() noduplicate nounwind
  %place = getelementptr float, ptr %lanes, i32 %k
  %before = load float, ptr %place
  %after = call float @llvm.${function}.f32(float %before)
  store float %after, ptr %place
  %next = add i32 %k, 1
  %more = icmp ult i32 %next, ${count}
  br i1 %more, label %lane, label %mix
mix:
