# SPDX-License-Identifier: Apache-2.0
"""`python -m tenon`: programs that know only multiprocessing and PyTorch, which are run as they are."""

import pathlib
import re
import signal
import subprocess
import sys
import textwrap
import zipfile

import pytest

METHODS = ["fork", "spawn", "forkserver"]
TIMEOUT_S = 120
LINE = "tenon: tenon.multiprocessing is in place of multiprocessing and torch.multiprocessing, strategy {}\n"


class Runner:
    """Writes programs into a folder and runs them there."""

    def __init__(self, folder):
        self.folder = folder

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    def plain(self, *arguments, stdin=""):
        return subprocess.run(
            [sys.executable, *arguments], cwd=self.folder, input=stdin, capture_output=True, text=True,
            check=False, timeout=TIMEOUT_S,
        )  # fmt: skip

    def tenon(self, *arguments, stdin=""):
        return self.plain("-m", "tenon", *arguments, stdin=stdin)

    def printed(self, *arguments):
        """The lines that a program prints, which ends well and without a word on standard error but ours."""
        done = self.tenon(*arguments)
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(LINE.format(r"\w+"), done.stderr), done.stderr
        return done.stdout.splitlines()


@pytest.fixture
def runner(tmp_path):
    return Runner(tmp_path)


def without_our_line(stderr):
    first, _, rest = stderr.partition("\n")
    assert first.startswith("tenon: tenon.multiprocessing is in place")
    return rest


# ---- in place of multiprocessing

EXCHANGE = """
    import multiprocessing
    import sys
    from multiprocessing import Process, Queue
    from multiprocessing.pool import Pool

    class Worker(multiprocessing.Process):
        def __init__(self, queue, *more):
            super().__init__()
            self.queue, self.more = queue, more

        def run(self):
            names = Queue.__self__, Process, Pool, multiprocessing.Lock().__class__
            self.queue.put([type(self.queue).__module__, *(getattr(each, "__module__", "") for each in names)])

    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        queue = Queue()
        worker = Worker(queue, multiprocessing.Event(), multiprocessing.Value("i", 3))
        worker.start()
        print(*queue.get())
        worker.join()
        print(type(worker).__mro__[1].__module__, worker.exitcode, multiprocessing.get_start_method())
        with multiprocessing.Pool(1) as pool, multiprocessing.Manager() as manager:
            print(type(pool).__module__, pool.map(abs, [-1, 2]), manager.list([1]))
"""


@pytest.mark.parametrize("method", METHODS)
def test_a_program_and_its_children_have_tenons_names(runner, method):
    runner.write("program.py", EXCHANGE)
    mp = "tenon.multiprocessing"
    assert runner.printed("program.py", method) == [
        f"{mp}.queues {mp}.context {mp}.process {mp}.pool {mp}.synchronize",
        f"{mp}.process 0 {method}",
        f"{mp}.pool [1, 2] [1]",
    ]


KINDS = """
    import multiprocessing, sys
    from multiprocessing.process import BaseProcess

    def look(queue=None):
        seen = multiprocessing.current_process(), multiprocessing.parent_process()
        kinds = [(isinstance(each, BaseProcess), getattr(each, "name", None)) for each in seen]
        return kinds if queue is None else queue.put(kinds)

    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        queue = multiprocessing.Queue()
        child = multiprocessing.Process(target=look, args=(queue,), name="one")
        child.start()
        print(look(), queue.get(), isinstance(child, BaseProcess))
        child.join()
"""


@pytest.mark.parametrize("method", METHODS)
def test_this_process_and_its_parent_are_processes_of_the_program(runner, method):
    runner.write("program.py", KINDS)
    expected = "[(True, 'MainProcess'), (False, None)] [(True, 'one'), (True, 'MainProcess')] True"
    assert runner.printed("program.py", method) == [expected]
    assert runner.plain("program.py", method).stdout == f"{expected}\n"


def test_a_star_import_brings_tenons_names(runner):
    runner.write("program.py", "from multiprocessing import *; print(Process.__module__, Queue.__self__.__module__)")
    assert runner.printed("program.py") == ["tenon.multiprocessing.process tenon.multiprocessing.context"]


