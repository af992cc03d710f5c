"""Child processes whose lives are tied to that of their parent."""

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import NoReturn

_WORKER = "PNS_EXPERIMENTS_WORKER"
# XLA reads the first, the linear algebra of NumPy and SciPy the others.
_THREADS = ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_child(command: Sequence[str]) -> str:
    """Runs a program that calls `end_with_parent`; returns what it printed.

    The program's standard input is a pipe that nothing is written to. It closes when this
    process ends, however it ends.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # a pipe, as asked for
        printed = process.stdout.read()
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return printed


def end_with_parent() -> None:
    """Ends this process as soon as its standard input is closed."""

    def wait() -> None:
        # Not sys.stdin, whose lock this thread would hold while the program ends.
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def is_worker() -> bool:
    """Whether this process was started by `ask_workers`."""
    return _WORKER in os.environ


def ask_workers(
    questions: Sequence[str], num_workers: int
) -> Iterator[tuple[int, str | None]]:
    """Hands lines of text to processes that run this very program again.

    Each has its share of the cores: its threads stay on them (Linux), and libraries are
    told how many there are before they start. A worker takes the next question when it is
    done with one; one that dies is replaced. All end with this process, however it ends.

    Args:
      questions: one line each.
      num_workers: how many processes.

    Yields:
      Number of the question and its answer, as they come; None if the worker died.
    """
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in range(len(questions)):
        waiting.put(number)
    answers: queue.SimpleQueue[tuple[int, str | None]] = queue.SimpleQueue()
    processes: set[subprocess.Popen] = set()
    ending = threading.Event()

    def keep_asking(cores: list[int]) -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, cores)  # of this thread; what it starts inherits it
        process = None
        while not ending.is_set():
            try:
                number = waiting.get_nowait()
            except queue.Empty:
                break
            if process is None:
                process = _start_worker(len(cores))
                processes.add(process)
            answer = _ask(process, questions[number])
            if answer is None:
                _end(process)
                process = None
            answers.put((number, answer))

    threads = [
        threading.Thread(target=keep_asking, args=(cores,), daemon=True)
        for cores in share_cores(num_workers)
    ]
    try:
        for thread in threads:
            thread.start()
        for _ in questions:
            yield answers.get()
    finally:
        ending.set()
        for process in list(processes):
            _end(process)


def serve(answer: Callable[[str], str]) -> NoReturn:
    """Answers lines of standard input, as a worker, until it is closed.

    What is printed meanwhile goes to standard error. The process ends as soon as its input
    is closed, also in the middle of an answer: then nobody waits for it.
    """
    del os.environ[_WORKER]  # what a worker starts is none
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        with os.fdopen(os.dup(0)) as lines:
            for line in lines:
                questions.put(line.rstrip("\n"))
        os._exit(0)

    threading.Thread(target=listen, daemon=True).start()
    while True:
        replies.write(answer(questions.get()) + "\n")
        replies.flush()


def share_cores(num_workers: int) -> list[list[int]]:
    """Deals the cores of this process to workers; with too few, some share one."""
    if hasattr(os, "sched_getaffinity"):  # those this process may use
        cores = sorted(os.sched_getaffinity(0))
    else:
        cores = list(range(os.cpu_count() or 1))
    return [
        cores[worker::num_workers] or [cores[worker % len(cores)]]
        for worker in range(num_workers)
    ]


def _start_worker(num_threads: int) -> subprocess.Popen:
    """Runs this program again, with its arguments, as a worker."""
    limits = dict.fromkeys(_THREADS, str(num_threads))
    return subprocess.Popen(
        [sys.executable, *sys.orig_argv[1:]],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **limits, _WORKER: "1"},
    )


def _ask(process: subprocess.Popen, question: str) -> str | None:
    assert process.stdin is not None and process.stdout is not None  # as asked for
    try:
        process.stdin.write(question + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
    except OSError:
        return None
    return answer.rstrip("\n") if answer.endswith("\n") else None


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.wait()
