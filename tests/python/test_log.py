# SPDX-License-Identifier: Apache-2.0
"""Events of the library: to logging.getLogger("tenon"), or where TENON_LOG says."""

import os
import re
import subprocess
import sys

PROGRAM = """
import os, sys
import tenon
{before}
domain = tenon._core.Domain.create()
try:
    domain.empty((1 << 45,), "uint8")
except (tenon.NoMemory, tenon.Invalid):
    pass
child = os.fork()
if child == 0:
    os.kill(os.getpid(), 9)
os.waitpid(child, 0)
domain.reap()
{after}
domain.close()
"""


def run(before="", after="", **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before, after=after)],
        env={**{k: v for k, v in os.environ.items() if k != "TENON_LOG"}, **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    return done.stderr.splitlines()


CONFIGURED = 'import logging; logging.basicConfig(level="INFO", format="%(name)s|%(levelname)s|%(message)s")'


def test_nothing_is_printed_unless_it_is_asked_for():
    assert run() == []
    assert run(before="import logging") == []
    assert run(before='import logging; logging.getLogger("tenon").setLevel("DEBUG")') == []


def test_the_logger_tenon_receives_events_with_their_levels():
    lines = run(before=CONFIGURED)
    assert {line.split("|")[0] for line in lines} == {"tenon"}
    assert any(re.match(r"tenon\|INFO\|made domain [0-9a-f]{32} in seat 0$", line) for line in lines)
    assert any(re.match(r"tenon\|INFO\|leaving domain [0-9a-f]{32}, seat 0$", line) for line in lines)


def test_the_logger_gets_events_of_other_threads_once_after_a_fork():
    before = CONFIGURED + """
import threading
thread = threading.Thread(target=lambda: tenon._core.Domain.create().close())
thread.start()
thread.join()
child = os.fork()
if child == 0:
    tenon._core.Domain.create().close()
    sys.exit(0)
os.waitpid(child, 0)
"""
    lines = run(before=before)
    assert len([line for line in lines if "|made domain" in line]) == 3
    assert len([line for line in lines if "leaving" in line]) == 3


def test_a_handler_that_fails_does_not_disturb_the_program():
    before = CONFIGURED + """
class Broken(logging.Handler):
    def emit(self, record):
        raise KeyError("broken")
logging.getLogger("tenon").addHandler(Broken())
"""
    assert any("KeyError" in line for line in run(before=before))


def test_tenon_log_takes_the_place_of_logging(tmp_path):
    assert run(before=CONFIGURED, TENON_LOG=f"info:{tmp_path}/log") == []
    lines = (tmp_path / "log").read_text(encoding="utf-8").splitlines()
    assert any(re.search(r"\] info: made domain [0-9a-f]{32} in seat \d+$", line) for line in lines)


def test_a_fork_and_errors_are_logged_with_their_process(tmp_path):
    child = """
pid = os.fork()
if pid == 0:
    try:
        domain.empty((1 << 61,), "uint8")
    except tenon.Error:
        pass
    os._exit(0)
os.waitpid(pid, 0)
print(pid, os.getpid(), file=sys.stderr)
"""
    pids = run(after=child, TENON_LOG=f"debug:{tmp_path}/log")[-1].split()
    text = (tmp_path / "log").read_text(encoding="utf-8")
    for pid in pids:
        assert re.search(rf"\[{pid}\] debug: TN_ERR_\w+: ", text)


def test_pipes_are_above_closed_standard_streams():
    program = """
import os
from tenon.multiprocessing import _pipe
keep = os.fdopen(os.dup(1), "w")
for stream in range(3):
    os.close(stream)
ends = _pipe.make()
os.write(ends[1], b"x")
print(min(ends) > 2 and os.read(ends[0], 1) == b"x", file=keep)
keep.flush()
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", program], text=True, capture_output=True, timeout=60, check=True)
    assert done.stdout == "True\n"


def test_a_shortage_of_memory_is_a_warning_once_a_second():
    shortage = """
small = tenon._core.Domain.create(quota_bytes=1 << 20)
for _ in range(5):
    try:
        small.empty((1 << 22,), "uint8")
    except tenon.NoMemory:
        pass
small.close()
"""
    lines = [line for line in run(before=CONFIGURED + shortage) if "WARNING" in line]
    assert len(lines) == 1
    assert lines[0].startswith("tenon|WARNING|out of memory: ")
