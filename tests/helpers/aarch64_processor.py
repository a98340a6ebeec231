"""An emulated AArch64 processor: object files in it, and what they call outside of them.

The emulation has flat memory: what the host's arrays hold is mapped at the addresses that they have
here, whole pages only, so that an access to any other page ends the run with an error.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import Any

import unicorn
from elftools.elf.elffile import ELFFile
from unicorn import arm64_const as arm64

from tvm_rammer.rprogram import ALIGNMENT

_PAGE = mmap.PAGESIZE
#: Far below what the host maps; outside functions within the 128 MiB that a call reaches.
_CODE, _OUTSIDE, _OFFSETS = 0x100000, 0x4000000, 0x4100000
_WORKSPACE, _WORKSPACE_BYTES = 0x60000000, 1 << 24
_STACK, _STACK_BYTES = 0x50000000, 1 << 20
#: What a function of the pool is told: that it is the only one. Behind all slots.
_ONE_TASK = _OFFSETS + mmap.PAGESIZE // 2
_RETURN = 4
#: Of ELF for the Arm 64-bit Architecture, "Relocation".
_ABS64, _PREL32, _PAGE_HI21, _ADD_LO12 = 257, 261, 275, 277
_LOW_12 = {_ADD_LO12: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4}
_CALLS = (282, 283)
#: By way of the global offset table: the page of the slot, and where in it.
_THROUGH_SLOTS = {311: _PAGE_HI21, 312: 286}
_ALLOCATED = 2
#: Variables that hold the addresses of functions of TVM's, once a library is loaded.
_POINTER = "__TVM"
#: The kind of an argument of a packed function.
INTEGER = 1


class EmulationError(Exception):
    """The emulated code touched what it must not, or called what is not there."""


class Processor:
    """Object files, linked and loaded into an emulated AArch64 processor.

    Parameters
    ----------
    object_files : sequence of bytes
        ELF, relocatable, for AArch64.
    """

    def __init__(self, object_files: Sequence[bytes]) -> None:
        self._uc = unicorn.Uc(unicorn.UC_ARCH_ARM64, unicorn.UC_MODE_ARM)
        self._uc.ctl_set_cpu_model(arm64.UC_CPU_ARM64_MAX)
        self._outside: list[str] = []
        self._functions = {**_FUNCTIONS, "TVMBackendAllocWorkspace": self._allocate}
        self._slots: dict[int, int] = {}
        self._symbols = self._load([ELFFile(BytesIO(each)) for each in object_files])
        self._uc.mem_map(_STACK, _STACK_BYTES, unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE)
        self._uc.mem_map(_WORKSPACE, _WORKSPACE_BYTES)
        self._uc.mem_map(0, _PAGE, unicorn.UC_PROT_READ | unicorn.UC_PROT_EXEC)
        self._uc.hook_add(
            unicorn.UC_HOOK_CODE, self._call_outside, begin=_OUTSIDE, end=_OUTSIDE + _PAGE
        )

    def call(self, symbol: str, *arguments: int) -> int:
        """Call a function on integers and addresses; returns what it leaves in ``w0``."""
        self._used = _WORKSPACE
        for number, value in enumerate(arguments):
            self._uc.reg_write(getattr(arm64, f"UC_ARM64_REG_X{number}"), value)
        self._uc.reg_write(arm64.UC_ARM64_REG_SP, _STACK + _STACK_BYTES)
        self._uc.reg_write(arm64.UC_ARM64_REG_LR, _RETURN)
        try:
            self._uc.emu_start(self._symbols[symbol], _RETURN)
        except unicorn.UcError as error:
            at = self._uc.reg_read(arm64.UC_ARM64_REG_PC)
            raise EmulationError(f"{symbol}: {error} at {at:#x}") from error
        return ctypes.c_int32(self._uc.reg_read(arm64.UC_ARM64_REG_W0)).value

    @contextmanager
    def mapped(self, places: Iterable[tuple[int, int]]) -> Iterator[None]:
        """Let the code see memory of this process, given as addresses and numbers of bytes."""
        runs = _runs_of_pages(places)
        for start, stop in runs:
            allowed = unicorn.UC_PROT_READ | unicorn.UC_PROT_WRITE
            self._uc.mem_map_ptr(start, stop - start, allowed, start)
        try:
            yield
        finally:
            for start, stop in runs:
                self._uc.mem_unmap(start, stop - start)

    def _load(self, files: Sequence[Any]) -> dict[str, int]:
        """Place what is loaded, relocate it, and tell where the functions are."""
        for start in (_OFFSETS, _OUTSIDE):
            self._uc.mem_map(start, _PAGE)
        self._uc.mem_write(_OUTSIDE, struct.pack("<I", 0xD65F03C0) * (_PAGE // 4))  # returns
        end, homes = _CODE, []
        for elf in files:
            homes.append(_places_of_sections(elf, end))
            end = max(place + elf.get_section(k)["sh_size"] for k, place in homes[-1].items())
        self._uc.mem_map(_CODE, -(-(end - _CODE) // _PAGE) * _PAGE)
        named: dict[str, int] = {}
        for strong in (False, True):
            for elf, home in zip(files, homes, strict=True):
                named.update(_defined(elf, home, strong))
        for elf, home in zip(files, homes, strict=True):
            self._load_file(elf, home, named)
        for name, place in named.items():
            if name.startswith(_POINTER):
                address = self._outside_address(name.removeprefix("__"))
                self._uc.mem_write(place, struct.pack("<Q", address))
        return named

    def _load_file(self, elf: Any, home: dict[int, int], named: dict[str, int]) -> None:
        for number, place in home.items():
            if elf.get_section(number)["sh_type"] != "SHT_NOBITS":
                self._uc.mem_write(place, elf.get_section(number).data())
        symbols = list(elf.get_section_by_name(".symtab").iter_symbols())
        values = [self._value(symbol, home, named) for symbol in symbols]
        for section in elf.iter_sections():
            if section["sh_type"] == "SHT_RELA" and section["sh_info"] in home:
                for item in section.iter_relocations():
                    place = home[section["sh_info"]] + item["r_offset"]
                    target = values[item["r_info_sym"]] + item["r_addend"]
                    self._relocate(item["r_info_type"], place, target)

    def _value(self, symbol: Any, home: dict[int, int], named: dict[str, int]) -> int:
        section, name = symbol["st_shndx"], symbol.name
        if name and symbol["st_info"]["bind"] != "STB_LOCAL":
            return named.get(name) or self._outside_address(name)
        return home.get(section, 0) + symbol["st_value"] if isinstance(section, int) else 0

    def _outside_address(self, name: str) -> int:
        """Where a function that is not in the files may be called."""
        if name not in self._outside:
            self._outside.append(name)
        return _OUTSIDE + 4 * self._outside.index(name)

    def _relocate(self, kind: int, place: int, target: int) -> None:
        if kind in _THROUGH_SLOTS:
            kind, target = _THROUGH_SLOTS[kind], self._slot_of(target)
        if kind == _ABS64:
            self._uc.mem_write(place, struct.pack("<Q", target))
            return
        (word,) = struct.unpack("<I", self._uc.mem_read(place, 4))
        if kind == _PREL32:
            word = (target - place) & 0xFFFFFFFF
        elif kind in _CALLS:
            word |= ((target - place) >> 2) & 0x3FFFFFF
        elif kind == _PAGE_HI21:
            pages = (target >> 12) - (place >> 12)
            word |= (pages & 3) << 29 | ((pages >> 2) & 0x7FFFF) << 5
        elif kind in _LOW_12:
            word |= ((target & 0xFFF) >> _LOW_12[kind]) << 10
        else:
            raise EmulationError(f"a relocation of type {kind}")
        self._uc.mem_write(place, struct.pack("<I", word))

    def _slot_of(self, target: int) -> int:
        """Where an address stands in the global offset table."""
        if target not in self._slots:
            self._slots[target] = _OFFSETS + 8 * len(self._slots)
            self._uc.mem_write(self._slots[target], struct.pack("<Q", target))
        return self._slots[target]

    def _call_outside(self, uc: Any, address: int, size: int, data: Any) -> None:
        name = self._outside[(address - _OUTSIDE) // 4]
        if name not in self._functions:
            raise EmulationError(f"the code calls {name}, which is not emulated")
        self._functions[name](uc)

    def _allocate(self, uc: Any) -> None:
        """Give a kernel memory that holds NaN; it all ends with the call."""
        size = _registers(uc, 3)[2]
        start, self._used = self._used, -(-(self._used + size) // ALIGNMENT) * ALIGNMENT
        if self._used > _WORKSPACE + _WORKSPACE_BYTES:
            raise EmulationError(f"the code asks for {size} bytes more than there are")
        uc.mem_write(start, b"\xff" * size)
        uc.reg_write(arm64.UC_ARM64_REG_X0, start)


def _places_of_sections(elf: Any, start: int) -> dict[int, int]:
    """Where each section that is loaded goes, from an address on."""
    places: dict[int, int] = {}
    for number, section in enumerate(elf.iter_sections()):
        if section["sh_flags"] & _ALLOCATED and section["sh_size"]:
            align = max(section["sh_addralign"], 1)
            places[number] = -(-start // align) * align
            start = places[number] + section["sh_size"]
    return places


def _defined(elf: Any, home: dict[int, int], strong: bool) -> dict[str, int]:
    """The symbols that other files may use; a weak one gives way to a strong one."""
    bind = "STB_GLOBAL" if strong else "STB_WEAK"
    return {
        symbol.name: home.get(symbol["st_shndx"], 0) + symbol["st_value"]
        for symbol in elf.get_section_by_name(".symtab").iter_symbols()
        if symbol["st_info"]["bind"] == bind and isinstance(symbol["st_shndx"], int)
    }


def _runs_of_pages(places: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The pages of pieces of memory, next ones together."""
    runs: list[tuple[int, int]] = []
    for start, size in sorted(places):
        first, last = start // _PAGE * _PAGE, -(-(start + size) // _PAGE) * _PAGE
        if runs and first <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(last, runs[-1][1]))
        elif size:
            runs.append((first, last))
    return runs


