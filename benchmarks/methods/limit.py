"""The limit of a run: the kernel ends the process when it passes.

A method that tries several settings, of which one counts, starts the limit anew for each: the time
that is told is that of one, and so must be the time that is allowed.
"""

import signal

_allowed = 0.0  # seconds; 0: no limit


def begin(seconds: float) -> None:
    global _allowed
    _allowed = seconds
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    anew()


def anew() -> None:
    """All of the limit is left again, if there is one."""
    if _allowed:
        signal.setitimer(signal.ITIMER_REAL, _allowed)


def end() -> None:
    global _allowed
    _allowed = 0.0
    signal.setitimer(signal.ITIMER_REAL, 0)
