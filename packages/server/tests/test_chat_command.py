"""A conversation at a terminal; through a pipe it is in test_cli."""

import os
import pty
import select
import subprocess
import sys
import threading

import pytest

from minivllm_server.chat_command import HELP, PROMPT

from .test_cli import ENVIRONMENT, SMALL, needs_smollm2

# The leader of a session gets the first terminal that it opens as its own, Ctrl-C included.
AT_A_TERMINAL = 'terminal=$1; shift; exec "$@" <"$terminal" >"$terminal"'


class Terminal:
    """A pseudo-terminal as a person sees it."""

    def __init__(self, *command):
        self._screen, theirs = pty.openpty()
        self.shown = ""
        self.process = subprocess.Popen(
            ["sh", "-c", AT_A_TERMINAL, "sh", os.ttyname(theirs), *command],
            stderr=subprocess.PIPE,
            env=ENVIRONMENT | {"TERM": "dumb"},
            start_new_session=True,
        )
        self._watchdog = threading.Timer(240, self.process.kill)
        self._watchdog.start()
        self._theirs = theirs

    def read_until(self, text):
        begin = len(self.shown)
        while text not in self.shown[begin:]:
            self.shown += os.read(self._screen, 4096).decode()

    def type(self, text):
        os.write(self._screen, text.encode())

    def interrupt(self):
        """Press Ctrl-C until the line ends.

        `input` shows its prompt before it waits, and forgets a signal that comes between the two until another key
        is pressed.
        """
        self.type("\x03")
        while not select.select([self._screen], [], [], 5)[0]:
            self.type("\x03")
        self.read_until("\n")

    def close(self):
        """Wait for the end and see what it left."""
        os.close(self._theirs)
        try:
            while text := os.read(self._screen, 4096):
                self.shown += text.decode()
        except OSError:  # nobody has the other side open any more
            pass
        errors = self.process.communicate()[1]
        self._watchdog.cancel()
        os.close(self._screen)
        return self.process.returncode, errors


@needs_smollm2
@pytest.mark.parametrize("end", ["\x04", None, "/exit\n"], ids=["Ctrl-D", "Ctrl-C", "exit"])
def test_help_is_shown_and_the_end_leaves_the_terminal_at_the_beginning_of_a_line(end):
    terminal = Terminal(sys.executable, "-m", "minivllm_server", "chat", *SMALL)
    terminal.read_until(PROMPT)
    assert terminal.shown.splitlines()[0] == HELP
    terminal.type("/help\n")
    terminal.read_until(PROMPT)
    assert terminal.shown.count(HELP) == 2
    if end is None:
        terminal.interrupt()
    else:
        terminal.type(end)
    assert terminal.close() == (0, b"")
    assert terminal.shown.endswith("\n")
