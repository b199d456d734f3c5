"""The engine's process: ``python -m core.worker [--loader module:function] [--engine module:function]``.

Reads commands from stdin and writes reports to stdout, one JSON object a line (protocol.py); everything else that
prints, libraries included, goes to stderr. Exits at end of input, so that a killed app leaves no process on the device.
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
from core.worker.protocol import Complaint, Message, Shutdown, decode_command, encode
from core.worker.runner import ENGINE, LOADER, Runner
from core.worker.turns import Lanes

EXIT_GRACE_S = 2.0
"""After end of input: how long a round may still take to notice before the process exits under it. Nobody listens."""


class Worker:
    """Hears commands in one thread and decodes in the caller's: a cancel is heard while a round computes."""

    def __init__(self, commands: BinaryIO, reports: BinaryIO, runner: Runner) -> None:
        self._commands = commands
        self._reports = reports
        self._writing = threading.Lock()
        self._lanes = Lanes(runner, self._report)

    def serve(self) -> None:
        """Work until shutdown or end of input."""
        threading.Thread(target=self._listen, name="commands", daemon=True).start()
        self._lanes.serve()

    def _listen(self) -> None:
        for line in self._commands:
            try:
                command = decode_command(line)
            except BadInput as error:
                self._report(Complaint(message=str(error)))
                continue
            self._lanes.hear(command)
            if isinstance(command, Shutdown):
                break
        else:
            self._lanes.hear(Shutdown())
        # A forward pass, or loading weights, may take long; nothing it makes will be read.
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
    """Take stdin and stdout for the protocol: descriptor 0 is empty afterwards and 1 is stderr, for C too."""
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
    # Ctrl-C in the terminal reaches the whole process group; the app decides, and end of input follows if it dies.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    code = 1
    try:
        Worker(commands, reports, Runner(options.loader, options.engine)).serve()
        code = 0
    except Exception:
        logging.getLogger("speclens.engine").exception("the worker broke")
    finally:
        sys.stderr.flush()
        # Interpreter shutdown with device libraries loaded can hang; there is nothing left to save.
        os._exit(code)


if __name__ == "__main__":
    main()
