"""What a process may use of the CPU is read from /proc and /sys, whatever is missing there."""

from pathlib import Path

import pytest

from tvm_rammer.backend.cpu.host.processor import cgroup_quota, detect_cpu
from tvm_rammer.machine.topology import PairCosts

NEAR = PairCosts(7e-8, 1e-7, 2.5e-11)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def cpu_files(siblings: list[str]) -> dict[str, str]:
    top = "sys/devices/system/cpu"
    topology = {
        f"{top}/cpu{cpu}/topology/thread_siblings_list": f"{text}\n"
        for cpu, text in enumerate(siblings)
    }
    caches = {}
    for index, (level, kind, size) in enumerate(
        [(1, "Data", "48K"), (1, "Instruction", "32K"), (2, "Unified", "2M"), (3, "Unified", "1G")]
    ):
        folder = f"{top}/cpu0/cache/index{index}"
        caches |= {
            f"{folder}/level": f"{level}\n",
            f"{folder}/type": f"{kind}\n",
            f"{folder}/size": f"{size}\n",
        }
    return topology | caches


def test_everything_is_found(tmp_path):
    files = {"proc/cpuinfo": "processor : 0\nmodel name\t: Some CPU @ 3 GHz\n"}
    cpu = detect_cpu(tree(tmp_path, files | cpu_files(["0,2", "1,3", "0,2", "1,3"])), range(4))
    assert cpu.model == "Some CPU @ 3 GHz"
    assert cpu.siblings == ((0, 2), (1, 3))
    assert (cpu.cores, cpu.threads, cpu.quota) == (2, 4, None)
    assert (cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes) == (48 << 10, 2 << 20, 1 << 30)


def test_siblings_outside_the_affinity_mask_do_not_count(tmp_path):
    cpu = detect_cpu(tree(tmp_path, cpu_files(["0-1", "0-1", "2-3", "2-3"])), [0, 2, 3])
    assert cpu.siblings == ((0,), (2, 3))
    assert (cpu.cores, cpu.threads) == (2, 3)


def test_an_empty_file_system_leaves_the_affinity_mask(tmp_path):
    cpu = detect_cpu(tmp_path, [3, 5])
    assert (cpu.cpus, cpu.siblings, cpu.cores) == ((3, 5), ((3,), (5,)), 2)
    assert (cpu.quota, cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes) == (None, None, None, None)
    assert cpu.model


def test_unreadable_contents_are_as_good_as_none(tmp_path):
    top = "sys/devices/system/cpu/cpu0"
    nonsense = {
        "proc/cpuinfo": "\x00\xff no colon here",
        "proc/self/cgroup": "0:\nnonsense",
        "sys/fs/cgroup/cpu.max": "a lot",
        f"{top}/topology/thread_siblings_list": "0-x",
        f"{top}/cache/index0/level": "one",
        f"{top}/cache/index1/level": "2",
        f"{top}/cache/index1/size": "K",
    }
    cpu = detect_cpu(tree(tmp_path, nonsense), [0])
    assert (cpu.siblings, cpu.quota, cpu.l1_bytes, cpu.l2_bytes) == (((0,),), None, None, None)


def test_an_arm_cpu_has_a_number_for_a_name(tmp_path):
    files = {"proc/cpuinfo": "processor: 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n"}
    assert detect_cpu(tree(tmp_path, files), [0]).model == "ARM implementer 0x41 part 0xd0c"


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "150000 100000\n"},
            1.5,
            id="version 2",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/b/cpu.max": "max 100000\n",
                "sys/fs/cgroup/a/cpu.max": "200000 100000\n",
                "sys/fs/cgroup/cpu.max": "max 100000\n",
            },
            2.0,
            id="version 2, limit of the parent",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/outside/of/the/container\n",
                "sys/fs/cgroup/cpu.max": "300000 100000\n",
            },
            3.0,
            id="version 2, path of the host",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/job\n0::/\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us": "50000\n",
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us": "100000\n",
            },
            0.5,
            id="version 1",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "1:cpu:/\n",
                "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
                "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
            },
            None,
            id="version 1, no limit",
        ),
    ],
)
def test_cpu_quota(tmp_path, files, quota):
    assert cgroup_quota(tree(tmp_path, files)) == quota


