"""What processors need beyond TIR, as LLVM IR: a file of functions that belong together each."""

from __future__ import annotations

from functools import partial

from tvm_rammer.kernel.lowering.llvm_file import llvm_file

#: The text of a file of this folder, from its name and the values that it has places for.
llvm_ir = partial(llvm_file, __name__)