PRIVATE = """
    import multiprocessing, multiprocessing.spawn, multiprocessing.util
    from multiprocessing import resource_tracker
    from multiprocessing.context import _default_context, _concrete_contexts
    from multiprocessing.pool import mapstar, Pool
    from multiprocessing.process import _children, current_process
    from multiprocessing.queues import Queue, _sentinel
    from multiprocessing.reduction import ForkingPickler
    from multiprocessing.synchronize import SemLock

    for each in (type(_default_context), mapstar, SemLock, ForkingPickler, multiprocessing.spawn.spawn_main):
        print(each.__module__)
    print(multiprocessing.spawn.__name__)
    print(Queue.__module__, Pool.__module__, current_process()._config.get("authkey") is not None, _children)
    try:
        multiprocessing.queues._nothing
    except AttributeError as error:
        print(error)
"""


def test_private_names_are_those_of_the_original(runner):
    runner.write("program.py", PRIVATE)
    assert runner.printed("program.py") == [
        "multiprocessing.context",
        "multiprocessing.pool",
        "multiprocessing.synchronize",
        "multiprocessing.reduction",
        "multiprocessing.spawn",
        "multiprocessing.spawn",
        "tenon.multiprocessing.queues tenon.multiprocessing.pool True set()",
        "module 'multiprocessing.queues' has no attribute '_nothing'",
    ]


def test_modules_that_are_kept_have_the_originals(runner):
    # An installed joblib comes before a folder of that name that is no package.
    for name in ("loky", "joblib", "joblib/externals", "joblib/externals/loky"):
        runner.write(f"{name}/__init__.py", "")
    for name in ("loky/inside.py", "joblib/externals/loky/inside.py", "lokyish.py", "kept/inside.py"):
        runner.write(name, "import multiprocessing.queues\nfrom multiprocessing.queues import Queue\n")
    runner.write(
        "program.py",
        """
        import joblib.externals.loky.inside, kept.inside, loky.inside, lokyish
        for module in (loky.inside, joblib.externals.loky.inside, lokyish, kept.inside):
            print(module.Queue.__module__)
        """,
    )
    original, ours = "multiprocessing.queues", "tenon.multiprocessing.queues"
    assert runner.printed("program.py") == [original, original, ours, ours]
    assert runner.printed("--keep", "nothing", "--keep", "kept", "program.py") == [original, original, ours, original]


def test_what_the_program_sets_is_what_it_finds(runner):
    runner.write(
        "program.py",
        """
        import multiprocessing
        from unittest import mock

        with mock.patch("multiprocessing.Process", "mine"):
            print(multiprocessing.Process)
        print(multiprocessing.Process.__module__)
        former, multiprocessing.Pool = multiprocessing.Pool, "mine"
        print(multiprocessing.Pool)
        multiprocessing.Pool = former
        print(multiprocessing.Pool.__self__.__module__)
        """,
    )
    ours = "tenon.multiprocessing."
    assert runner.printed("program.py") == ["mine", f"{ours}process", "mine", f"{ours}context"]


def test_a_program_sets_its_start_method_once(runner):
    runner.write(
        "program.py",
        """
        import multiprocessing
        print(multiprocessing.get_start_method(allow_none=True), multiprocessing.get_all_start_methods())
        multiprocessing.set_start_method("spawn")
        try:
            multiprocessing.set_start_method("fork")
        except RuntimeError as error:
            print(error, multiprocessing.get_start_method(), type(multiprocessing.get_context("fork")).__module__)
        """,
    )
    assert runner.printed("program.py") == [
        "None ['fork', 'spawn', 'forkserver']",
        "context has already been set spawn tenon.multiprocessing.context",
    ]


def test_shared_memory_outlives_a_child_that_used_it(runner):
    runner.write(
        "program.py",
        """
        import multiprocessing
        from multiprocessing.shared_memory import SharedMemory

        def write(queue):
            memory = SharedMemory(queue.get())
            memory.buf[0] = 9
            memory.close()

        if __name__ == "__main__":
            queue = multiprocessing.Queue()
            child = multiprocessing.get_context("fork").Process(target=write, args=(queue,))
            child.start()
            memory = SharedMemory(create=True, size=1)
            queue.put(memory.name)
            child.join()
            print(child.exitcode, memory.buf[0])
            memory.close()
            memory.unlink()
        """,
    )
    assert runner.printed("program.py") == ["0 9"]


