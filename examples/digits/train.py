#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Train a PyTorch network on handwritten digits from several processes, and kill some of them.

Each trainer has a DataLoader of PyTorch's, whose workers are tenon's processes, and trains the one
network that lies in shared memory: Hogwild, without a lock. One worker is killed a third of the
way: its DataLoader reports that as an error, as DataLoaders do, and its trainer makes a new one.
One trainer is killed at two thirds: the others go on.
"""

import argparse
import gc
import json
import os
import queue
import signal
import sys
import time
import warnings

import numpy
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler

import tenon
import tenon.multiprocessing as mp
import tenon.torch

WANTED = 0.95
SIDE = 8  # pixels
BATCH = 32
TOLD = 10  # batches that a trainer tells of at a time
BAR_WIDTH = 20
LOOK_S = 0.25
RECLAIMED_S = 10  # within which what a dead process held must be released
BEGIN_S = 100  # within which the trainers must have begun
END_S = 20  # within which they must end


class Digits(Dataset):
    """Pictures, each shifted by up to a pixel to any side."""

    def __init__(self, pictures, labels):
        self.labels = labels
        self.padded = nn.functional.pad(pictures, (1, 1, 1, 1))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        down, right = torch.randint(3, (2,)).tolist()
        return self.padded[i, :, down : down + SIDE, right : right + SIDE], self.labels[i]


def make_network():
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (SIDE // 2) ** 2, 10),
    )


# ---- a trainer


class TellPid:
    """What each worker of a DataLoader does first."""

    def __init__(self, trainer, news):
        self.trainer = trainer
        self.news = news

    def __call__(self, worker):
        self.news.put(("worker", self.trainer, os.getpid()))


def train(trainer, network, digits, news, stop, options):
    torch.set_num_threads(1)
    torch.manual_seed(options.seed + trainer)
    optimizer = torch.optim.SGD(network.parameters(), lr=options.rate, momentum=0.9)
    while not stop.is_set():
        loader = DataLoader(
            digits,
            BATCH,
            sampler=RandomSampler(digits, replacement=True, num_samples=2**40),
            num_workers=options.workers,
            worker_init_fn=TellPid(trainer, news),
            multiprocessing_context=mp.get_context(options.method),
        )
        try:
            train_on(network, optimizer, loader, trainer, news, stop)
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            news.put(("lost", trainer, str(error).strip(" .")))


def train_on(network, optimizer, loader, trainer, news, stop):
    loss_sum = 0
    for number, (pictures, labels) in enumerate(loader, 1):
        if number == 1:
            news.put(("began", trainer, None))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(pictures), labels)
        loss.backward()
        optimizer.step()
        loss_sum += loss.item()
        if number % TOLD == 0:
            news.put(("trained", trainer, loss_sum / TOLD))
            loss_sum = 0
        if stop.is_set():
            return


# ---- the process that watches


def held_by(pid):
    return [b for b in tenon.inspect().blocks if any(h["pid"] == pid for h in b["holders"])]


def kill(role, pid, at_s):
    """Kill a process, and see to it that all is released that it held."""
    held = held_by(pid)
    own = [b for b in held if len(b["holders"]) == 1 and not b["in_messages"] and not b["in_tickets"]]
    begun = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    while held_by(pid):
        if time.monotonic() - begun > RECLAIMED_S:
            raise SystemExit(f"what process {pid} held was not released within {RECLAIMED_S} s of its death")
    return {
        "role": role,
        "pid": pid,
        "at_s": at_s,
        "blocks": len(held),
        "bytes": sum(b["bytes"] for b in held),
        "own_blocks": len(own),
        "released_ms": 1000 * (time.monotonic() - begun),
    }


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


class Watch:
    """What has happened so far."""

    def __init__(self, network, samples, pictures, labels, options):
        self.network = network
        self.samples = samples
        self.pictures, self.labels = pictures, labels
        self.options = options
        self.series, self.kills, self.lost = [], [], []
        self.workers = {}  # trainer: pids, the latest last
        self.batches = {trainer: 0 for trainer in range(options.trainers)}
        self.loss = None
        self.began = set()
        self.begun = None

    def wait_for_all(self, news, trainers):
        """The time begins when all trainers have a batch."""
        until = time.monotonic() + BEGIN_S
        while len(self.began) < len(trainers):
            if time.monotonic() > until or not all(trainer.is_alive() for trainer in trainers):
                raise SystemExit(f"only {len(self.began)} of {len(trainers)} trainers began")
            self.take(news)
        self.begun = time.monotonic()

    def at_s(self):
        return time.monotonic() - self.begun

    def take(self, news):
        """Note what trainers and workers tell until it is time to look again."""
        until = time.monotonic() + LOOK_S
        while (left_s := until - time.monotonic()) > 0:
            try:
                kind, trainer, what = news.get(timeout=left_s)
            except queue.Empty:
                return
            if kind == "worker":
                self.workers.setdefault(trainer, []).append(what)
            elif kind == "began":
                self.began.add(trainer)
            elif kind == "lost":
                self.lost.append(what)
            else:
                self.batches[trainer] += TOLD
                self.loss = what if self.loss is None else 0.9 * self.loss + 0.1 * what

    def look(self):
        with torch.no_grad():
            guesses = self.network(self.pictures).argmax(1)
        accuracy = (guesses == self.labels).float().mean().item()
        batches = sum(self.batches.values())
        point = {"at_s": self.at_s(), "accuracy": accuracy, "loss": self.loss, "batches": batches}
        self.series.append(point)
        self.show(point)
        return accuracy

    def show(self, point):
        loss = "     -" if self.loss is None else f"{self.loss:.4f}"
        text = f"accuracy {point['accuracy']:.4f}  loss {loss}  {point['batches']} batches"
        if not sys.stdout.isatty():
            if len(self.series) == 1 or int(self.series[-2]["at_s"]) != int(point["at_s"]):
                print(f"{point['at_s']:5.1f} s  {text}", flush=True)
            return
        done = min(int(BAR_WIDTH * point["at_s"] / self.options.seconds), BAR_WIDTH)
        bar = "#" * done + "." * (BAR_WIDTH - done)
        print(f"\r[{bar}] {point['at_s']:4.1f} of {self.options.seconds:g} s  {text}\x1b[K", end="", flush=True)

    def kill_when_due(self, trainers):
        part = self.at_s() / self.options.seconds
        if len(self.kills) == 0 and part >= 1 / 3:
            self.kills.append(kill("loader", self.workers[0][-1], self.at_s()))
        elif len(self.kills) == 1 and part >= 2 / 3:
            self.kills.append(kill("trainer", trainers[-1].pid, self.at_s()))

    def print_result(self):
        if sys.stdout.isatty():
            print()
        for dead in self.kills:
            print(
                f"killed {dead['role']:<8} pid {dead['pid']} at {dead['at_s']:.1f} s; it held {dead['blocks']} blocks, "
                f"{dead['bytes']} bytes,\n                {dead['own_blocks']} of which nobody else held; "
                f"all was released {dead['released_ms']:.1f} ms after the kill"
            )
        for sentence in self.lost:
            print(f"a trainer got:  {sentence}\n                and made a new DataLoader")

    def title(self):
        o = self.options
        return (
            f"Hogwild on {self.samples} samples from Python: {o.trainers} trainers, each with a DataLoader of "
            f"{o.workers} workers, one PyTorch network in shared memory\n"
            f"{sum(self.batches.values())} batches trained on; DataLoaders lost and made anew: {len(self.lost)}"
        )


def load(options):
    """Pictures and labels: what to train on, and what to test with."""
    try:
        x, y = torch.from_numpy(numpy.load(options.x)), torch.from_numpy(numpy.load(options.y))
    except (OSError, ValueError) as error:
        raise SystemExit(f"no digits: {error} (dev/demo-data.py makes the files)") from None
    if x.ndim != 2 or x.shape[1] != SIDE**2 or y.shape != x.shape[:1]:
        raise SystemExit(f"{options.x}: {SIDE * SIDE} pixels for each label are wanted, there are {tuple(x.shape)}")
    x = x.float().view(-1, 1, SIDE, SIDE)
    part = len(x) * 4 // 5
    return x[:part], y[:part], x[part:], y[part:]


def run(options):
    """Train; what happened, and what is wrong with it."""
    torch.set_num_threads(1)
    torch.manual_seed(options.seed)
    x, y, test_x, test_y = load(options)
    context = mp.get_context(options.method)
    network = make_network()
    network.share_memory()
    torch.optim.SGD(network.parameters(), options.rate)  # imports what each trainer would by itself
    digits = Digits(x, y)
    for tensor in digits.padded, digits.labels:
        tensor.share_memory_()  # one copy for all workers, whatever the start method
    news, stop = context.Queue(), context.Event()
    trainers = [
        context.Process(target=train, args=(trainer, network, digits, news, stop, options))
        for trainer in range(options.trainers)
    ]
    for trainer in trainers:
        trainer.start()
    watch = Watch(network, len(x), test_x, test_y, options)
    watch.wait_for_all(news, trainers)
    while watch.at_s() < options.seconds:
        watch.take(news)
        watch.look()
        if not options.no_kill:
            watch.kill_when_due(trainers)
    stop.set()
    for trainer in trainers:
        trainer.join(END_S)
    accuracy = watch.look()
    watch.print_result()
    return watch, judge(watch, accuracy, [trainer.exitcode for trainer in trainers])


def judge(watch, accuracy, exit_codes):
    killed = 0 if watch.options.no_kill else 1
    wrong = []
    print(f"accuracy        {accuracy:.4f} on {len(watch.labels)} digits that nobody trained on")
    if accuracy < WANTED:
        wrong.append(f"the accuracy is below {WANTED}")
    if exit_codes != [0] * (len(exit_codes) - killed) + [-signal.SIGKILL] * killed:
        wrong.append(f"the trainers ended with {exit_codes}")
    if len(watch.kills) != 2 * killed:
        wrong.append(f"{len(watch.kills)} processes were killed, and not {2 * killed}: the time was too short")
    if len(watch.lost) != killed:
        wrong.append(f"{len(watch.lost)} DataLoaders were lost, and not {killed}")
    still_there = [pid for pids in watch.workers.values() for pid in pids if is_alive(pid)]
    if still_there:
        wrong.append(f"workers of DataLoaders are still there: {still_there}")
    return wrong


# ---- at the end


def names_there():
    """Files of PyTorch's own shared memory; tenon's by this strategy has no names."""
    return {name for name in os.listdir("/dev/shm") if name.startswith("torch_")}


def check_what_is_left(names):
    """What the run has left in shared memory, now that none of its objects is there; sentences."""
    gc.collect()
    found = tenon.domain().audit()
    left = [f"{block['bytes']} bytes of {block['kind']}" for block in tenon.inspect().blocks]
    left += [f"/dev/shm/{name}" for name in sorted(names_there() - names)]
    print(f"audit           {len(found)} discrepancies\nleft behind     {', '.join(left) or 'nothing'}")
    return found + [f"left behind: {what}" for what in left]


def main():
    options = parse()
    names = names_there()
    tenon.torch.install()
    watch, wrong = run(options)
    with open(options.json, "w", encoding="utf-8") as file:
        happened = {"title": watch.title(), "wanted": WANTED, "series": watch.series, "kills": watch.kills}
        result = {"accuracy": watch.series[-1]["accuracy"]}
        json.dump({**happened, "settings": vars(options), "result": result}, file, indent=1)
    del watch
    wrong += check_what_is_left(names)
    for sentence in wrong:
        print(f"failed: {sentence}", file=sys.stderr)
    return 1 if wrong else 0


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--x", default="build/demo/digits_x.npy", help="pictures, .npy (%(default)s)")
    parser.add_argument("--y", default="build/demo/digits_y.npy", help="labels, .npy (%(default)s)")
    parser.add_argument("--json", default="build/demo/digits.json", help="what happened, for dev/demo-plot.py")
    parser.add_argument("--seconds", type=float, default=20, help="how long to train (%(default)s)")
    parser.add_argument("--rate", type=float, default=0.05, help="learning rate (%(default)s)")
    parser.add_argument("--trainers", type=int, default=2, help="processes that train (%(default)s)")
    parser.add_argument("--workers", type=int, default=2, help="of each DataLoader (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all random numbers (%(default)s)")
    parser.add_argument("--method", default="fork", choices=mp.get_all_start_methods(), help="(%(default)s)")
    parser.add_argument("--no-kill", action="store_true", help="kill nobody")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
