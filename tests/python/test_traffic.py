# SPDX-License-Identifier: Apache-2.0
"""The count of the arrays and tensors that were sent: without a copy, and copied into shared memory first."""

import pickle
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest
import tenon
import tenon.multiprocessing as mp
from tenon import _core


@contextmanager
def counted(*, shared=(0, 0), copied=(0, 0)):
    """What the block adds to the four counters."""
    before = _core.traffic()
    yield
    assert tuple(now - then for now, then in zip(_core.traffic(), before)) == (*shared, *copied)


def test_an_array_counts_by_where_its_memory_is(domain):
    queue = _core.Queue.create(domain)
    shared = domain.zeros((100,), "uint8")
    with counted(copied=(1, 800)):
        queue.put(np.ones(100))
    with counted(shared=(1, 50)):
        queue.put(np.asarray(shared)[::2])
    with counted(shared=(2, 200), copied=(2, 1008)):
        queue.put({"a": [shared, np.asarray(shared)], "b": (np.ones(1), np.ones(1000, "uint8"))})
    with counted(copied=(1, 24)):
        queue.put(np.ones((2, 12), "uint8")[:, ::1].T)


def test_a_private_tensor_counts_as_copied_once(domain):
    queue = _core.Queue.create(domain)
    private = _core.private((10,), "float64")
    with counted(copied=(1, 80)):
        queue.put(private)
    with counted(shared=(1, 80)):
        queue.put(private)


def test_a_buffer_counts_unless_it_is_in_the_pickle(domain):
    queue = _core.Queue.create(domain)
    with counted(copied=(1, 10000)):
        queue.put([pickle.PickleBuffer(bytes(10000)), pickle.PickleBuffer(b"few")])
    with counted():
        queue.put([1, "text", b"bytes" * 1000])


def test_a_message_that_did_not_fit_does_not_count(domain):
    queue = _core.Queue.create(domain, capacity=1)
    queue.put(1)
    with counted():
        with pytest.raises(_core.TimedOut):
            queue.put(np.ones(10), 0)
        with pytest.raises(Exception, match="pickle"):
            queue.put([np.ones(10), lambda: 1])


def test_every_way_of_sending_counts(domain, fork):
    with counted(copied=(1, 8)):
        _core.dumps(np.ones(1), domain)
    queue = mp.Queue()
    with counted(copied=(1, 8)):
        queue.put(np.ones(1))
    queue.get()
    context = mp.get_context("spawn")
    process = context.Process(target=len, args=(np.ones(10),))
    with counted(copied=(1, 80)):
        process.start()
    process.join()
    with fork.Pool(1) as pool, counted(copied=(1, 80)):
        assert pool.apply(len, (np.ones(10),)) == 10


def test_a_message_within_a_message_counts_for_itself(domain):
    inner = _core.Queue.create(domain)

    class Sends:
        def __reduce__(self):
            inner.put([np.ones(2)])
            return list, ()

    shared = domain.zeros((4,), "uint8")
    with counted(shared=(1, 4), copied=(2, 24)):
        _core.Queue.create(domain).put([np.ones(1), Sends(), shared])


def test_processes_may_count_into_the_same_memory(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import mmap, os\n"
        "import numpy as np\n"
        "import tenon\n"
        "from tenon import _core\n"
        "_core.dumps(np.ones(1))\n"
        "for size in (31,):\n"
        "    try: _core.count_into(bytearray(size))\n"
        "    except ValueError as error: print(error)\n"
        "memory = mmap.mmap(-1, 64)\n"
        "_core.count_into(memory)\n"
        "_core.dumps(np.ones(2))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    _core.dumps(np.ones(3))\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0)\n"
        "print(_core.traffic(), memory[:32] == np.array(_core.traffic(), 'u8').tobytes())\n"
        "_core.count_into(bytearray(32))\n"
        "print(_core.traffic())\n"
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True, timeout=60)
    lines = done.stdout.splitlines()
    assert "31" in lines[0] and lines[-2:] == ["(0, 0, 3, 48) True", "(0, 0, 0, 0)"]


def test_pytorchs_storages_count_once():
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    import tenon.torch

    tenon.torch.install()
    queue = _core.Queue.create(tenon.domain())
    tensor = torch.zeros(100)
    with counted(copied=(1, 400)):
        queue.put(tensor)
    with counted(shared=(1, 400)):
        queue.put(tensor[:10])
    other = torch.zeros(100)
    with counted():
        other.share_memory_()
    with counted(shared=(1, 400), copied=(1, 8)):
        queue.put([other, torch.zeros(2)])
