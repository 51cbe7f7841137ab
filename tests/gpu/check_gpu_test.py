#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rehearse dev/check-gpu with the fake driver: check_gpu_test.py CHECK_GPU BUILD. Prints TAP."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

CHECK, BUILD = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
FACTS = BUILD / "tests" / "gpu" / "facts"
WHOLE = {f"F{n}" for n in range(1, 13)} | {f"N{n}" for n in (1, 2, 3, 4, 7, 8, 9)}
# Calls that the fake driver lacks, and what a machine may refuse.
EXPECTED = re.compile(r"not answered: (?:the driver lacks cu(?:Module|Mem|Ctx)\w+\(\)|unshare: |a /dev/shm of its own: )")


def check(*arguments):
    """Run dev/check-gpu. Return its exit status and what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "TENON_CUDA_LIBRARY"}
    run = subprocess.run([CHECK, *arguments], text=True, capture_output=True, env=environment, check=False)
    return run.returncode, run.stdout + run.stderr


def numbers(program):
    output = subprocess.run([FACTS / program, "list"], text=True, capture_output=True, check=True).stdout
    return [line.split("\t")[0] for line in output.splitlines()]


def rows_of(report):
    """The rows of the report's tables, by their first cell."""
    rows = {}
    for line in report.splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows.setdefault(cells[0], []).append(cells)
    return rows


def a_rehearsal_answers_every_fact_and_figure(folder):
    report = folder / "report.md"
    status, output = check("--rehearse", report, "--build", BUILD)
    text = report.read_text(encoding="utf-8")
    assert status == 0, output
    assert "fake driver" in text.splitlines()[0], text.splitlines()[0]
    rows = rows_of(text)
    asked = numbers("gpu_facts") + numbers("gpu_bench")
    assert {re.match(r"[FN]\d+|", number)[0] for number in asked} >= WHOLE, asked
    for number in asked:
        assert rows.get(number), f"no row of {number}"
    for number, found in rows.items():
        for cells in found:
            for why in re.findall(r"\*\*(.*?)\*\*", " ".join(cells)):
                assert EXPECTED.match(why), f"{number}: {why}"
    for number in ("N1", "N3", "N9.1"):
        _, what, _, median, p99, count, unit = rows[number][0]
        assert what and float(median) > 0 and float(p99) >= float(median) and int(count) > 0 and unit, rows[number]
    for name in ("gpu_import_bandwidth", "gpu_share"):
        assert re.search(rf"^- `{name}`, .*\d", text, re.M), f"no figure {name}"


def a_question_that_hangs_or_dies_is_a_line_of_the_report(folder):
    report = folder / "faulty.md"
    check("--rehearse", report, "--build", BUILD, "--only", "X1,X2,X3,F1.1", "--limit", "3")
    rows = rows_of(report.read_text(encoding="utf-8"))
    assert "it hung" in rows["X1"][0][2] and "it hangs" in rows["X1"][0][2], rows
    assert "SIGKILL" in rows["X2"][0][2], rows
    assert "it said nothing" in rows["X3"][0][2], rows
    assert rows["F1.1"][0][4] == "yes", rows


def without_a_driver_no_report_is_written(folder):
    report = folder / "none.md"
    build = folder / "build" / "tests" / "gpu" / "facts"
    build.mkdir(parents=True)
    (build / "gpu_facts").symlink_to(FACTS / "gpu_facts")
    status, output = check("--rehearse", report, "--build", folder / "build")
    assert status != 0 and not report.exists(), output
    assert "there is no CUDA driver" in output and "no report was written" in output, output
    assert len(output.strip().splitlines()) == 1, output


def a_driver_without_devices_is_named(folder):
    report = folder / "no_device.md"
    os.environ["TENON_FAKECUDA_VISIBLE"] = "7"
    status, output = check("--rehearse", report, "--build", BUILD)
    del os.environ["TENON_FAKECUDA_VISIBLE"]
    assert status != 0 and not report.exists(), output
    assert "there is no CUDA device" in output, output


def every_program_of_the_tests_is_in_the_suite(_):
    suite = re.search(r"^SUITE = \[(.*?)\]", CHECK.read_text(encoding="utf-8"), re.M | re.S)[1]
    programs = {path.stem for path in pathlib.Path(__file__).parent.glob("*_test.c")}
    assert programs and programs == set(re.findall(r"\w+", suite)), programs


def a_rehearsal_never_writes_the_report_of_a_gpu(_):
    status, output = check("--rehearse", CHECK.parent.parent / "docs" / "gpu-report.md", "--build", BUILD)
    assert status != 0 and "never writes docs/gpu-report.md" in output, output


def main():
    tests = [
        a_rehearsal_answers_every_fact_and_figure,
        a_question_that_hangs_or_dies_is_a_line_of_the_report,
        without_a_driver_no_report_is_written,
        a_driver_without_devices_is_named,
        every_program_of_the_tests_is_in_the_suite,
        a_rehearsal_never_writes_the_report_of_a_gpu,
    ]
    print(f"1..{len(tests)}")
    failures = 0
    for number, test in enumerate(tests, 1):
        with tempfile.TemporaryDirectory() as folder:
            try:
                test(pathlib.Path(folder))
                verdict = "ok"
            except (AssertionError, OSError, ValueError, subprocess.SubprocessError) as error:
                verdict, failures = "not ok", failures + 1
                print("\n".join(f"# {line}" for line in str(error).splitlines()))
        print(f"{verdict} {number} - {test.__name__}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
