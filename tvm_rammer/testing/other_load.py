"""What other processes take of a process's CPUs while it is timed, from Linux's own accounts."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
#: Columns of a CPU's line in /proc/stat in which it does nothing.
_IDLE = (3, 4)
#: Columns up to which they add up: a guest's time is part of the user's already.
_COLUMNS = 8


class OtherLoad:
    """CPU seconds that others use from now on.

    Parameters
    ----------
    pid : int
        The process whose own time does not count.
    cpus : collection of int
        The CPUs that are looked at. What a hypervisor takes from them counts as others' time.
    """

    def __init__(self, pid: int, cpus: Collection[int]) -> None:
        self._pid = pid
        self._names = {f"cpu{number}" for number in cpus}
        self._at_start = self._others()

    def seconds(self) -> float:
        """How much others have used since; ticks are coarse, so it can be off by a few of them."""
        return max(0.0, self._others() - self._at_start)

    def _others(self) -> float:
        return _TICK_S * (self._busy() - _own_ticks(self._pid))

    def _busy(self) -> int:
        ticks = 0
        for line in Path("/proc/stat").read_text().splitlines():
            name, *columns = line.split()
            if name in self._names:
                counted = list(map(int, columns[:_COLUMNS]))
                ticks += sum(counted) - sum(counted[k] for k in _IDLE)
        return ticks


def _own_ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it died: whoever asked it will say so
        return 0
    return int(fields[11]) + int(fields[12])