def _text_at(uc: Any, address: int) -> str:
    text = bytearray()
    while byte := uc.mem_read(address + len(text), 1)[0]:
        text.append(byte)
    return text.decode()


def _copy(uc: Any) -> None:
    to, source, size = _registers(uc, 3)
    uc.mem_write(to, bytes(uc.mem_read(source, size)))


def _fill(uc: Any) -> None:
    to, value, size = _registers(uc, 3)
    uc.mem_write(to, bytes([value & 0xFF]) * size)


def _raise(uc: Any) -> None:
    """TVM's function that sets an error of a kind, of parts."""
    kind, parts, size = _registers(uc, 3)
    addresses = struct.unpack(f"<{size}Q", uc.mem_read(parts, 8 * size))
    message = "".join(_text_at(uc, address) for address in addresses if address)
    raise EmulationError(f"{_text_at(uc, kind)}: {message}")


def _launch(uc: Any) -> None:
    """TVM's function that calls another one in all workers of its pool: here in the only one."""
    function, data = _registers(uc, 2)
    uc.mem_write(_ONE_TASK, struct.pack("<Qi", 0, 1))
    for number, value in enumerate((0, _ONE_TASK, data)):
        uc.reg_write(getattr(arm64, f"UC_ARM64_REG_X{number}"), value)
    uc.reg_write(arm64.UC_ARM64_REG_PC, function)