@pytest.mark.parametrize(("quota", "cores"), [("50000", 1), ("199999", 1), ("200000", 2)])
def test_only_whole_cores_of_a_quota_count(tmp_path, quota, cores):
    files = {"proc/self/cgroup": "0::/", "sys/fs/cgroup/cpu.max": f"{quota} 100000"}
    cpu = detect_cpu(tree(tmp_path, files), range(8))
    assert (cpu.cores, cpu.threads) == (cores, cores)


def places(caches: list[str], sockets: list[str]) -> dict[str, str]:
    """CPUs by what shares their last-level cache, and by socket."""
    top = "sys/devices/system/cpu"
    files = {}
    for cpu, (shared, socket) in enumerate(zip(caches, sockets, strict=True)):
        for index, (level, cpus) in enumerate([("1", f"{cpu}"), ("3", shared), ("2", f"{cpu}")]):
            folder = f"{top}/cpu{cpu}/cache/index{index}"
            files |= {f"{folder}/level": f"{level}\n", f"{folder}/shared_cpu_list": f"{cpus}\n"}
        files[f"{top}/cpu{cpu}/topology/physical_package_id"] = f"{socket}\n"
    return files


def test_complexes_and_sockets_are_found(tmp_path):
    """Two sockets, two caches in each, two cores behind each, two threads in each core."""
    caches = ["0-3", "0-3", "0-3", "0-3", "4-7", "4-7", "4-7", "4-7"]
    caches += ["8-11"] * 4 + ["12-15"] * 4
    siblings = [f"{cpu - cpu % 2}-{cpu - cpu % 2 + 1}" for cpu in range(16)]
    files = cpu_files(siblings) | places(caches, ["0"] * 8 + ["1"] * 8)
    cpu = detect_cpu(tree(tmp_path, files), range(16))
    assert cpu.complexes == ((0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 13, 14, 15))
    assert cpu.sockets == (tuple(range(8)), tuple(range(8, 16)))
    assert cpu.in_order == (*range(0, 16, 2), *range(1, 16, 2))
    topology = cpu.topology(NEAR)
    assert topology is not None
    assert topology.cores == (*range(8), *range(8))
    assert topology.complexes == (0, 0, 1, 1, 2, 2, 3, 3) * 2
    assert topology.sockets == (0, 0, 0, 0, 1, 1, 1, 1) * 2


def test_complexes_are_taken_one_after_the_other(tmp_path):
    """Some systems number cores across sockets in turn."""
    files = places(["0,2", "1,3", "0,2", "1,3"], ["0", "1", "0", "1"])
    cpu = detect_cpu(tree(tmp_path, files), range(4))
    assert cpu.in_order == (0, 2, 1, 3)
    topology = cpu.topology(NEAR)
    assert topology is not None
    assert (topology.complexes, topology.sockets) == ((0, 0, 1, 1), (0, 0, 1, 1))


@pytest.mark.parametrize(
    ("caches", "sockets"),
    [
        (["0", "1", "2", "3"], ["0", "1", "2", "3"]),  # a virtual machine that says nothing
        (["0-3"] * 4, ["0"] * 4),
        (["", "", "", ""], ["", "", "", ""]),
    ],
)
def test_nothing_is_far_where_the_system_tells_no_difference(tmp_path, caches, sockets):
    cpu = detect_cpu(tree(tmp_path, places(caches, sockets)), range(4))
    assert cpu.complexes == cpu.sockets == ((0, 1, 2, 3),)
    assert cpu.topology(NEAR) is None


def test_a_table_that_contradicts_itself_is_no_error(tmp_path):
    """One cache in two sockets, two threads of one core in different caches."""
    files = cpu_files(["0,2", "1", "0,2", "3"]) | places(["0-1", "0-1", "2-3", "2-3"], list("0101"))
    topology = detect_cpu(tree(tmp_path, files), range(4)).topology(NEAR)
    assert topology is not None
    assert len(set(topology.complexes)) == 4
