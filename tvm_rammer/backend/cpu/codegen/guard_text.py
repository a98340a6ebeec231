"""LLVM IR text of a library's guard: what the CPU lacks, the thread's word, its pool's workers.

The text is linked into a module compiled for the oldest CPU of the architecture, so it runs where
the library's kernels would not. It calls libc, libgcc and the C interface of tvm_ffi, which every
process with TVM's runtime has.
"""

from __future__ import annotations

from collections.abc import Sequence

from tvm_rammer.backend.cpu.llvm import llvm_ir

#: The word of a thread whose pool stays as it is.
LEFT_ALONE = -1
#: Of the thread that came through a fork, if its pool was used before: the workers are lost.
LOST = -2
#: The same, if nobody knows whether its pool was used.
FORKED = -3

_VALUES = {
    # kTVMFFIInt and kTVMFFISmallStr: a string of at most 7 characters, held in its TVMFFIAny.
    "int": 1,
    "small_string": 11,
    # kSpecifyOneCorePerThread where every CPU gets a worker, else kSpecifyThreadShareAllCore (see
    # tvm_rammer.backend.cpu.host.pool).
    "one_cpu_each": -2,
    "share_all": -3,
    # None of TVM's modes: it sets the number of workers and touches no thread, dead ones neither.
    "bind_none": 0,
    "left_alone": LEFT_ALONE,
    "lost": LOST,
    "forked": FORKED,
}

#: Number of the system call that tells a thread's: older C libraries have no function for it.
_GETTID = {"x86_64": 186, "aarch64": 178}


def guard_functions(architecture: str, rows: Sequence[tuple[int, ...]], constructor: str) -> str:
    """The LLVM IR text of a guard.

    It defines

    - ``rammer_missing()``: the number of the first row that this CPU lacks, or -1;
    - ``rammer_recall()``: the thread's word: 0 if it is new, the number of its CPUs if its pool has
      its workers, :data:`LEFT_ALONE`, :data:`LOST` or :data:`FORKED`;
    - ``rammer_remember(word)``;
    - ``rammer_configure(workers)``: gives the thread's pool its workers; the word to remember, 0 if
      TVM failed;
    - ``rammer_give_up_pool()``: lets the thread work alone, likewise;
    - ``rammer_pool_is_new()``: whether nobody used the thread's pool before: asked for one worker
      more than there are CPUs, a pool that is there neither grows nor starts threads;
    - ``rammer_note_process()``: for the constructor;
    - ``rammer_share_thread(address)``: keeps the words in another variable.

    Parameters
    ----------
    architecture : str
        ``"x86_64"`` or ``"aarch64"``.
    rows : sequence of tuple of int
        Where the CPU reports each feature that the library needs.
    constructor : str
        A C function of the module without arguments; it is called when the library is loaded.
    """
    columns = len(rows[0]) if rows else 1
    table = ", ".join(f"[{columns} x i32] [{_words(row)}]" for row in rows)
    values = {**_VALUES, "gettid": _GETTID[architecture], "constructor": constructor}
    texts = (
        llvm_ir(f"has_feature_{architecture}"),
        llvm_ir("missing_feature", rows=len(rows), columns=columns, table=table),
        llvm_ir("thread_word", **values),
        llvm_ir("pool", **values),
    )
    return "".join(texts)


def _words(row: tuple[int, ...]) -> str:
    return ", ".join(f"i32 {word}" for word in row)
