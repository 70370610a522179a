#!/usr/bin/env python3
"""Runs the GoogleTest programs of a build folder and counts their cases.

    tools/run_tests.py BUILD_FOLDER [--jobs N] [--timeout SECONDS] [PROGRAM ...]      programs without 'test_'; default: all

One line a program, the output of every failing case, and as the last line 'N passed, N failed'. A crash, a timeout and a
skipped or disabled case are failures; only a case that prints 'SKIPPED: ' and what this machine lacks is named so and counts
as neither. Exit status 0 only if cases ran and none failed.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import time

# Programs that start processes with deadlines, or measure memory, have the machine to themselves.
ALONE = {"comm", "apps", "train", "engine"}
print_lock = threading.Lock()


def say(text):
    with print_lock:
        print(text, flush=True)


def outcome(report):
    """(passed, failed names) of a GoogleTest report."""
    passed, failed = 0, []
    for suite in report["testsuites"]:
        for case in suite["testsuite"]:
            name = f"{suite['name']}.{case['name']}"
            if case.get("failures") or case.get("result") == "SKIPPED" or case["status"] == "NOTRUN":
                failed.append(name)
            else:
                passed += 1
    return passed, failed


def output_of(name, output):
    """The part of a program's output that belongs to one case."""
    match = re.search(rf"\[ RUN      \] {re.escape(name)}\n(.*?\[  (?:FAILED|SKIPPED) \s*\] {re.escape(name)}[^\n]*\n)", output, re.S)
    return match.group(0) if match else ""


def run(program, timeout, root):
    name = program.name.removeprefix("test_")
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        start = time.monotonic()
        # Threads that wait by spinning starve the others where programs share cores.
        environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        process = subprocess.Popen([str(program), f"--gtest_output=json:{report}", "--gtest_color=no"], cwd=root, env=environment, text=True, errors="replace",
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=timeout)
            end = f"ended with status {process.returncode}" if process.returncode > 0 else f"was ended by signal {-process.returncode}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            output, _ = process.communicate()
            end = f"did not end within {timeout} s"
        seconds = time.monotonic() - start
        try:
            passed, failed = outcome(json.loads(report.read_text()))
            reported = True
        except (OSError, ValueError, KeyError):
            passed, failed, reported = len(re.findall(r"^\[       OK \]", output, re.M)), re.findall(r"^\[  FAILED  \] (\S+) \(\d+ ms\)", output, re.M), False
    # Of the cases that did not run, those that say what the machine lacks.
    lacks = {case: re.search(r"^SKIPPED: (.+)$", output_of(case, output), re.M) for case in failed}
    failed = [case for case in failed if not lacks[case]]
    if not reported or (process.returncode != 0 and not failed):  # sanitizers report after the last case
        running = re.findall(r"\[ RUN      \] (\S+)", output)
        last = f" in {running[-1]}" if running else ""
        failed.append(f"{name}: the program {end}{last}")
    elif not passed and not failed and not any(lacks.values()):
        failed.append(f"{name}: the program ran no case")
    lines = [f"{name:<12} {passed:5} passed {len(failed):4} failed {seconds:8.1f} s"]
    lines += [f"SKIPPED: {case}: {reason.group(1)}" for case, reason in lacks.items() if reason]
    for case in failed:
        lines.append(f"--- failed: {case}")
        lines.append(output_of(case, output) if ": the program" not in case else "\n".join(output.splitlines()[-80:]))
    say("\n".join(lines))
    return passed, len(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("programs", nargs="*")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one program")
    options = parser.parse_intermixed_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    found = {p.name.removeprefix("test_"): p.resolve() for p in sorted((options.build / "tests").glob("test_*")) if p.is_file() and os.access(p, os.X_OK)}
    wanted = options.programs or list(found)
    passed = failed = 0
    for name in [name for name in wanted if name not in found]:
        say(f"--- failed: there is no program test_{name} in {options.build}/tests")
        failed += 1
    together = [name for name in wanted if name in found and name not in ALONE]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: run(found[name], options.timeout, root), together))
    results += [run(found[name], options.timeout, root) for name in wanted if name in found and name in ALONE]
    passed += sum(result[0] for result in results)
    failed += sum(result[1] for result in results)
    say(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not passed else 0)


main()
