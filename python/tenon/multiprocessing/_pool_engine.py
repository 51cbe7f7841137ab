# SPDX-License-Identifier: Apache-2.0
"""The threads of a pool: they replace dead workers, send tasks and receive results."""

import threading
import time

from .. import _core, _cpython, _domain
from .._cpython import CLOSE, RUN, TERMINATE, connection, mapstar, starmapstar
from . import _pool_worker
from ._cells import Cells
from ._pool_jobs import Jobs
from ._pool_worker import ATTEMPTS, CELLS, INDEX, JOB, LEFT, LOST, NONE, RESULT, SECEDED, TASK

_LEASE = 2
_CAPACITY = 128  # tasks that wait for a worker, results that wait to be read
_TERM_S = 5  # then a worker that was asked to end is killed
_LONG_S = 60  # a worker that lived so long did not die from starting
_CODE_UNKNOWN = 255  # exit code of a worker whose fork server was killed: the worker may live
_CHECK_S = 0.1  # between two checks whose message was lost
_MOST_WAIT_S = 5  # at most, between two attempts to start a worker
_MOST_EXTRA = 32  # workers beside those that the pool was made with, for tasks that have seceded
_NAP_S = 0.05  # between two attempts after a lack of descriptors or memory


class WorkerDied(RuntimeError):
    """A task killed its workers, or workers die before they take a task.

    Attributes
    ----------
    task : str or None, the name of the task's function
    pid : int or None, of the last worker
    pids : tuple of int, of all workers that are known
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


def processes(pids):
    """Name processes, as in "processes 11, 12 and 13"."""
    *first, last = map(str, pids)
    return f"processes {', '.join(first)} and {last}" if first else f"process {last}"


def _name_of(func, args):
    if func in (mapstar, starmapstar):
        func = args[0][0]
    return getattr(func, "__qualname__", None) or repr(func)[:100]


class Engine:
    """The state and the threads of a pool. It holds no reference to the Pool."""

    def __init__(self, processes, start_worker, workers, taskqueue, cache, notifier):
        domain = _domain.default()
        self.state = RUN
        self.broken = None  # WorkerDied: workers die before they take a task
        self.processes = processes
        self.workers = workers  # Pool._pool
        self.taskqueue = taskqueue
        self.cache = cache
        self.notifier = notifier
        self.tasks = _core.Queue.create(domain, capacity=_CAPACITY, policy=_LEASE)
        self.results = _core.Queue.create(domain, capacity=_CAPACITY)
        self.tasks.attach(1)
        self.results.attach(2)
        self.start_worker = start_worker
        self.cells = {}  # worker -> its cells
        self.spare = []  # cells of ended workers: a new worker then needs no memory
        self.begun_s = {}  # worker -> when it was started
        self.lock = threading.RLock()  # for all fields above; never held during a delivery
        self.deaths = {}  # (job, index) -> pids of workers that died doing it
        self.last = {}  # pid -> (job, index) of its last result
        self.died_idle = 0  # workers that died early and without a task since the last result
        self.sent = {}  # (job, index) -> function name, of tasks without a result
        self.seceded = {}  # (job, index) -> pid of the worker, of tasks that have seceded and run
        self.putting = None  # the task that is being pushed
        self.loss = None  # the error of a lost message, until its task is known
        self.is_sound = threading.Event()  # set: no message is lost
        self.is_sound.set()
        self.jobs = Jobs(cache, self.lock, lambda: self.state == TERMINATE)

    # -- workers

    def _wanted(self):
        """How many workers there should be: those of the pool, beside tasks that have seceded."""
        extra = min(len(self.seceded), _MOST_EXTRA)
        return self.processes if extra == 0 else max(self.processes, min(self.processes + extra, len(self.sent)))

    def repopulate(self):
        """Start as many workers as are missing."""
        with self.lock:
            while len(self.workers) < self._wanted() and self.state != TERMINATE:
                cells = self.spare.pop() if self.spare else Cells(CELLS)
                cells[JOB], cells[LEFT] = NONE, 0
                try:
                    worker = self.start_worker(self, cells)
                except OSError:  # no process was started; after any other error one may run
                    self.spare.append(cells)
                    raise
                self.cells[worker], self.begun_s[worker] = cells, time.monotonic()
                self.workers.append(worker)

    def collect(self):
        """Remove ended workers, and note the tasks of those that died."""
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
        """Collect the dead workers whose cells still name a task that another worker has."""
        until_s = time.monotonic() + _TERM_S
        while True:
            self.collect()
            with self.lock:
                dying = [
                    worker
                    for worker, cells in self.cells.items()
                    if worker.pid != living and (cells[JOB], cells[INDEX]) == task
                ]
            left_s = until_s - time.monotonic()
            if not dying or left_s <= 0:
                break
            dying[0].join(left_s)  # its sentinel may be ready a moment before its exit code is
        self.notifier.put(None)  # to replace workers

    def _note_death(self, pid, cells, begun_s):
        if cells[JOB] != NONE:
            task = cells[JOB], cells[INDEX]
            self.deaths.setdefault(task, []).append(pid)
            if self.seceded.get(task) == pid:
                del self.seceded[task]
        elif time.monotonic() - begun_s > _LONG_S:
            self.died_idle = 0
        else:
            self.died_idle += 1
        self._reclaim_dead()

    def _reclaim_dead(self):
        try:
            self.tasks.domain.reap()  # its task comes back now, not at the next check of another process
        except _core.Error:
            pass

    def give_up(self):
        """Whether too many workers in a row have died before they took a task."""
        with self.lock:
            is_at_work = any(cells[JOB] != NONE for cells in self.cells.values())
            return self.died_idle >= max(4, 2 * self.processes) and not is_at_work

    def fail_all(self):
        with self.lock:
            self.broken = WorkerDied(
                f"{self.died_idle} workers in a row died before they could take a task: "
                "see what they wrote to stderr"
            )
            errors = {job: self._error_of(job) for job in self.cache}
        self.is_sound.set()
        for job, error in errors.items():
            self.jobs.fail(job, error)

    def _error_of(self, job):
        """Why a job fails with the pool: one of its tasks ended its workers, or workers die before they take one."""
        for task, pids in self.deaths.items():
            if task[0] == job and len(pids) >= ATTEMPTS:
                return self._death_of(self.sent.get(task), pids)
        return self.broken

    # -- the threads

    def watch_workers(self):
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
        """Start missing workers. Returns the seconds until the next attempt, if one cannot be started."""
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
            pass  # it has ended already

    def put_tasks(self):
        # This function keeps no reference to a task while it waits for the next one.
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
                return  # the job has failed; its sequence may have no end
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
        self.is_sound.wait()  # put no task until the lost one is known
        self.putting = job, index
        self.sent[job, index] = name.decode()
        if self.seceded:
            self.notifier.put(None)  # it may need one more worker
        self._push_task(job, index, message, tensors)
        self.putting = None

    def _push_task(self, job, index, message, tensors):
        while self.broken is None and self.state != TERMINATE:
            try:
                _pool_worker.push(self.tasks, message, tensors)
                return
            except _core.PeerDied:
                pass  # new workers will come
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
                message = self.results.pop(None if self.loss is None else _CHECK_S)
            except (_core.PeerDied, _core.TimedOut):  # new workers will come
                self._tell_lost(lost)
                continue
            except _core.Closed as error:
                for job in list(self.cache):  # there are jobs only if the domain was closed
                    self.jobs.fail(job, error)
                self.is_sound.set()
                return
            except (_core.Error, MemoryError) as error:
                if isinstance(error, LOST) or not isinstance(error, _core.Error):
                    self._note_loss(error)
                else:  # for example no descriptor: the message stays in the queue
                    _cpython.sub_warning("a pool waits for what its next result needs: %s", error)
                time.sleep(_NAP_S)
                continue
            self._take(message)
            del message

    # A queue drops a message whose tensors are gone, and does not say which; and Python may lack
    # the memory for a message that it has popped. The lost message belongs to a task that is in
    # neither queue and at no worker, since a task leaves its queue after its result is in the other.

    def _note_loss(self, error):
        self.loss = error
        self.is_sound.clear()
        if self.state == TERMINATE or self.broken is not None:
            self.is_sound.set()

    def _find_lost(self):
        """The tasks that are lost, if no result is left in the queue; None: not known yet."""
        if self.loss is None:
            return None
        put = [task for task in list(self.sent) if task != self.putting]
        try:
            is_clear = self.tasks.count() == 0 and self._count_tasks() == 0
        except _core.Error:
            is_clear = False
        return put if is_clear else None

    def _count_tasks(self):
        """Waiting and leased tasks, counted at one moment, since a dead worker's task changes sides."""
        objects = _core.inspect_domain(self.tasks.domain.name)["objects"]
        tasks = [found for found in objects if found["id"] == self.tasks.id]
        return sum(found["count"] + found["leased"] for found in tasks)

    def _tell_lost(self, lost):
        if lost is None:
            return
        for task in lost:
            text = f"a task, {self.sent.pop(task)}(), or its result was lost: {self.loss}"
            self.jobs.tell(*task, (False, type(self.loss)(text)))
        if not self.sent:  # else the lost task may be the one that is being pushed
            self.loss = None
            self.is_sound.set()

    def _take(self, message):
        job, index, pid, attempt, given_up = RESULT.unpack_from(message.data)
        if job == NONE:
            self._note_loss(_core.loads(memoryview(message.data)[RESULT.size :], message.tensors))
            return
        task = job, index
        if given_up == SECEDED:
            self._note_secession(task, pid)
            return
        self.sent.pop(task, None)
        with self.lock:
            self.seceded.pop(task, None)
            is_second = attempt > 0 and task in self.last.values()
            self.last[pid] = task
            if not given_up:
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

    def _note_secession(self, task, pid):
        with self.lock:
            result = self.cache.get(task[0])
            if result is None or task not in self.sent or pid in self.deaths.get(task, ()):
                return
            self.seceded[task] = pid
            on_secede = getattr(result, "on_secede", None)
        self.notifier.put(None)  # a task that was sent before may need one more worker
        if on_secede is not None:
            on_secede()

    def call_when_seceded(self, result, act):
        """Have a function called, in any thread, each time that a task of a result secedes or has seceded."""
        with self.lock:
            result.on_secede = act
            has_seceded = any(job == result._job for job, _ in self.seceded)
        if has_seceded:
            act()

    @staticmethod
    def _death_of(name, pids):
        known = f": {processes(pids)}" if pids else ""
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
            # The garbage collector ends the pool in a thread that holds the lock, for which other
            # threads of the pool may wait. watch_workers() then stops the workers.
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
