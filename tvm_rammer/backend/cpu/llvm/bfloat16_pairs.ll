; Two products of bfloat16 added to each sum of float32, the later one of each pair first.

declare <${lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.${bits}(<${lanes} x float>, <${pairs} x bfloat>, <${pairs} x bfloat>)

define <${lanes} x float> @${symbol}(<${lanes} x float> %sums, <${lanes} x i32> %data, <${lanes} x i32> %weights) alwaysinline {
  %x = bitcast <${lanes} x i32> %data to <${pairs} x bfloat>
  %w = bitcast <${lanes} x i32> %weights to <${pairs} x bfloat>
  %added = call <${lanes} x float> @llvm.x86.avx512bf16.dpbf16ps.${bits}(<${lanes} x float> %sums, <${pairs} x bfloat> %x, <${pairs} x bfloat> %w)
  ret <${lanes} x float> %added
}
