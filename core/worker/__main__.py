"""The engine's process: ``python -m core.worker [--loader module:function] [--engine module:function]``.

Reads commands from stdin and writes reports to stdout, one JSON object a line (protocol.py). Whatever else is printed,
by libraries too, goes to stderr. Exits at end of input, so that a killed app leaves no process on the device.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from typing import BinaryIO

from core.errors import BadInput
from core.waiting import wait_politely
from core.worker.protocol import InvalidCommand, Message, Shutdown, decode_command, encode
from core.worker.turns import ENGINE, LOADER, Turns

EXIT_GRACE_S = 2.0
"""Seconds between end of input and a forced exit: time for the round in progress to end and its run to be closed."""


class Worker:
    """Reads commands in one thread and decodes in the caller's, so that a cancel is read while a round computes."""

    def __init__(self, commands: BinaryIO, reports: BinaryIO, loader: str, engine: str) -> None:
        self._commands = commands
        self._reports = reports
        self._writing = threading.Lock()
        self._turns = Turns(loader, engine, self._report)

    def serve(self) -> None:
        """Work until shutdown or end of input."""
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        self._turns.serve()

    def _read(self) -> None:
        for line in self._commands:
            try:
                command = decode_command(line)
            except BadInput as error:
                self._report(InvalidCommand(message=str(error)))
                continue
            self._turns.send(command)
            if isinstance(command, Shutdown):
                break
        else:
            self._turns.send(Shutdown())
        # A forward pass or a load may take long, and nobody reads its result any more.
        threading.Event().wait(EXIT_GRACE_S)
        os._exit(0)

    def _report(self, message: Message) -> None:
        line = encode(message)
        try:
            with self._writing:
                self._reports.write(line)
                self._reports.flush()
        except BrokenPipeError:
            os._exit(0)  # the app is gone


def claim_standard_streams() -> tuple[BinaryIO, BinaryIO]:
    """Reserve stdin and stdout for the protocol. Afterwards descriptor 0 is empty and 1 is stderr, in C code too."""
    commands = os.fdopen(os.dup(0), "rb")
    reports = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdout.flush()
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return commands, reports


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve standard input; does not return."""
    wait_politely()
    parser = argparse.ArgumentParser(
        prog="python -m core.worker",
        description="The engine's process; see core/worker/protocol.py.",
    )
    parser.add_argument(
        "--loader",
        default=LOADER,
        help="module:function that loads a pair (default: %(default)s)",
    )
    parser.add_argument(
        "--engine",
        default=ENGINE,
        help="module:function that decodes (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    commands, reports = claim_standard_streams()
    # Ctrl-C in the terminal reaches the whole process group: the app decides, and if it exits, input ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    code = 1
    try:
        Worker(commands, reports, options.loader, options.engine).serve()
        code = 0
    except Exception:
        logging.getLogger("speclens.engine").exception("the worker broke")
    finally:
        sys.stderr.flush()
        # Interpreter shutdown can hang with device libraries loaded, and nothing is left to save.
        os._exit(code)


if __name__ == "__main__":
    main()