# A killed reader of multiprocessing.Queue keeps the queue locked for ever.
KILLED = """
    import multiprocessing, os, signal, sys

    def die(queue, ready):
        ready.set()
        queue.get()

    if __name__ == "__main__":
        queue, ready = multiprocessing.Queue(), multiprocessing.Event()
        child = multiprocessing.Process(target=die, args=(queue, ready))
        child.start()
        ready.wait()
        while open(f"/proc/{child.pid}/stat").read().rsplit(")")[1].split()[0] != "S":
            pass
        os.kill(child.pid, signal.SIGKILL)
        child.join()
        queue.put("for the other")
        print(child.exitcode, queue.get(timeout=20))
"""


def test_a_program_goes_on_when_its_child_is_killed(runner):
    runner.write("program.py", KILLED)
    assert runner.printed("program.py") == ["-9 for the other"]


IMPORTED = """
    import multiprocessing, os, sys
    import preloaded

    with open("imports", "a") as file:
        print(os.getpid(), __name__, file=file)

    def tell(queue):
        queue.put((os.getpid(), preloaded.pid, preloaded.Queue.__self__.__module__))

    if __name__ == "__main__":
        multiprocessing.set_start_method("forkserver")
        multiprocessing.set_forkserver_preload(["__main__", "preloaded"])
        queue = multiprocessing.Queue()
        children = [multiprocessing.Process(target=tell, args=(queue,)) for _ in range(2)]
        for child in children:
            child.start()
        for pid, where, module in sorted(queue.get() for _ in children):
            print(pid in [child.pid for child in children], where not in (pid, os.getpid()), module)
        for child in children:
            child.join()
"""


def test_a_fork_server_imports_the_program_in_its_children_only(runner):
    runner.write("preloaded.py", "import os\nfrom multiprocessing import Queue\npid = os.getpid()\n")
    runner.write("program.py", IMPORTED)
    assert runner.printed("program.py") == ["True True tenon.multiprocessing.context"] * 2
    imports = (runner.folder / "imports").read_text().split("\n")[:-1]
    assert sorted(line.split()[1] for line in imports) == ["__main__", "__mp_main__", "__mp_main__"]
    assert len({line.split()[0] for line in imports}) == 3


EXECUTOR = """
    import multiprocessing, os, signal, sys
    from concurrent.futures import ProcessPoolExecutor
    from concurrent.futures.process import BrokenProcessPool

    def die(_):
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        multiprocessing.set_start_method(sys.argv[1])
        with ProcessPoolExecutor(2) as executor:
            print(list(executor.map(abs, range(-3, 0))), type(executor._call_queue).__mro__[1].__module__)
            try:
                executor.submit(abs, lambda: 1).result(20)
            except Exception as error:
                print("pickle" in str(error))
            print(executor.submit(abs, -7).result(20))
            try:
                executor.submit(die, None).result(20)
            except BrokenProcessPool:
                print("broken")
"""


@pytest.mark.parametrize("method", METHODS)
def test_an_executor_has_workers_whose_calls_go_through_tenon(runner, method):
    runner.write("program.py", EXECUTOR)
    expected = ["[3, 2, 1] tenon.multiprocessing.queues", "True", "7", "broken"]
    assert runner.printed("program.py", method) == expected


@pytest.mark.parametrize("bound", [0, 5])
def test_a_subclass_of_a_queue_learns_what_cannot_be_pickled(runner, bound):
    runner.write(
        "program.py",
        f"""
        import multiprocessing.queues

        class Told(multiprocessing.queues.Queue):
            def _on_queue_feeder_error(self, error, obj):
                print(obj, "pickle" in str(error))

        queue = Told({bound}, ctx=multiprocessing.get_context())
        queue.put([print])
        queue.put((lambda: 1).__code__)
        print(queue.get())
        """,
    )
    lines = runner.printed("program.py")
    assert lines[0].startswith("<code object <lambda>") and lines[0].endswith(" True")
    assert lines[1:] == ["[<built-in function print>]"]


# ---- as python runs a program

WHERE = """
    import os, sys
    print(sys.argv, __name__, __package__, __file__, __cached__, __spec__ and __spec__.name)
    print(type(__loader__).__name__, sys.modules["__main__"].__dict__ is globals(), sys.path[:2], __builtins__)
    print(sorted(globals()))
"""


