# SPDX-License-Identifier: Apache-2.0
"""tenon.trace(): what the tasks of a program did, as a file for the viewers of Chrome and Perfetto, and as a picture."""

import heapq
import io
import json
import os

from . import _core, _schedulers

__all__ = ["trace"]


class Task:
    """A task that ran."""

    __slots__ = ("amounts", "began", "bytes", "cpu_until", "ended", "graph", "lanes", "name", "number", "read_until", "slots", "status")

    def __init__(self, event, scheduler):
        self.graph, self.number, title, slots, began_ns, ended_ns, cpu_until_ns, self.status, self.bytes, way = event
        self.name = title.split(" [")[0]
        self.amounts = scheduler.amounts.get(title, ({"CPU": 1},))[way]
        self.slots = dict(part.split("=") for part in slots.split())
        self.began, self.ended = began_ns / 1000, max(ended_ns, began_ns) / 1000  # microseconds
        self.cpu_until = max(cpu_until_ns / 1000, self.began)  # when it gave back its CPU
        self.read_until = self.ended  # when the last task that reads its result has ended
        self.lanes = []

    def until(self, resource):
        """When it gave back what it had of a resource."""
        return self.cpu_until if resource in ("CPU", "THREADS") else self.ended


class trace:
    """Note what the tasks of this process do, until it is closed, and write it into a file.

    The file is JSON that https://ui.perfetto.dev and chrome://tracing open: a lane for each slot and for each CPU, an
    arrow from each input to the task that read it, or to the call that came after it, and a counter for each resource.
    Two more counters are of the arrays among the results: the bytes that tasks have made since the begin, and those
    that are held because a task is still to read them.

    It is used in a `with` statement, or closed by close(). In a notebook, it shows itself as a picture of how much of
    each resource was in use.

    Parameters
    ----------
    path : str or os.PathLike
        The file, which is written by close().

    Raises
    ------
    OSError
        The file cannot be made.
    RuntimeError
        Another trace is open.
    """

    def __init__(self, path):
        self.path = os.fspath(path)
        self.schedulers = []  # whose tasks are noted
        self._tasks = None
        self._edges = []
        self._totals = {}
        with open(self.path, "a", encoding="utf-8"):
            pass  # an error is told of before the work, not after it
        _schedulers.set_trace(self)

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.close()

    def close(self):
        """Write the file. Tasks that have not ended are not in it."""
        if self._tasks is not None:
            return
        _schedulers.set_trace(None)
        self._tasks = []
        for scheduler in self.schedulers:
            self._read(scheduler)
        self.schedulers = []
        with open(self.path, "w", encoding="utf-8") as file:
            file.write("[\n" + ",\n".join(map(json.dumps, self._events())) + "\n]\n")

    def _read(self, scheduler):
        tasks = {}
        for event in scheduler.core.events():
            task = Task(event, scheduler)
            self._tasks.append(task)
            tasks[task.graph, task.number] = task
        arrows = [((graph, one), (graph, other)) for graph, one, other in scheduler.core.edges()]
        arrows += scheduler.arrows
        scheduler.arrows = None  # no more are noted
        for one, other in arrows:
            if one in tasks and other in tasks:
                self._edges.append((tasks[one], tasks[other]))
                tasks[one].read_until = max(tasks[one].read_until, tasks[other].ended)
        try:
            totals = {name: total for name, (total, _) in scheduler.core.resources().items()}
        except _core.Closed:
            totals = {}
        for name, total in totals.items():
            self._totals[name] = max(total, self._totals.get(name, 0))

    # -- the file

    def _assign_lanes(self):
        """Give each task a lane for each slot and each CPU that it has; a task without any has a lane of THREADS."""
        free, names = {}, {}  # by family: a heap of the lanes that are free; numbers of lanes
        ends = []  # of what tasks have: (when, which, lanes)
        for count, task in enumerate(sorted(self._tasks, key=lambda task: task.began)):
            while ends and ends[0][0] <= task.began:
                _, _, family, number = heapq.heappop(ends)
                heapq.heappush(free[family], number)
            families = [(name, slot) for name, slots in task.slots.items() for slot in slots.split(",")]
            families += [("CPU", None)] * int(task.amounts.get("CPU", 1)) or ([] if families else [("THREADS", None)])
            for family in families:
                lanes = free.setdefault(family, [])
                number = heapq.heappop(lanes) if lanes else names.get(family, 0)
                names[family] = max(names.get(family, 0), number + 1)
                task.lanes.append((family, number))
                heapq.heappush(ends, (task.until(family[0]), count, family, number))
        return sorted((family[0], family[1] or "", number) for family in names for number in range(names[family]))

    def _events(self):
        lanes = {lane: i + 1 for i, lane in enumerate(self._assign_lanes())}
        resources = {name: i + 1 for i, name in enumerate(dict.fromkeys(lane[0] for lane in lanes))}
        events = []
        for name, pid in resources.items():
            events.append({"ph": "M", "pid": pid, "name": "process_name", "args": {"name": name}})
        for (name, slot, number), tid in lanes.items():
            title = f"{name} {slot or number}" + (f" ({number + 1})" if slot and number else "")
            events.append({"ph": "M", "pid": resources[name], "tid": tid, "name": "thread_name", "args": {"name": title}})

        def place(lane):
            (name, slot), number = lane
            return {"pid": resources[name], "tid": lanes[name, slot or "", number]}

        for task in self._tasks:
            args = {"task": task.number, "graph": task.graph}
            if task.status != 0:
                args["status"] = task.status
            span = {"ph": "X", "ts": task.began, "cat": "task", "name": task.name}
            events += [
                {**span, **place(lane), "dur": task.until(lane[0][0]) - task.began, "args": args} for lane in task.lanes
            ]
        for number, (one, other) in enumerate(self._edges):
            arrow = {"cat": "input", "name": "input", "id": number}
            end = one.until(one.lanes[0][0][0])
            # The end may be the begin of another task in the lane; what waits for the result may begin before it.
            last = max(min(end - 0.001, other.began), one.began)
            events.append({"ph": "s", "ts": last, **place(one.lanes[0]), **arrow})
            events.append({"ph": "f", "ts": other.began, "bp": "e", **place(other.lanes[0]), **arrow})
        for name, points in self.occupancy().items():
            for when, amount in points:
                counter = {"ph": "C", "pid": resources.get(name, 0), "name": f"{name} in use"}
                events.append({**counter, "ts": when, "args": {"in use": amount}})
        for name, points in self.bytes().items():
            for when, count in points:
                counter = {"ph": "C", "pid": len(resources) + 1, "name": f"results: bytes {name}"}
                events.append({**counter, "ts": when, "args": {"bytes": count}})
        if events and events[-1]["name"].startswith("results"):
            named = {"ph": "M", "pid": len(resources) + 1, "name": "process_name", "args": {"name": "memory"}}
            events.append(named)
        return events

    # -- what was in use

    def occupancy(self):
        """How much of each resource was in use: {name: [(microseconds, amount)]}, at each time at which it changed."""
        changes = {}
        for task in self._tasks or ():
            for name, amount in task.amounts.items():
                if amount:
                    changes.setdefault(name, []).extend([(task.began, amount), (task.until(name), -amount)])
        return {name: _sums(sorted(pairs)) for name, pairs in sorted(changes.items())}

    def bytes(self):
        """Of the arrays that tasks returned: {"held": [(microseconds, bytes)], "made": ...}, at each time of a change.

        A result is held from the end of its task until the last task that reads it has ended; of a result that no task
        reads nothing is held. "made" counts all, from the begin on.
        """
        held, made = [], []
        for task in self._tasks or ():
            if task.bytes:
                made.append((task.ended, task.bytes))
            if task.bytes and task.read_until > task.ended:
                held += [(task.ended, task.bytes), (task.read_until, -task.bytes)]
        return {"held": _sums(sorted(held)), "made": _sums(sorted(made))}

    def figure(self):
        """A figure of matplotlib: how much of each resource was in use over time. The trace must be closed."""
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("the picture of a trace needs matplotlib: pip install matplotlib") from None
        if self._tasks is None:
            raise RuntimeError("the trace is open: close() it first")
        shown = self.occupancy()
        begin = min((task.began for task in self._tasks), default=0)
        took = max((task.ended - begin for task in self._tasks), default=0)
        figure = Figure(figsize=(8, 0.6 + 1.2 * max(len(shown), 1)), layout="constrained")
        rows = figure.subplots(max(len(shown), 1), 1, sharex=True, squeeze=False)[:, 0]
        for axes, (name, points) in zip(rows, shown.items()):
            x, y = [(when - begin) / 1e6 for when, _ in points], [amount for _, amount in points]
            axes.fill_between(x, y, step="post", color="#1f5fa8", alpha=0.8, linewidth=0)
            total = self._totals.get(name)
            if total:
                axes.axhline(total, color="#222222", linewidth=0.8, linestyle="--")
                busy = sum(amount * (after - when) for (when, amount), (after, _) in zip(points, points[1:]))
                part = busy / total / max(took, 1e-9)
                axes.set_title(f"{name}: {part:.0%} of {total:g} in use", loc="left", fontsize=10)
            axes.set_ylim(0, 1.1 * max([total or 0, *y]))
            axes.spines[["top", "right"]].set_visible(False)
        rows[-1].set_xlabel("seconds")
        return figure

    def _repr_png_(self):
        try:
            figure = self.figure()
        except (ImportError, RuntimeError):
            return None
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=100)
        return file.getvalue()


def _sums(changes):
    """The sums of sorted changes, one for each time."""
    points, total = [], 0
    for i, (when, change) in enumerate(changes):
        total += change
        if i + 1 == len(changes) or changes[i + 1][0] != when:
            points.append((when, round(total, 4)))
    return points
