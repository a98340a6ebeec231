"""Inline PTX of CUDA sources as C++: what threads agree by, and which of them one is."""

from __future__ import annotations

import re
from collections.abc import Iterator

_START = re.compile(r"\basm\s*(?:volatile|__volatile__)?\s*\(")
_TYPE = {"u32": "uint32_t", "s32": "int32_t", "b32": "uint32_t", "u64": "uint64_t"}
_TYPE |= {"s64": "int64_t", "b64": "uint64_t", "f32": "float"}
_TYPES = "|".join(_TYPE)
_SCOPE = r"(?:\.(?P<order>acquire|release|acq_rel|relaxed|volatile)|\.(?:gpu|sys|cta|global))*"
#: An instruction as a pattern, and what it is with ``{}`` for its operands in turn.
_INSTRUCTIONS = tuple(
    (re.compile(pattern.replace("SCOPE", _SCOPE).replace("TYPE", f"(?P<type>{_TYPES})")), text)
    for pattern, text in (
        (r"ldSCOPE\.TYPE %0, ?\[%1\];", "{0} = emulated::load((TYPE*)({1}), __LINE__, ACQUIRES);"),
        (r"stSCOPE\.TYPE \[%0\], ?%1;", "emulated::store((TYPE*)({0}), (TYPE)({1}), RELEASES);"),
        (
            r"redSCOPE\.add\.TYPE \[%0\], ?%1;",
            "emulated::add((TYPE*)({0}), {1}, ACQUIRES, RELEASES);",
        ),
        (
            r"atomSCOPE\.add\.TYPE %0, ?\[%1\], ?%2;",
            "{0} = emulated::add((TYPE*)({1}), {2}, ACQUIRES, RELEASES);",
        ),
        (
            r"\{\.reg \.pred p; setp\.ne\.u32 p, %2, 0; @p ld\.global\.f32 %0, \[%1\];\};",
            "if ({2}) {0} = *(const float*)({1})",
        ),
        (
            r"\{\.reg \.pred p; setp\.ne\.u32 p, %5, 0; "
            r"@p ld\.global\.v4\.f32 \{%0, %1, %2, %3\}, \[%4\];\};",
            "if ({5}) {{ const float4 all = *(const float4*)({4}); "
            "{0} = all.x, {1} = all.y, {2} = all.z, {3} = all.w; }}",
        ),
        (r"(?:fence|membar)(?:\.(?:acq_rel|sc|gpu|gl|sys))+;", "__threadfence();"),
        (
            r"cp\.async\.ca\.shared\.global \[%0\], ?\[%1\], ?8;",
            "emulated::copy_later((void*)({0}), (const void*)({1}))",
        ),
        (r"cp\.async\.wait_all;", "emulated::make_copies()"),
        (r"mov\.u32 %0, %%tid\.x;", "{0} = threadIdx.x;"),
        (r"mov\.u64 %0, %%globaltimer;", "{0} = emulated::nanoseconds();"),
        (r"nanosleep\.u32 (?:%0|\d+);", "__nanosleep(0);"),
    )
)


def translate_inline_ptx(source: str) -> str:
    """``source`` without ``asm`` statements; an instruction that is not known is an error."""
    parts, end = [], 0
    for match in _START.finditer(source):
        stop = _closing(source, match.end() - 1)
        parts += [source[end : match.start()], _statement(source[match.end() : stop])]
        end = stop + 1
    return "".join([*parts, source[end:]])


def _statement(inside: str) -> str:
    """An ``asm`` statement as C++, on as many lines, its ``;`` left to the source."""
    sections = list(_split(inside, ":"))
    template = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', sections[0]))
    template = re.sub(r"\\[nt]|\s+", " ", template).strip().rstrip(";") + ";"
    operands = [
        operand[operand.index("(") : operand.rindex(")") + 1]
        for section in sections[1:3]
        for operand in _split(section, ",")
        if "(" in operand
    ]
    for pattern, text in _INSTRUCTIONS:
        if found := pattern.fullmatch(template):
            groups = found.groupdict()
            order = groups.get("order") or "relaxed"
            for word, value in (
                ("TYPE", _TYPE.get(groups.get("type", ""), "")),
                ("ACQUIRES", str(order in ("acquire", "acq_rel")).lower()),
                ("RELEASES", str(order in ("release", "acq_rel")).lower()),
            ):
                text = text.replace(word, value)
            return text.format(*operands).rstrip(";") + "\n" * inside.count("\n")
    raise ValueError(f"no emulation of the PTX instruction {template!r}; give inline_ptx.py one")


def _closing(text: str, opening: int) -> int:
    """Where the parenthesis at ``opening`` closes, those in strings left out."""
    depth, quoted = 0, False
    for at in range(opening, len(text)):
        if text[at] == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted:
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            if not depth:
                return at
    raise ValueError("an asm statement does not end")


def _split(text: str, separator: str) -> Iterator[str]:
    """The parts of ``text`` between separators outside of parentheses and strings."""
    depth, quoted, start = 0, False, 0
    for at, letter in enumerate(text):
        if letter == '"' and text[at - 1] != "\\":
            quoted = not quoted
        elif not quoted and letter == separator and not depth:
            yield text[start:at]
            start = at + 1
        elif not quoted:
            depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
    yield text[start:]
