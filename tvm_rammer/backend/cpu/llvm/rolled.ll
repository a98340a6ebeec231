; The mark of a loop that stays one. What touches no memory that a program sees stands in nothing's
; way.

define void @${rolled}() alwaysinline {
  call void asm sideeffect "", ""() #0
  ret void
}

attributes #0 = { noduplicate nounwind willreturn memory(inaccessiblemem: readwrite) }
