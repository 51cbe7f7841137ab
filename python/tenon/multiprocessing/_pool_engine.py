# SPDX-License-Identifier: Apache-2.0
"""What goes on in a pool while nobody calls it: workers are replaced, tasks put, results read."""

import threading
import time

from .. import _core, _cpython, _domain
from .._cpython import CLOSE, RUN, TERMINATE, connection, mapstar, starmapstar
from . import _pool_worker
from ._cells import Cells
from ._pool_jobs import Jobs
from ._pool_worker import ATTEMPTS, CELLS, INDEX, JOB, LEFT, LOST, NONE, RESULT, TASK

_LEASE = 2
_CAPACITY = 128  # tasks that wait for a worker, results that wait to be read
_TERM_S = 5  # a worker that was asked to end and does not is killed
_LONG_S = 60  # a worker that lived as long shows that workers can
_CODE_UNKNOWN = 255  # the exit code of a worker whose fork server was killed: it may live
_LOOK_S = 0.1  # between two looks for whose message was lost
_MOST_WAIT_S = 5  # between two tries to start a worker
_NAP_S = 0.05  # between two tries of what a lack of descriptors or memory refuses


class WorkerDied(RuntimeError):
    """A task ended its workers, or workers do not live long enough to take one.

    task: the name of its function; pid: of the last worker; pids: of all that are known.
    """

    def __init__(self, message, task=None, pids=()):
        super().__init__(message)
        self.task = task
        self.pids = tuple(pids)

    @property
    def pid(self):
        return self.pids[-1] if self.pids else None

    def __reduce__(self):
        return type(self), (self.args[0], self.task, self.pids)


def _name_of(func, args):
    if func in (mapstar, starmapstar):
        func = args[0][0]
    return getattr(func, "__qualname__", None) or repr(func)[:100]


