"""How fast a device computes, and what its caches give: the numbers that models of time read.

Nobody else holds such numbers; a test sees to it. All of this file are defaults, the same for every
machine; what ``doctor --calibrate`` measures stands beside them in
:class:`~tvm_rammer.machine.VDevice`. Comments say where each is from: *measured* is on a core of an
AMD Zen 4 server (AVX-512), *fitted* is what made a model rank kernels there as the clock does, and
*assumed* has no other source.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class FunctionCycles:
    """Cycles of a function for a vector of float32, by its name in TIR.

    Attributes
    ----------
    power_by_constant : float
        A power whose exponent is a constant, most often a root or a product.
    libm : float
        Any other function, for every lane: it is the C library's.
    """

    # Measured, with 16 lanes.
    exp: float = 16.0
    exp2: float = 16.0
    sigmoid: float = 21.0
    tanh: float = 22.0
    erf: float = 29.0
    log: float = 24.0
    log2: float = 24.0
    log10: float = 24.0
    pow: float = 85.0
    rsqrt: float = 16.0
    sin: float = 30.0
    cos: float = 30.0
    # Assumed.
    power_by_constant: float = 20.0
    libm: float = 20.0


@dataclass(frozen=True)
class CoreCycles:
    """What takes a core how many cycles; unless it says otherwise, for a vector.

    Attributes
    ----------
    wide_vector_bytes : int
        Vectors of so many bytes or more are wide: they take two of the units, or both halves of
        one.
    wide_operation, narrow_operation : float
        A multiply-add or a load.
    narrow_product, narrow_tap : float
        A multiply-add of narrow vectors in an outer product, and in one whose columns have data of
        their own: twice as many instructions keep the core from its best a little.
    multiply_add_latency, latency_slack : float
        From a multiply-add to the next one of the same sum, and so much more in outer products:
        with just enough sums to hide the latency, whatever else is late shows.
    load, wide_load : float
        Loads of an outer product over its multiply-adds: they also wait for each other, but for
        those of the widest multiply-adds, of which half as many are issued at once.
    far_weights, staged_weights : float
        So much longer takes a vector of weights in an outer product, where they come from beyond
        the first-level cache, and in the products of Winograd's algorithm.
    ragged_tile, loop_overhead : float
        Parts of the time: a last register tile with fewer rows; the loop around one result.
    spilt_sum : float
        Part of the time that a sum more costs, as LLVM may spill it.
    direct_overhead : float
        A direct convolution over its multiply-adds.
    exposed : float
        Part of the shorter of computing and loading that the longer one does not hide.
    task, stage : float
        A task besides its register tiles, by its call and the loops around them; a stage besides
        its work, by its start and vEUs that wait for others.
    operation, store, instruction, square_root : float
        An arithmetic operation (a multiply and an add are one instruction, and index arithmetic
        counts as well although most of it leaves the loop), a store, and what is one instruction,
        or one slow one, for a vector of any type.
    functions : FunctionCycles
    """

    # How Zen 4 and Intel's clients with AVX-512 work.
    wide_vector_bytes: int = 64
    wide_operation: float = 1.0
    narrow_operation: float = 0.5
    # Fitted, to outer products.
    narrow_product: float = 0.6
    narrow_tap: float = 0.75
    # What the makers say of Zen 4 and of Intel's since Skylake.
    multiply_add_latency: float = 4.0
    # Fitted, to outer products.
    latency_slack: float = 1.5
    load: float = 1.25
    wide_load: float = 1.0
    far_weights: float = 0.3
    ragged_tile: float = 0.02
    loop_overhead: float = 0.3
    # Fitted, to Winograd's and direct convolutions.
    staged_weights: float = 0.5
    spilt_sum: float = 0.003
    direct_overhead: float = 1.06
    exposed: float = 0.2
    stage: float = 2000.0
    # Assumed.
    task: float = 60.0
    operation: float = 0.25
    store: float = 0.5
    instruction: float = 0.5
    square_root: float = 10.0
    functions: FunctionCycles = field(default_factory=FunctionCycles)


@dataclass(frozen=True)
class Speeds:
    """How fast a device computes, and what its caches give.

    Attributes
    ----------
    clock : float
        Cycles of a core per second under vector load.
    shortest : float
        No operator takes fewer seconds.
    cache_bandwidth : float
        Bytes per second that one core draws from the last-level cache beside others.
    cache_bytes, memory_bytes : float
        Bytes per cycle that one core draws from the last-level cache and from memory, where nothing
        but weights is loaded.
    shared_bandwidth : float
        Bytes per second that all cores of a complex together draw from its last-level cache.
    far_byte : float
        Seconds that a byte takes longer from the last-level cache than from a core's own.
    rows_of_one_read : float
        So many rows of a product take as long as one, for which reading the weight takes the time.
    cycles : CoreCycles
    """

    # Assumed: a typical server core.
    clock: float = 3.5e9
    shortest: float = 1e-8
    # Assumed, of the 98e9 that were measured for a core by itself: what others leave.
    cache_bandwidth: float = 60e9
    # Fitted, to Winograd's and direct convolutions.
    cache_bytes: float = 24.0
    memory_bytes: float = 9.0
    # Assumed, for a complex of 8 cores: four times the 98e9 of one.
    shared_bandwidth: float = 400e9
    # Measured, with products of 256 KiB.
    far_byte: float = 2.5e-12
    # Assumed.
    rows_of_one_read: float = 2.5
    cycles: CoreCycles = field(default_factory=CoreCycles)


DEFAULT_SPEEDS = Speeds()
