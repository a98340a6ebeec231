; The larger or the smaller one of two values, and NaN if either is. Which of the zeros comes out is
; left open: on x86 the right one would take twice as long.

declare ${type} @llvm.${operation}.${suffix}(${type}, ${type})

define ${type} @${symbol}(${type} %a, ${type} %b) alwaysinline {
  %c = call nsz ${type} @llvm.${operation}.${suffix}(${type} %a, ${type} %b)
  ret ${type} %c
}