@pytest.fixture
def programs(runner):
    """One program in all the forms that python takes."""
    runner.write("script.py", WHERE)
    runner.write("folder/__main__.py", WHERE)
    runner.write("package/__init__.py", "")
    runner.write("package/__main__.py", WHERE)
    runner.write("package/part.py", WHERE)
    (runner.folder / "link.py").symlink_to("folder/__main__.py")
    with zipfile.ZipFile(runner.folder / "program.zip", "w") as archive:
        archive.write(runner.folder / "script.py", "__main__.py")
    return runner


@pytest.mark.parametrize(
    "program",
    ["script.py", "./script.py", "link.py", "folder", "program.zip", "-m package", "-mpackage", "-m package.part", "-m script"],
)  # fmt: skip
def test_a_program_finds_itself_where_python_puts_it(programs, program):
    arguments = [*program.split(), "--report", "-m", "x y", "--", "-"]
    done, expected = programs.tenon(*arguments), programs.plain(*arguments)
    assert expected.returncode == 0 and "x y" in expected.stdout
    assert done.stdout == expected.stdout
    assert without_our_line(done.stderr) == expected.stderr == ""


def test_sys_path_has_no_folder_more_if_python_shall_not_add_one(programs):
    if sys.version_info < (3, 11):
        pytest.skip("python -P came with 3.11")
    for program in (["script.py"], ["folder"]):
        done, expected = (programs.plain("-P", *more, *program) for more in (["-m", "tenon"], []))
        assert done.stdout == expected.stdout != "", done.stderr


def test_a_program_may_come_from_standard_input(runner):
    program = "import sys; print(sys.argv, repr(sys.path[0]), __name__)\n1 / 0\n"
    done, expected = (run("-", "a", stdin=program) for run in (runner.tenon, runner.plain))
    assert done.stdout == expected.stdout == "['-', 'a'] '' __main__\n"
    assert done.returncode == expected.returncode == 1
    assert without_our_line(done.stderr) == expected.stderr


def test_code_of_the_command_line_is_a_program(runner):
    code = """if 1:
        import multiprocessing, sys
        print(sys.argv, repr(sys.path[0]), sorted(globals()), __name__, __spec__, __loader__)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.map(abs, [-3]))
        print(multiprocessing.Queue.__self__.__module__.partition(".")[0], file=sys.stderr)
        1 / 0"""
    expected, done = (run("-c", code, "a", "--keep") for run in (runner.plain, runner.tenon))
    assert done.stdout == expected.stdout and done.stdout.endswith("[3]\n")
    assert done.returncode == expected.returncode == 1
    assert without_our_line(done.stderr) == expected.stderr.replace("multiprocessing", "tenon")


ENDS = {
    "well": "",
    "with a number": "sys.exit(3)",
    "with a text": "sys.exit('not well')",
    "with an exception": "def f():\n    raise ValueError('not well')\nf()",
    "with two": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    None.nothing",
    "by a syntax error": "f(",
    "by an import": "import nothing.at_all",
    "interrupted": "raise KeyboardInterrupt",
    "killed": "import os; os.kill(os.getpid(), 9)",
    "at once": "import os; os._exit(4)",
}


@pytest.mark.parametrize("end", ENDS)
def test_a_program_ends_as_under_python(runner, end):
    runner.write("program.py", "import sys\n" + ENDS[end])
    for arguments in (["program.py"], ["-m", "program"]):
        done, expected = runner.tenon(*arguments), runner.plain(*arguments)
        assert done.returncode == expected.returncode
        if arguments[0] == "-m":  # python shows its own frames there
            assert expected.stderr.splitlines()[-1:] == without_our_line(done.stderr).splitlines()[-1:]
        else:
            assert without_our_line(done.stderr) == expected.stderr


@pytest.mark.parametrize(
    "arguments", [["no.py"], ["-m", "no_such"], ["-m", "no_such.part"], ["-m", "half"], ["-m", "sys"], ["empty"]]
)
def test_a_program_that_is_not_there_is_named(runner, arguments):
    runner.write("half/__init__.py", "")
    (runner.folder / "empty").mkdir()
    done, expected = runner.tenon(*arguments), runner.plain(*arguments)
    assert done.returncode == expected.returncode
    words = without_our_line(done.stderr)
    assert words.startswith("tenon: ") and words.count("\n") == 1 and arguments[-1] in words


