# SPDX-License-Identifier: Apache-2.0
"""Processes that meet by name: in one domain, at queues with leases, locks and handles."""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import tenon

WAIT_S = 60


@pytest.fixture
def place():
    name = f"meeting-{os.getpid()}-{os.urandom(3).hex()}"
    domain = tenon.Domain.create(name, seats=16, objects=64, quota_bytes=1 << 28)
    yield domain
    domain.reap()
    assert domain.audit() == []
    domain.close()


def run(code, *arguments, **environment):
    """Start a program of its own, which prints lines and reads them."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ, **environment),
    )


def end_of(process):
    output, _ = process.communicate(timeout=WAIT_S)
    assert process.returncode == 0
    return output.split()


TAKE = """
import sys, tenon
queue = tenon.Queue("work", domain=sys.argv[1], lease=True)
message = queue.receive()
print(message.value, message.attempt, flush=True)
sys.stdin.read()
"""


def test_a_leased_message_of_a_killed_program_comes_again(place):
    queue = tenon.Queue("work", domain=place, lease=True)
    worker = run(TAKE, place.name)
    queue.put("job")
    assert worker.stdout.readline().split() == ["job", "0"]
    worker.send_signal(signal.SIGKILL)
    worker.communicate(timeout=WAIT_S)
    with queue.receive(WAIT_S) as message:
        assert (message.value, message.attempt) == ("job", 1)
    with pytest.raises(tenon.TimedOut):
        queue.receive(0)
    queue.close()


def test_a_message_is_given_back_when_its_block_raises(place):
    queue = tenon.Queue("work", domain=place, lease=True)
    queue.put([1, 2])
    with pytest.raises(KeyError):
        with queue.receive(WAIT_S):
            raise KeyError
    with queue.receive(WAIT_S) as message:
        assert message.value == [1, 2] and message.attempt == 1
        message.give_back()
    assert queue.get(WAIT_S) == [1, 2]
    assert queue.qsize() == 0
    queue.close()


def test_a_message_without_a_lease_is_not_acknowledged(place):
    queue = tenon.Queue("plain", domain=place)
    queue.put(1)
    message = queue.receive(WAIT_S)
    assert message.value == 1
    with pytest.raises(tenon.Stale, match="not leased"):
        message.ack()
    queue.close()


def test_a_queue_that_differs_from_a_given_argument_is_refused(place):
    plain = tenon.Queue("plain", domain=place, capacity=16)
    leased = tenon.Queue("leased", domain=place, lease=True)
    assert leased.capacity == 1024
    for name, arguments, numbers in [
        ("plain", {"capacity": 8}, "'plain'.*16.*8"),
        ("plain", {"lease": True}, "'plain'"),
        ("plain", {"capacity": 16, "lease": True}, "'plain'"),
        ("leased", {"lease": False}, "'leased'.*has leases"),
        ("leased", {"capacity": 1023, "lease": True}, "'leased'.*1024.*1023"),
    ]:
        with pytest.raises(tenon.Invalid, match=numbers) as info:
            tenon.Queue(name, domain=place, **arguments)
        assert info.value.status == -1
    for name, arguments in [
        ("plain", {}),
        ("plain", {"capacity": 16}),
        ("plain", {"capacity": 16, "lease": False}),
        ("leased", {}),
        ("leased", {"capacity": 1024, "lease": True}),
    ]:
        tenon.Queue(name, domain=place, **arguments).close()
    plain.close()
    leased.close()


def push_as_c_does(queue, *values):
    """Push tensors and no bytes, as a program in C may."""
    queue._core.push(b"", [queue.domain.zeros((1,), "int64") for _ in values], 0)


def numbers_in(message):
    assert message.data == b""
    return len(message.tensors)


@pytest.mark.parametrize("lease", [False, True])
def test_a_message_that_put_did_not_write_outlives_get(place, lease):
    queue = tenon.Queue("mixed", domain=place, lease=lease)
    push_as_c_does(queue, 1, 2)
    for _ in range(3):
        with pytest.raises(tenon.Invalid, match=r"it has 2 tensors and 0 bytes\. receive\(\)"):
            queue.get(0)
        assert queue.qsize() == 1
    message = queue.receive(0)
    with pytest.raises(tenon.Invalid, match="2 tensors"):
        message.value
    assert numbers_in(message) == 2 and queue.qsize() == 0
    if lease:
        assert message.attempt == 3
        message.ack()
    with pytest.raises(tenon.TimedOut):
        queue.receive(0)
    del message
    queue.close()


def test_messages_that_get_left_come_in_their_order_and_before_others(place):
    queue = tenon.Queue("mixed", domain=place)
    push_as_c_does(queue, 1)
    queue.put("behind")
    push_as_c_does(queue, 1, 2)
    with pytest.raises(tenon.Invalid, match="it has 1 tensor and 0 bytes"):
        queue.get(0)
    assert numbers_in(queue.receive(0)) == 1
    assert queue.get(0) == "behind"
    with pytest.raises(tenon.Invalid, match="it has 2 tensors"):
        queue.get(0)
    queue.close()  # the message that stays in this object ends with it
    queue = tenon.Queue("mixed", domain=place)
    with pytest.raises(tenon.TimedOut):
        queue.get(0)
    queue.close()


@pytest.mark.parametrize("data", [b"?", b"Paris", b"P\0\0\0\0\0\0\0 is no pickle", b"P\0\0\0\xff\0\0\0"])
@pytest.mark.parametrize("lease", [False, True])
def test_text_of_a_program_in_c_outlives_get(place, lease, data):
    queue = tenon.Queue("text", domain=place, lease=lease)
    queue._core.push(data)
    with pytest.raises(Exception, match="put|pickle|invalid|unpickl"):
        queue.get(0)
    message = queue.receive(0)
    assert message.data == data and message.tensors == []
    if lease:
        message.ack()
    queue.close()


_is_here = False


def _only_where_it_is_here(array):
    if not _is_here:
        raise ImportError("this process lacks it")
    return array


class Lacking:
    def __reduce__(self):
        return _only_where_it_is_here, (np.arange(1000),)


@pytest.mark.parametrize("lease", [False, True])
def test_a_message_that_cannot_be_unpickled_is_tried_again(place, lease):
    global _is_here
    queue = tenon.Queue("lacking", domain=place, lease=lease)
    queue.put(Lacking())
    with pytest.raises(ImportError, match="lacks it"):
        queue.get(0)
    with pytest.raises(ImportError, match="lacks it"):
        queue.receive(0).value if not lease else queue.get(0)
    if not lease:
        queue.put(Lacking())
        with pytest.raises(ImportError, match="lacks it"):
            queue.get(0)
    _is_here = True
    try:
        assert queue.get(0).sum() == 499500
    finally:
        _is_here = False
    assert queue.qsize() == 0
    queue.close()


_closed_on_arrival = []


def _close_it():
    _closed_on_arrival.pop().close()
    return "closed"


class Closing:
    def __reduce__(self):
        return _close_it, ()


@pytest.mark.parametrize("lease", [False, True])
def test_a_queue_may_be_closed_by_what_comes_from_it(place, lease):
    queue = tenon.Queue("closing", domain=place, lease=lease)
    queue.put(Closing())
    _closed_on_arrival.append(queue)
    assert queue.get(0) == "closed"


def test_a_forked_child_does_not_get_what_its_parent_kept(place):
    queue = tenon.Queue("mixed", domain=place)
    push_as_c_does(queue, 1)
    with pytest.raises(tenon.Invalid):
        queue.get(0)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with pytest.raises(tenon.TimedOut):
                queue.receive(0)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert numbers_in(queue.receive(0)) == 1
    queue.close()


def test_an_argument_domain_that_is_no_domain_is_named(place):
    for call in tenon.zeros, tenon.empty, lambda shape, domain: tenon.full(shape, 1, domain=domain):
        with pytest.raises(TypeError, match=r"domain must be a tenon.Domain or None, not str: tenon.domain\('line'\)"):
            call(3, domain="line")
    with pytest.raises(TypeError, match="domain must be a tenon.Domain or None, not str"):
        tenon.asarray([1], domain="line")
    with pytest.raises(TypeError, match="domain must be a tenon.Domain or None, not int"):
        tenon.share(tenon.from_dlpack(np.ones(1)), domain=3)
    with pytest.raises(TypeError, match="domain must be a tenon.Domain, a name or None, not int"):
        tenon.Event("x", domain=3)


def test_a_handle_has_up_to_1048575_uses(place):
    tensor = tenon.zeros(1, domain=place)
    assert place.load_handle(tensor.to_handle(uses=1048575)).tolist() == [0]
    for uses in 0, -1, 1048576, 2**32:
        with pytest.raises(ValueError, match=f"a handle cannot have {uses} uses: 1 to 1048575 are possible"):
            tensor.to_handle(uses=uses)


SEND = """
import sys, numpy as np, tenon
place = tenon.domain(sys.argv[1])
out = tenon.Queue("frames", domain=place)
for strategy in "arena", "file_descriptor", "file_system":
    shared = place.zeros((3,), "float64", strategy=strategy)
    shared.copy_from(np.arange(3.0))
    out.put((strategy, shared))
