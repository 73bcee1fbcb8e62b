"""A solver's state in a file, so that an interrupted fit goes on where it was."""

import json
import os
import time
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from daniel.core.solve import Point, State

EVERY = 20.0  # seconds between two writes


class Checkpoint:
    """Keeps the latest state of one fit; `key` says which, and a state of another is not used."""

    def __init__(self, path: Path, key: str, every: float = EVERY) -> None:
        self.path = path
        self.key = key
        self.every = every
        self._last = time.monotonic()

    def load(self) -> State | None:
        try:
            with safe_open(self.path, framework="numpy") as file:
                facts = json.loads(file.metadata()["daniel"])
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            if facts["key"] != self.key:
                return None
            point = Point(arrays["x"], facts["value"], arrays["gradient"])
            pairs = zip(arrays["steps"], arrays["changes"], facts["rho"], strict=True)
            return State(
                stage=facts["stage"],
                point=point,
                memory=list(pairs),
                curve=facts["curve"],
                begin=arrays["begin"],
                converged=facts["converged"],
            )
        except (OSError, SafetensorError, KeyError, TypeError, ValueError):
            return None  # none, or not a whole one: begin anew

    def save(self, state: State) -> None:
        """Write the state: that of the end always, others every so many seconds."""
        if state.converged is None and time.monotonic() - self._last < self.every:
            return
        x = state.point.x
        none: np.ndarray = np.empty((0, x.size), dtype=x.dtype)
        arrays = {
            "x": x,
            "begin": state.begin,
            "gradient": state.point.gradient,
            "steps": np.stack([s for s, _, _ in state.memory]) if state.memory else none,
            "changes": np.stack([y for _, y, _ in state.memory]) if state.memory else none,
        }
        facts = {
            "key": self.key,
            "stage": state.stage,
            "value": state.point.value,
            "rho": [rho for _, _, rho in state.memory],
            "curve": state.curve,
            "converged": state.converged,
        }
        temporary = self.path.with_name(f"{self.path.name}.{os.getpid()}.part")
        try:
            save_file(arrays, temporary, metadata={"daniel": json.dumps(facts)})
            temporary.chmod(0o600)
            os.replace(temporary, self.path)
        except (OSError, SafetensorError):
            pass  # a full disk must not end the fit
        finally:
            temporary.unlink(missing_ok=True)
        self._last = time.monotonic()
