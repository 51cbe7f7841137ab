#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What torch.multiprocessing and tenon.torch do with a CUDA tensor, side by side, and how long they take.

    compare_gpu.py [--quick | --small] list | NUMBER

The rows T1 to T6 are what PyTorch's own tests ask (send, receive, an event's order, counts of references) and what it
has no tests for (a killed consumer, a killed producer). N5 is the time from a send until the receiver has read the
tensor, and N6 the time of a round trip, with and without a wait of the processor, and beside a third process that uses
the device. It prints what tests/gpu/facts/facts.h describes, as dev/check-gpu reads it: the assumption that is judged
is tenon's. Each side of each row is a process of its own, with a limit. Without a GPU the program says so and ends
with 77.
"""

import gc
import json
import os
import signal
import statistics
import subprocess
import sys
import time

from common_gpu import NOT_THERE, SIDES, WAIT_S, begin_side, busy, is_rehearsal, maker, missing, tensors_there

NAMES = {"torch": "torch.multiprocessing", "tenon": "tenon.torch"}
SIDE_LIMIT_S = 45
SIZES = [1 << 20, 16 << 20, 256 << 20, 1 << 30]
options = [word for word in sys.argv[1:] if word.startswith("--")]
words = [word for word in sys.argv[1:] if not word.startswith("--")]


def sized(whole, quick, small):
    return small if "--small" in options else quick if "--quick" in options else whole


def say(text, is_right):
    print(json.dumps({"said": text, "right": is_right}), flush=True)


def figure(what, size_bytes, values, unit="us"):
    ordered = sorted(values)
    worst = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
    print(json.dumps({"figure": [what, size_bytes, statistics.median(values), worst, len(values), unit]}), flush=True)


def start(context, target, *args):
    process = context.Process(target=target, args=args, daemon=True)
    process.start()
    return process


# ---- T1: send


def send_five(side, queue, seen):
    begin_side(side)
    make = maker(side)
    for number in range(5):
        queue.put(make(64, number))  # nobody here keeps it
    seen.get()


def ask_send(side):
    _, context = begin_side(side)
    queue, seen = context.Queue(), context.SimpleQueue()
    child = start(context, send_five, side, queue, seen)
    received = [queue.get(timeout=WAIT_S) for _ in range(5)]
    right = sum(tensor.cpu().tolist() == [number] * 64 for number, tensor in enumerate(received))
    del received
    seen.put("seen")
    child.join(WAIT_S)
    say(f"{right} of 5 tensors that the sender had deleted have their values", right == 5)


# ---- T2: receive


def fill_both(side, queue, answers):
    begin_side(side)
    tensor, column = queue.get()
    tensor.fill_(5)
    column.fill_(6)
    is_one = tensor.untyped_storage().data_ptr() == column.untyped_storage().data_ptr()
    tensor.cpu()
    answers.put(is_one)
    queue.get()


def ask_receive(side):
    _, context = begin_side(side)
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = start(context, fill_both, side, queue, answers)
    tensor = maker(side)(16).view(4, 4)
    queue.put((tensor, tensor[:, 1]))
    is_one = answers.get()
    is_seen = tensor.cpu().tolist() == [[5, 6, 5, 5]] * 4
    queue.put(None)
    child.join(WAIT_S)
    say(f"what the receiver writes is {'' if is_seen else 'not '}seen by the sender, and its two views have "
        f"{'one storage' if is_one else 'two storages'}", is_seen and is_one)


# ---- T3: the order of a second message


def copy_now(side, queue, answers):
    torch, _ = begin_side(side)
    first = queue.get()
    answers.put("opened")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        copied = maker(side)(64, 1)
        stream.synchronize()
        answers.put("ready")
        second = queue.get()
        copied.copy_(second)
        answers.put("given")
        answers.put(sorted(set(copied.cpu().tolist())))
    del first, second
    queue.get()


def ask_event(side):
    torch, context = begin_side(side)
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = start(context, copy_now, side, queue, answers)
    tensor, stream = maker(side)(64, 0), torch.cuda.Stream()
    torch.cuda.synchronize()
    queue.put(tensor)
    assert answers.get() == "opened" and answers.get() == "ready"
    with busy(torch, stream), torch.cuda.stream(stream):
        tensor.fill_(7)
        queue.put(tensor)
        assert answers.get() == "given"
    values = answers.get()
    queue.put(None)
    torch.cuda.synchronize()
    child.join(WAIT_S)
    say(f"a receiver that has the storage already reads {values}, and 7 was written before the send", values == [7])


# ---- T4: counts of references


def read_after(side, queue, orders, answers):
    begin_side(side)
    tensor = queue.get()
    orders.get()
    answers.put(tensor.cpu().tolist())
    del tensor
    gc.collect()
    answers.put("dropped")
    orders.get()


def ask_counts(side):
    torch, context = begin_side(side)
    make, before = maker(side), tensors_there(torch)
    queues, orders = ([context.SimpleQueue() for _ in range(2)] for _ in range(2))
    answers = context.SimpleQueue()
    children = [start(context, read_after, side, *pair, answers) for pair in zip(queues, orders)]
    tensor = make(64, 5)
    for queue in queues:
        queue.put(tensor)
    del tensor
    right = 0
    for order in orders:
        order.put("read")
        right += answers.get() == [5] * 64
        assert answers.get() == "dropped"
        others = [make(64, 1) for _ in range(8)]  # they may get memory that is too early free
        torch.cuda.synchronize()
        del others
    for order, child in zip(orders, children):
        order.put("end")
        child.join(WAIT_S)
    give_back(side)
    left = tensors_there(torch) - before
    text = f"{right} of 2 receivers of one tensor that its sender deleted read it whole"
    say(text + (f"; {left} bytes stay allocated in PyTorch afterwards" if not is_rehearsal() else ""), right == 2)


def give_back(side):
    gc.collect()
    if side == "tenon":
        import tenon

        tenon.domain().reap()
        tenon.domain().trim()


# ---- T5: a killed consumer


def hold_and_die(side, queue, answers):
    begin_side(side)
    tensor = queue.get()
    tensor.cpu()
    answers.put("held")
    os.kill(os.getpid(), signal.SIGKILL)


def ask_killed_consumer(side):
    torch, context = begin_side(side)
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    before = tensors_there(torch)
    child = start(context, hold_and_die, side, queue, answers)
    tensor = maker("torch")(1 << 20, 5)  # PyTorch's memory on both sides
    queue.put(tensor)
    assert answers.get() == "held"
    child.join(WAIT_S)
    del tensor
    give_back(side)
    torch.cuda.synchronize()
    give_back(side)
    left = tensors_there(torch) - before
    say(f"{left} {'tensors' if is_rehearsal() else 'bytes'} stay allocated in PyTorch after the receiver was killed", left == 0)


# ---- T6: a killed producer


def work_and_die(side, queue, orders):
    torch, _ = begin_side(side)
    tensor, stream = maker(side)(64, 0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with busy(torch, stream), torch.cuda.stream(stream):
        tensor.fill_(7)
        queue.put(tensor)
        os.kill(os.getpid(), signal.SIGKILL)


def is_peer_died(error):
    import tenon

    return isinstance(error, tenon.PeerDied)


def ask_killed_producer(side):
    _, context = begin_side(side)
    queue, orders = context.SimpleQueue(), context.SimpleQueue()
    child = start(context, work_and_die, side, queue, orders)
    child.join(WAIT_S)
    try:
        text = f"the receiver reads {sorted(set(queue.get().cpu().tolist()))}, and 7 was never finished"
        is_told = False
    except Exception as error:
        text = f"the receiver gets an error: {str(error).splitlines()[0]}"
        is_told = side == "tenon" and is_peer_died(error)
    say(text, is_told)


# ---- N5, N6


def read_each(side, queue, answers):
    begin_side(side)
    answers.put("ready")
    while True:
        tensor = queue.get()
        if tensor is None:
            return
        answers.put(int(tensor[-1]))
        del tensor


def measure_sends(side):
    torch, context = begin_side(side)
    queue, answers = context.SimpleQueue(), context.SimpleQueue()
    child = start(context, read_each, side, queue, answers)
    make = maker(side)
    assert answers.get() == "ready"
    for size_bytes in SIZES[: sized(4, 3, 1)]:
        firsts, agains = [], []
        for _ in range(sized(50, 10, 2)):
            tensor = make(size_bytes, 3)
            torch.cuda.synchronize()
            for times in (firsts, agains):
                begun_ns = time.monotonic_ns()
                queue.put(tensor)
                assert answers.get() == 3
                times.append((time.monotonic_ns() - begun_ns) / 1e3)
            del tensor
        figure("a tensor is sent for the first time, until the receiver has read it", size_bytes, firsts)
        figure("the same tensor again", size_bytes, agains)
    queue.put(None)
    child.join(WAIT_S)


def bounce(side, there, back, waits):
    torch, _ = begin_side(side)
    own = maker(side)(1 << 20, 7)
    torch.cuda.synchronize()
    while True:
        tensor = there.get()
        if tensor is None:
            return
        own.copy_(tensor)
        if waits:
            torch.cuda.synchronize()
        back.put(own)
        del tensor


def disturb(side, orders, answers):
    torch, _ = begin_side(side)
    tensor = maker("torch")(1 << 20)
    answers.put("ready")
    while orders.empty():
        tensor.fill_(1)
        torch.cuda.synchronize()


def measure_trips(side):
    torch, context = begin_side(side)
    tensor = maker(side)(1 << 20, 7)
    for is_busy in (False, True):
        orders, answers = context.SimpleQueue(), context.SimpleQueue()
        third = start(context, disturb, side, orders, answers) if is_busy else None
        if is_busy:
            answers.get()
        for waits in (False, True):
            there, back = context.SimpleQueue(), context.SimpleQueue()
            child = start(context, bounce, side, there, back, waits)
            times = []
            for count in range(sized(300, 100, 5) + 5):
                begun_ns = time.monotonic_ns()
                there.put(tensor)
                received = back.get()
                if waits:
                    torch.cuda.synchronize()
                del received
                if count >= 5:
                    times.append((time.monotonic_ns() - begun_ns) / 1e3)
            torch.cuda.synchronize()
            there.put(None)
            child.join(WAIT_S)
            how = "each process waits for its device" if waits else "in the order of streams"
            figure(f"round trip, {how}{', beside a third process' if is_busy else ''}", tensor.numel(), times)
        if is_busy:
            orders.put("end")
            third.join(WAIT_S)


ROWS = {
    "T1": ("Does a tensor arrive that its sender has deleted?", "yes", ask_send),
    "T2": ("Do sender and receiver have one memory, and views one storage?", "yes", ask_receive),
    "T3": ("Does a second message of a storage wait for what was written before it?", "yes", ask_event),
    "T4": ("Does a tensor stay until each of two receivers has dropped it?", "yes", ask_counts),
    "T5": ("Does the memory come back when a receiver is killed?", "yes", ask_killed_consumer),
    "T6": ("Is a receiver told that the sender was killed before it had finished?", "yes", ask_killed_producer),
    "N5": ("From a send until the receiver has read the tensor", "", measure_sends),
    "N6": ("Round trips", "", measure_trips),
}


# ---- both sides


def line_of(answer, side):
    """What dev/check-gpu reads."""
    if "figure" in answer:
        what, *numbers = answer["figure"]
        return ["figure", f"{NAMES[side]}: {what}", *(f"{n:.6g}" if isinstance(n, float) else str(n) for n in numbers)]
    return ["said", f"{NAMES[side]}: {answer['said']}"]


def ask_side(number, side):
    """Print the answers of a side; whether they were right, or None: it gave none."""
    command = [sys.executable, __file__, *options, "--side", number, side]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as run:
        try:
            output, errors = run.communicate(timeout=SIDE_LIMIT_S)
            why = f"it ended with {run.returncode}: {(errors.strip().splitlines() or [''])[-1]}" if run.returncode else ""
        except subprocess.TimeoutExpired:
            os.killpg(run.pid, signal.SIGKILL)
            output, errors = run.communicate()
            why = f"it hung, and was killed after {SIDE_LIMIT_S} s; {(errors.strip().splitlines() or ['no error'])[-1]}"
    answers = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    for answer in answers:
        print("\t".join(line_of(answer, side)), flush=True)
    if why or not answers:
        print(f"said\t{NAMES[side]}: {why or 'it said nothing'}", flush=True)
        return None
    return all(answer.get("right", True) for answer in answers)


def ask(number):
    rights = {side: ask_side(number, side) for side in SIDES}
    if ROWS[number][1]:
        print(f"agrees\t{'yes' if rights['tenon'] else 'no'}", flush=True)
    elif None in rights.values():
        print("unanswered\tone side gave no figures", flush=True)
    return 0


def main():
    if "--side" in options:
        ROWS[words[0]][2](words[1])
        return 0
    why = missing()
    if why:
        print(f"compare_gpu: there is no GPU to ask: {why}", file=sys.stderr)
        return NOT_THERE
    if words == ["list"]:
        for number, (text, assumption, _) in ROWS.items():
            print(f"{number}\t{text}\t{assumption}")
        return 0
    if len(words) != 1 or words[0] not in ROWS:
        print(__doc__, file=sys.stderr)
        return 2
    return ask(words[0])


if __name__ == "__main__":
    sys.exit(main())