class Engine:
    """What goes on while nobody calls the pool; holds no reference of it."""

    def __init__(self, processes, start_worker, workers, taskqueue, cache, notifier):
        domain = _domain.default()
        self.state = RUN
        self.broken = None  # WorkerDied: workers die before they take a task
        self.processes = processes
        self.workers = workers  # the list that Pool shows
        self.taskqueue = taskqueue
        self.cache = cache
        self.notifier = notifier
        self.tasks = _core.Queue.create(domain, capacity=_CAPACITY, policy=_LEASE)
        self.results = _core.Queue.create(domain, capacity=_CAPACITY)
        self.tasks.attach(1)
        self.results.attach(2)
        self.start_worker = start_worker
        self.cells = {}  # worker -> its cells
        self.spare = []  # cells of workers that have ended: to replace one needs no memory
        self.begun_s = {}  # worker -> when it was started
        self.lock = threading.RLock()  # for all of the above; never held while a job is told
        self.deaths = {}  # (job, index) -> pids of workers that died at it
        self.last = {}  # pid -> (job, index) of the last result that came from it
        self.died_idle = 0  # workers that died soon and at no task, since the last result
        self.sent = {}  # (job, index) -> name of its function: tasks that were put, with no result
        self.putting = None  # the last of them, until it is in the queue
        self.loss = None  # why a message was lost, until it is known whose it was
        self.is_sound = threading.Event()  # none was
        self.is_sound.set()
        self.jobs = Jobs(cache, self.lock, lambda: self.state == TERMINATE)

    # -- workers

    def repopulate(self):
        """Start as many workers as are missing."""
        with self.lock:
            while len(self.workers) < self.processes and self.state != TERMINATE:
                cells = self.spare.pop() if self.spare else Cells(CELLS)
                cells[JOB], cells[LEFT] = NONE, 0
                try:
                    worker = self.start_worker(self, cells)
                except OSError:  # no process was started; after another error, one may live
                    self.spare.append(cells)
                    raise
                self.cells[worker], self.begun_s[worker] = cells, time.monotonic()
                self.workers.append(worker)

    def collect(self):
        """Forget workers that have ended, and note what those that died were at."""
        with self.lock:
            for worker in [worker for worker in self.workers if worker.exitcode is not None]:
                worker.join()
                self.workers.remove(worker)
                cells, begun_s = self.cells.pop(worker), self.begun_s.pop(worker)
                if cells[LEFT]:
                    self.last.pop(worker.pid, None)
                else:
                    self._note_death(worker.pid, cells, begun_s)
                if worker.exitcode != _CODE_UNKNOWN:
                    self.spare.append(cells)

    def _collect_those_at(self, task, living):
        """Workers that let go of a task which another one has: they end, if they have not."""
        with self.lock:
            sentinels = [
                worker.sentinel
                for worker, cells in self.cells.items()
                if worker.pid != living and (cells[JOB], cells[INDEX]) == task
            ]
        for sentinel in sentinels:
            connection.wait([sentinel], _TERM_S)
        self.collect()
        self.notifier.put(None)  # there may be workers to replace

    def _note_death(self, pid, cells, begun_s):
        if cells[JOB] != NONE:
            task = cells[JOB], cells[INDEX]
            self.deaths.setdefault(task, []).append(pid)
        elif time.monotonic() - begun_s > _LONG_S:
            self.died_idle = 0
        else:
            self.died_idle += 1
        self._reclaim_dead()

    def _reclaim_dead(self):
        try:
            self.tasks.domain.reap()  # its task comes back now, and not when others look
        except _core.Error:
            pass

    def give_up(self):
        """Whether workers die before they take a task, too often in a row to go on."""
        with self.lock:
            is_at_work = any(cells[JOB] != NONE for cells in self.cells.values())
            return self.died_idle >= max(4, 2 * self.processes) and not is_at_work

    def fail_all(self):
        with self.lock:
            self.broken = WorkerDied(
                f"{self.died_idle} workers in a row died before they could take a task: "
                "see what they wrote to stderr"
            )
            numbers = list(self.cache)
        self.is_sound.set()
        for job in numbers:
            self.jobs.fail(job, self.broken)

    # -- the threads

    def look_after_workers(self):
        wait_s = None
        while self.state == RUN or (self.state == CLOSE and self.cache):
            self.collect()
            if self.give_up():
                self.fail_all()
                break
            wait_s = self._replace_dead(wait_s)
            sentinels = [worker.sentinel for worker in self.workers]
            if any(worker.exitcode is not None for worker in self.workers):
                continue
            connection.wait([self.notifier.reader, *sentinels], wait_s)
            self.notifier.clear()
        if self.broken is not None:
            self._wait_for_close()
        self.taskqueue.put(None)
        if self.state == CLOSE:
            self.tasks.end()
            self._wait_for_workers()
        self._end(self.results)
        if self.state == TERMINATE:
            self._stop_workers()

    def _replace_dead(self, waited_s):
        """Seconds to wait, if no worker can be started now: no process is to be had, say."""
        try:
            self.repopulate()
            return None
        except Exception as error:
            _cpython.sub_warning("a pool cannot start a worker yet: %s", error)
            return min(2 * (waited_s or _NAP_S), _MOST_WAIT_S)

    def _wait_for_close(self):
        while self.state == RUN:
            connection.wait([self.notifier.reader])
            self.notifier.clear()

    def _wait_for_workers(self):
        while self.state == CLOSE:
            living = [worker.sentinel for worker in self.workers if worker.exitcode is None]
            if not living:
                return
            connection.wait([self.notifier.reader, *living])
            self.notifier.clear()

    @staticmethod
    def _end(core):
        try:
            core.end()
        except (_core.Error, ValueError):
            pass  # it has

    def put_tasks(self):
        # Nothing of a task is held on to while this waits for the next one.
        while True:
            item = self.taskqueue.get()
            if item is None or self.state == TERMINATE:
                return
            self._put_sequence(*item)
            del item

    def _put_sequence(self, sequence, set_length):
        count = 0
        for task in sequence:
            self._put_task(*task)
            count = task[1] + 1
            if self.state == TERMINATE or task[0] not in self.cache:
                return  # the job has failed, and its sequence may be endless
        if set_length:
            self.jobs.set_length(set_length, count)

    def _put_task(self, job, index, func, args, keywords):
        if self.broken is not None:
            self.jobs.fail(job, self.broken)
            return
        try:
            name = _name_of(func, args).encode("utf-8", "replace")
            data, tensors = _core.dumps((func, args, keywords), self.tasks.domain)
            message = TASK.pack(job, index, len(name)) + name + data
        except Exception as error:
            self.jobs.tell(job, index, (False, error))
            return
        self.is_sound.wait()  # no new task while it is found out which one was lost
        self.putting = job, index
        self.sent[job, index] = name.decode()
        self._push_task(job, index, message, tensors)
        self.putting = None

    def _push_task(self, job, index, message, tensors):
        while self.broken is None and self.state != TERMINATE:
            try:
                _pool_worker.push(self.tasks, message, tensors)
                return
            except _core.PeerDied:
                pass  # there will be other workers
            except Exception as error:
                self.sent.pop((job, index), None)
                self.jobs.tell(job, index, (False, error))
                return
        if self.broken is not None:
            self.jobs.fail(job, self.broken)

    def take_results(self):
        while self.state != TERMINATE:
            lost = self._find_lost()
            try:
                message = self.results.pop(None if self.loss is None else _LOOK_S)
            except (_core.PeerDied, _core.TimedOut):  # there will be other workers
                self._tell_lost(lost)
                continue
            except _core.Closed as error:
                for job in list(self.cache):  # none, unless the domain was closed
                    self.jobs.fail(job, error)
                self.is_sound.set()
                return
            except (_core.Error, MemoryError) as error:
                if isinstance(error, LOST) or not isinstance(error, _core.Error):
                    self._note_loss(error)
                else:  # no descriptor, say: the message stays in the queue until there is one
                    _cpython.sub_warning("a pool waits for what its next result needs: %s", error)
                time.sleep(_NAP_S)
                continue
            self._take(message)
            del message

    # A message whose tensors cannot be had any more is dropped by the queue, which does not say
    # whose it was; and Python may lack the memory for a message that was taken already. It was of
    # a task that is in neither queue, nor at a worker: a task leaves its queue only when its result
    # is in the other one.

    def _note_loss(self, error):
        self.loss = error
        self.is_sound.clear()
        if self.state == TERMINATE or self.broken is not None:
            self.is_sound.set()

    def _find_lost(self):
        """Tasks that are lost, unless there are results; None if nobody knows yet."""
        if self.loss is None:
            return None
        put = [task for task in list(self.sent) if task != self.putting]
        try:
            is_clear = self.tasks.count() == 0 and self._count_tasks() == 0
        except _core.Error:
            is_clear = False
        return put if is_clear else None

    def _count_tasks(self):
        """Those that wait and those that workers have, in one look: a dead worker's come back."""
        objects = _core.inspect_domain(self.tasks.domain.name)["objects"]
        tasks = [found for found in objects if found["id"] == self.tasks.id]
        return sum(found["count"] + found["leased"] for found in tasks)

    def _tell_lost(self, lost):
        if lost is None:
            return
        for task in lost:
            text = f"a task, {self.sent.pop(task)}(), or its result was lost: {self.loss}"
            self.jobs.tell(*task, (False, type(self.loss)(text)))
        if not self.sent:  # else the lost task may be the one that is just being put
            self.loss = None
            self.is_sound.set()

    def _take(self, message):
        job, index, pid, attempt, given_up = RESULT.unpack_from(message.data)
        if job == NONE:
            self._note_loss(_core.loads(memoryview(message.data)[RESULT.size :], message.tensors))
            return
        task = job, index
        self.sent.pop(task, None)
        with self.lock:
            is_second = attempt > 0 and task in self.last.values()
            self.last[pid] = task
            self.died_idle = 0
        if is_second or job not in self.cache:
            return
        try:
            outcome = _core.loads(memoryview(message.data)[RESULT.size :], message.tensors)
        except Exception as error:
            outcome = False, error
        if given_up:
            self._collect_those_at(task, pid)
            outcome = False, self._death_of(outcome, self.deaths.get(task, ()))
        self.deaths.pop(task, None)
        self.jobs.tell(job, index, outcome)

    @staticmethod
    def _death_of(name, pids):
        known = f", the last of them process {pids[-1]}" if pids else ""
        return WorkerDied(f"a task, {name}(), ended {ATTEMPTS} workers{known}", name, pids)

    # -- the end

    def terminate(self, *threads):
        self.state = TERMINATE
        self.is_sound.set()
        self.notifier.put(None)
        self.taskqueue.put(None)
        self._end(self.tasks)
        self._end(self.results)
        if _cpython.is_held(self.lock):
            # The collector of garbage ends the pool while one of its threads has the lock, which
            # the other threads may wait for. The first of them stops the workers by itself.
            return
        me = threading.current_thread()
        for thread in threads:
            if thread is not me:
                thread.join()
        self._stop_workers()

    def _stop_workers(self):
        for worker in self.workers:
            if worker.exitcode is None:
                worker.terminate()
        for worker in self.workers:
            worker.join(_TERM_S)
            if worker.exitcode is None:
                worker.kill()
                worker.join()