def _number_of_threads(uc: Any) -> None:
    """TVM's function that calls a packed one: ``runtime.NumThreads`` alone is called."""
    _, _, count, result = _registers(uc, 4)
    if count:
        raise EmulationError(f"the code calls a packed function of {count} arguments")
    uc.mem_write(result, struct.pack("<iIq", INTEGER, 0, 1))
    uc.reg_write(arm64.UC_ARM64_REG_X0, 0)


def _remember(uc: Any) -> None:
    """TVM's function that looks a packed function up, once."""
    uc.mem_write(_registers(uc, 1)[0], struct.pack("<Q", 1))
    uc.reg_write(arm64.UC_ARM64_REG_X0, 0)


def _nothing(uc: Any) -> None:
    uc.reg_write(arm64.UC_ARM64_REG_X0, 0)


def _registers(uc: Any, number: int) -> list[int]:
    return [uc.reg_read(getattr(arm64, f"UC_ARM64_REG_X{k}")) for k in range(number)]


def _of_numbers(function: str, double: bool) -> Callable[[Any], None]:
    """A function of the C library on one or two floats, or doubles."""
    called = getattr(ctypes.CDLL(None), function)
    called.restype = ctypes.c_double if double else ctypes.c_float
    called.argtypes = [called.restype] * (2 if function.startswith(("fmod", "pow", "atan2")) else 1)
    registers = "D" if double else "S"
    number, bits = ("<d", "<Q") if double else ("<f", "<I")

    def call(uc: Any) -> None:
        first = getattr(arm64, f"UC_ARM64_REG_{registers}0")
        given = (uc.reg_read(first + k) for k in range(len(called.argtypes)))
        values = (struct.unpack(number, struct.pack(bits, value))[0] for value in given)
        uc.reg_write(first, struct.unpack(bits, struct.pack(number, called(*values)))[0])

    return call


_OF_NUMBERS = ("exp", "exp2", "log", "log2", "log10", "tanh", "erf", "sin", "cos", "fmod", "pow")
_FUNCTIONS: dict[str, Callable[[Any], None]] = {
    **{name: _of_numbers(name, double=True) for name in _OF_NUMBERS},
    **{f"{name}f": _of_numbers(f"{name}f", double=False) for name in _OF_NUMBERS},
    "memcpy": _copy,
    "memmove": _copy,
    "memset": _fill,
    "sched_getcpu": _nothing,
    "sched_yield": _nothing,
    "TVMBackendFreeWorkspace": _nothing,
    "TVMBackendParallelLaunch": _launch,
    "TVMFFIErrorSetRaisedFromCStrParts": _raise,
    "TVMFFIFunctionCall": _number_of_threads,
    "TVMFFIHandleInitOnce": _remember,
}
