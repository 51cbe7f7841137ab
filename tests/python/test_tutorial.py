# SPDX-License-Identifier: Apache-2.0
"""The programs of the tutorial, in C, C++ and Python, and the solutions of its exercises: run, mixed, and killed."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

TUTORIAL = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial"
BUILD = pathlib.Path(os.environ["TENON_LIBRARY"]).parents[1]
COMPILED = BUILD / "docs" / "tutorial"
WAIT_S = 60
BOTH = pytest.mark.parametrize("language", ["c", "cpp", "python"])
MIXED = pytest.mark.parametrize("languages", [("c", "c"), ("python", "python"), ("c", "python"), ("python", "c"), ("cpp", "c"), ("python", "cpp")],
                                ids="-".join)


class Desk:
    """A folder and a runtime folder of a test's own, in which it starts programs."""

    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="tenon-tutorial-"))
        self.started = []
        self.environment = dict(os.environ, TENON_RUNTIME_DIR=str(self.folder / "run"))
        self.environment["TENON_TENOND"] = str(BUILD / "tools" / "tenond" / "tenond")
        path = [str(TUTORIAL / "python"), os.environ.get("PYTHONPATH", "")]
        self.environment["PYTHONPATH"] = os.pathsep.join(path)

    def start(self, language, name, *arguments):
        compiled = COMPILED / (f"tutorial_{name}" if language == "c" else f"tutorial_{language}_{name}")
        source = next(iter(TUTORIAL.rglob(f"python/{name}.py")), None)
        if language != "python" and not compiled.exists():
            pytest.skip(f"the examples in {language} were not compiled")
        command = [str(compiled)] if language != "python" else [sys.executable, str(source)]
        program = subprocess.Popen([*command, *map(str, arguments)], cwd=self.folder, env=self.environment,
                                   stdout=subprocess.PIPE, text=True)
        self.started.append(program)
        return program

    def output(self, language, name, *arguments):
        return finish(self.start(language, name, *arguments))

    def count(self, queue):
        """How many messages the queue of the domain `line` has; 0 if there is no such queue."""
        tool = BUILD / "tools" / "tenon" / "tenon"
        if not tool.exists():
            pytest.skip("the tool was not compiled")
        shown = subprocess.run([tool, "stat", "--json", "line"], env=self.environment, capture_output=True, text=True, check=False)
        objects = json.loads(shown.stdout)["objects"] if shown.returncode == 0 else []
        return sum(object["count"] for object in objects if object["name"] == queue)

    def clear(self):
        for program in self.started:
            program.kill()
            program.wait()
            program.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.clear()


def finish(program):
    output, _ = program.communicate(timeout=WAIT_S)
    assert program.returncode == 0
    return output


def line(program):
    return program.stdout.readline().strip()


def number_in(text):
    return int(re.search(r"\d+", text.split("process")[1])[0])


@BOTH
def test_a_frame_is_drawn_and_read(desk, language):
    assert desk.output(language, "step1") == "frame 3 shows a 1\n"


@BOTH
def test_a_second_process_reads_and_writes_the_same_memory(desk, language):
    wanted = "the child sees a 1\nthe parent reads the child's pixel: 255\n"
    assert desk.output(language, "step2") == wanted


@BOTH
def test_a_pool_reads_every_frame(desk, language):
    assert desk.output(language, "step3") == "100 of 100 frames were read right\n"


@BOTH
def test_no_frame_is_lost_when_a_worker_is_killed(desk, language):
    program = desk.start(language, "step4", 100)
    pids = [number_in(line(program)) for _ in range(3)]
    os.kill(pids[1], signal.SIGKILL)
    assert "100 of 100 frames were read right" in finish(program)


@BOTH
def test_a_full_queue_drops_frames_and_ends_in_order(desk, language):
    read, dropped = map(int, re.findall(r"\d+", desk.output(language, "step6")))
    assert read + dropped == 60 and read >= 4