out.put(shared.to_handle())
print("sent", flush=True)
sys.stdin.readline()
"""
RECEIVE = """
import sys, tenon
queue = tenon.Queue("frames", domain=sys.argv[1])
for _ in range(3):
    strategy, array = queue.get(60)
    print(strategy, sum(array.tolist()))
print(sum(queue.domain.load_handle(queue.get(60)).tolist()))
"""


def test_a_shell_and_a_cron_job_of_one_user_meet_by_name():
    """Their environments have different runtime folders, and neither chose one."""
    name = f"sessions-{os.getpid()}-{os.urandom(3).hex()}"
    folder = pathlib.Path(tempfile.mkdtemp(prefix="tenon-meet-"))
    try:
        sessions = []
        for session in "shell", "cron":
            (folder / session).mkdir(0o700)
            sessions.append({"TENON_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": str(folder / session)})
        sender = run(SEND, name, **sessions[0])
        assert sender.stdout.readline() == "sent\n"
        receiver = run(RECEIVE, name, **sessions[1])
        words = ["arena", "3.0", "file_descriptor", "3.0", "file_system", "3.0", "3.0"]
        assert end_of(receiver) == words
        sender.communicate("\n", timeout=WAIT_S)
        assert sender.returncode == 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


HOLD = """
import sys, tenon
lock = tenon.Lock("guard", domain=sys.argv[1])
event = tenon.Event("held", domain=sys.argv[1])
assert lock.acquire() and not lock.owner_died
event.set()
sys.stdin.read()
"""


def test_a_lock_of_a_killed_program_comes_back_and_says_so(place):
    lock, event = tenon.Lock("guard", domain=place), tenon.Event("held", domain=place)
    holder = run(HOLD, place.name)
    assert event.wait(WAIT_S)
    assert not lock.acquire(0)
    holder.send_signal(signal.SIGKILL)
    holder.communicate(timeout=WAIT_S)
    assert lock.dead_owner_pid is None
    assert lock.acquire(WAIT_S) and lock.owner_died
    assert lock.dead_owner_pid == holder.pid
    lock.release()
    with lock:
        assert not lock.owner_died and lock.dead_owner_pid is None
    lock.close()
    event.close()


def test_a_lock_that_its_owner_closed_names_that_owner(place):
    lock, other = tenon.Lock("guard", domain=place), tenon.Lock("guard", domain=place)
    assert lock.acquire(0) and not lock.owner_died
    lock.close()
    other.close()
    code = HOLD.replace("sys.stdin.read()", "lock.close(); print('closed', flush=True); sys.stdin.read()")
    lock, event = tenon.Lock("guard", domain=place), tenon.Event("held", domain=place)
    holder = run(code, place.name)
    assert holder.stdout.readline() == "closed\n"
    assert lock.acquire(WAIT_S)
    assert (lock.owner_died, lock.dead_owner_pid) == (True, holder.pid)
    lock.release()
    end_of(holder)
    lock.close()
    event.close()


def test_the_first_opener_sets_the_permits_of_a_name(place):
    one = tenon.Semaphore("room", 2, domain=place)
    with pytest.raises(tenon.Invalid, match="'room'.* 2 .* 7"):
        tenon.Semaphore("room", 7, domain=place)
    tenon.Semaphore("room", 2, domain=place).close()
    other = tenon.Semaphore("room", domain=place)
    with one, other:
        assert one.value() == 0 and not other.acquire(0)
    assert other.value() == 2
    with pytest.raises(tenon.Invalid, match="semaphore"):
        tenon.Queue("room", domain=place)
    one.close()
    other.close()


def test_a_domain_by_name_is_joined_or_made_and_left_in_the_end():
    code = "import sys, tenon; d = tenon.domain(sys.argv[1]); print(d is tenon.domain(sys.argv[1]), d.name, d is tenon.domain())"
    name = f"made-{os.getpid()}"
    assert end_of(run(code, name)) == ["True", name, "True"]
    with pytest.raises(tenon.NotFound, match=os.environ["TENON_RUNTIME_DIR"]):
        tenon.Domain.join("no-such-domain")
    array = tenon.asarray(np.arange(4))
    assert tenon.domain().load_handle(array.to_handle()).tolist() == [0, 1, 2, 3]