def test_a_module_of_a_package_that_fails_shows_why(runner):
    runner.write("package/__init__.py", "import not_there")
    runner.write("package/part.py", "")
    done = runner.tenon("-m", "package.part")
    assert done.returncode == 1 and "No module named 'not_there'" in done.stderr


def test_a_function_of_the_program_is_found_by_its_children(runner):
    runner.write(
        "package/part.py",
        """
        import multiprocessing
        def double(number):
            return 2 * number
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    assert runner.printed("-m", "package.part") == ["[2, 4]"]


# ---- options


def test_without_a_program_the_usage_is_shown(runner):
    for arguments in ([], ["-m"], ["-c"], ["--report"]):
        done = runner.tenon(*arguments)
        assert done.returncode == 2 and done.stderr.startswith("usage: python -m tenon"), done.stderr
    done = runner.tenon("--help")
    assert done.returncode == 0 and "--strategy" in done.stdout and done.stderr == ""


def test_an_unknown_strategy_is_refused_with_the_names_that_there_are(runner):
    runner.write("program.py", "print('runs')")
    done = runner.tenon("--strategy", "pigeons", "program.py")
    assert done.returncode == 2 and done.stdout == ""
    for name in ("pigeons", "arena", "file_descriptor", "file_system"):
        assert f"'{name}'" in done.stderr


STRATEGY = """
    import multiprocessing, sys

    def tell(queue):
        from tenon import _core
        queue.put(_core.get_strategy())

    if __name__ == "__main__":
        queue = multiprocessing.Queue()
        for method in ("fork", "spawn", "forkserver"):
            child = multiprocessing.get_context(method).Process(target=tell, args=(queue,))
            child.start()
            print(queue.get())
            child.join()
"""


def test_a_strategy_is_that_of_the_program_and_its_children(runner):
    runner.write("program.py", STRATEGY)
    done = runner.tenon("--strategy", "file_system", "program.py")
    assert done.stdout.split() == ["file_system"] * 3
    assert done.stderr == LINE.format("file_system")
    assert runner.tenon("--strategy=file_descriptor", "program.py").stdout.split() == ["file_descriptor"] * 3


# Each child sends 8000 bytes, which are copied, and 1000 bytes that the parent had sent it. The parent sends each child
# 1000 bytes; a forked child inherits them, and copies them to send them.
REPORT = """
    import multiprocessing, os, signal, sys
    import numpy as np

    def send(queue, go, array):
        queue.put((np.ones(1000), {"given": array}, b"bytes" * 1000))
        go.wait()
        os.kill(os.getpid(), signal.SIGKILL)

    if __name__ == "__main__":
        context = multiprocessing.get_context(sys.argv[1])
        queue, go = context.Queue(), context.Event()
        children = [context.Process(target=send, args=(queue, go, np.ones(1000, "uint8"))) for _ in range(3)]
        for child in children:
            child.start()
        for child in children:
            assert queue.get()[0].sum() == 1000
        go.set()
"""


def report_of(stderr):
    """The rows of a report: (count, bytes as they are shown)."""
    lines = stderr.splitlines()[-3:]
    assert [re.split(r"  +", line.strip())[0] for line in lines] == [
        "sent without a copy",
        "copied once and sent",
        "not pickled, by both",
    ]
    return [tuple(re.split(r"  +", line.strip())[1:]) for line in lines]


@pytest.mark.parametrize("method", METHODS)
def test_a_report_counts_what_children_sent_before_they_were_killed(runner, method):
    pytest.importorskip("numpy")
    runner.write("program.py", REPORT)
    done = runner.tenon("--report", "program.py", method)
    assert done.returncode == 0, done.stderr
    expected = [("0", "0 bytes"), ("6", "27.0 kB"), ("6", "27.0 kB")]
    if method != "fork":
        expected = [("3", "3.0 kB"), ("6", "27.0 kB"), ("9", "30.0 kB")]
    assert report_of(done.stderr) == expected


def test_a_report_is_made_however_the_program_ends(runner):
    runner.write("program.py", "raise SystemExit(5)")
    done = runner.tenon("--report", "program.py")
    assert done.returncode == 5 and report_of(done.stderr) == [("0", "0 bytes")] * 3
    runner.write("program.py", "1 / 0")
    done = runner.tenon("--report", "program.py")
    assert done.returncode == 1 and report_of(done.stderr) == [("0", "0 bytes")] * 3
    assert done.stderr.count("tenon: ") == 2 and "ZeroDivisionError" in done.stderr


def test_the_commands_of_the_guide_do_what_the_page_shows(runner):
    pytest.importorskip("numpy")
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    program = (docs / "examples" / "guide_unmodified.py").read_text()
    for name in ("frames.py", "package/frames.py"):
        runner.write(name, program)
    script = f'python() {{ "{sys.executable}" "$@"; }}\n. "{docs}/examples/guide_unmodified.sh"'
    done = subprocess.run(
        ["bash", "-c", script], cwd=runner.folder, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
    )
    assert done.stdout == "55\n" * 4
    line, _, rest = done.stderr.partition("\n")
    report, _, others = rest.partition(line)
    assert report.count("\n") == 4 and f"```\n{report}```" in (docs / "guide" / "python-unmodified.md").read_text()
    assert line + others == LINE.format("arena") + LINE.format("file_descriptor") + LINE.format("arena")


# ---- PyTorch

TORCH = """
    import sys
    import torch
    import torch.multiprocessing as mp
    from torch import nn
    from torch.multiprocessing.reductions import reduce_tensor
    from torch.utils.data import DataLoader, TensorDataset

    def train(rank, model, queue, ready):
        with torch.no_grad():
            model.weight[0, rank] = rank + 1
        queue.put(torch.full((1000,), float(rank)))
        ready.wait()

    if __name__ == "__main__":
        model = nn.Linear(2, 1)
        model.share_memory()
        queue, ready = mp.get_context("spawn").Queue(), mp.get_context("spawn").Event()
        started = mp.spawn(train, args=(model, queue, ready), nprocs=2, join=False)
        got = sorted(queue.get()[0].item() for _ in range(2))
        ready.set()
        started.join()
        print(got, model.weight.tolist(), type(started).__module__)
        ready = mp.Event()
        child = mp.Process(target=train, args=(0, model, queue, ready))
        child.start()
        tensor = queue.get()
        shared = torch.zeros(3)
        queue.put(shared)
        queue.get()[1] = 5  # the same memory
        ready.set()
        child.join()
        print(shared.tolist(), type(queue).__module__, reduce_tensor.__module__)
        loader = DataLoader(TensorDataset(torch.arange(256.0)), batch_size=32, num_workers=2)
        batches = iter(loader)
        print(type(batches._index_queues[0]).__module__, sum(batch.sum().item() for (batch,) in batches))
        print(mp.get_sharing_strategy(), mp.Process.__module__, mp.SimpleQueue.__self__.__module__)
"""


def test_pytorchs_tensors_travel_in_tenons_memory(runner):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    runner.write("program.py", TORCH)
    mp = "tenon.multiprocessing"
    done = runner.tenon("--report", "--strategy", "file_descriptor", "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        f"[0.0, 1.0] [[1.0, 2.0]] {mp}.spawn",
        f"[0.0, 5.0, 0.0] {mp}.queues torch.multiprocessing.reductions",
        f"{mp}.queues 32640.0",
        f"file_descriptor {mp}.process {mp}.context",
    ]
    # Copied: three tensors of 1000 floats, and one of 3. Sent as they are: the weight and the bias for two children,
    # and eight batches.
    assert report_of(done.stderr) == [("12", "1.0 kB"), ("4", "12.0 kB"), ("16", "13.1 kB")]


def test_workers_of_a_killed_program_end(runner):
    runner.write(
        "program.py",
        """
        import multiprocessing, os, signal, sys
        def wait(pipe):
            pipe.send(os.getpid())
            signal.pause()
        if __name__ == "__main__":
            reader, writer = multiprocessing.Pipe()
            multiprocessing.get_context("spawn").Process(target=wait, args=(writer,)).start()
            reader.recv()
            os.kill(os.getpid(), signal.SIGKILL)
        """,
    )
    assert runner.tenon("program.py").returncode == -signal.SIGKILL  # it waits until the child has closed its output