@MIXED
def test_unrelated_programs_meet_and_one_is_killed(desk, languages):
    workers = [desk.start(language, "worker") for language in languages]
    pids = [number_in(line(worker)) for worker in workers]
    camera = desk.start(languages[0], "camera", 300)
    for worker in workers:
        os.kill(worker.pid, signal.SIGSTOP)
    os.kill(pids[0], signal.SIGKILL)
    os.kill(pids[1], signal.SIGCONT)
    assert finish(camera) == "300 of 300 frames were read right\n"
    assert finish(workers[1]).startswith(f"process {pids[1]} read ")


@MIXED
def test_the_cutter_sends_views_of_the_digits(desk, languages):
    worker = desk.start(languages[0], "worker", "crops")
    line(worker)
    cutter = desk.start(languages[1], "cutter")
    assert desk.output(languages[0], "camera", 100) == "100 of 100 frames were read right\n"
    finish(worker)
    finish(cutter)


@BOTH
def test_a_worker_that_comes_after_the_cut_gets_all_crops(desk, language):
    cutter = desk.start(language, "cutter")
    camera = desk.start(language, "camera", 10)
    while desk.count("crops") < 10:  # each count runs the command, so this loop needs no pause
        pass
    worker = desk.start(language, "worker", "crops")
    assert finish(camera) == "10 of 10 frames were read right\n"
    finish(worker)
    finish(cutter)


@BOTH
def test_the_cutter_ends_the_crops_when_the_camera_was_killed(desk, language):
    worker = desk.start(language, "worker", "crops")
    line(worker)
    cutter = desk.start(language, "cutter")
    camera = desk.start(language, "camera", 100000)
    while desk.count("readings") == 0 and desk.count("crops") == 0:
        pass
    camera.kill()
    finish(cutter)
    finish(worker)


@BOTH
def test_the_keeper_starts_workers_again_and_gives_a_frame_up(desk, language):
    keeper = desk.start(language, "keeper", 17)
    assert desk.output(language, "camera", 100) == "99 of 100 frames were read right\n"
    assert finish(keeper) == "2 workers were started again\n"


@MIXED
def test_the_board_is_mended_after_a_death_with_the_lock(desk, languages):
    keeper = desk.start(languages[0], "board", "keep")
    assert line(keeper) == "the board is there"
    adders = [desk.start(languages[1], "board", "add", digit, 50) for digit in (3, 3, 7)]
    for adder in adders:
        finish(adder)
    broken = desk.start(languages[1], "board", "break", 3)
    assert broken.wait(timeout=WAIT_S) == -signal.SIGKILL
    mended = f"process {broken.pid} died with the lock: the total is mended\n"
    assert desk.output(languages[0], "board", "add", 7, 1) == mended
    desk.output(languages[1], "board", "stop")
    assert finish(keeper) == "0 0 0 100 0 0 0 51 0 0 total 151\n"


NEEDS = {
    "guide_torch": "torch",
    "guide_weights": "torch",
    "guide_transformers": "transformers",
    "guide_scheduling": "dask.array",
}
GUIDES = ["guide_python", "guide_channel", "guide_store", *NEEDS]


@pytest.mark.parametrize("name", GUIDES)
def test_the_python_program_of_the_guides_runs(desk, name):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    program = TUTORIAL.parent / "examples" / f"{name}.py"
    done = subprocess.run([sys.executable, str(program)], cwd=desk.folder, env=desk.environment, timeout=WAIT_S, check=False)
    assert done.returncode == 0


def test_the_second_terminal_shows_the_columns_that_the_tool_prints():
    if not (COMPILED / "tutorial_step4").exists() or not (BUILD / "tools" / "tenon" / "tenon").exists():
        pytest.skip("the examples or the tool were not compiled")
    command = [sys.executable, str(TUTORIAL.parents[1] / "dev" / "docs-terminal.py"), str(BUILD)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    assert done.stdout + done.stderr == "" and done.returncode == 0
