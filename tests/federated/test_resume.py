"""A finish that was interrupted goes on to the same model."""

import numpy as np
import pytest

from daniel.core import checkpoint, surrogate
from daniel.federated import protocol


def test_an_interrupted_finish_goes_on_to_the_same_model(masked, exchange, tmp_path, monkeypatch):
    start, answers = exchange
    matrix = next(iter(masked.sites.values()))
    state = tmp_path / ".model.state"

    def finish():
        return protocol.finish(matrix, masked.study, start, answers, checkpoint=state)[0]

    wanted = finish()
    assert not state.exists()
    monkeypatch.setattr(checkpoint.Checkpoint.__init__, "__defaults__", (0.0,))
    whole = surrogate.Surrogate.__call__
    calls = []

    def failing(self, x):
        calls.append(1)
        if len(calls) == 6:
            raise KeyboardInterrupt
        return whole(self, x)

    monkeypatch.setattr(surrogate.Surrogate, "__call__", failing)
    with pytest.raises(KeyboardInterrupt):
        finish()
    assert state.is_file()
    calls.clear()
    calls.extend([1] * 10)  # no more interruptions
    found = finish()
    np.testing.assert_array_equal(found.embedding_, wanted.embedding_)
    np.testing.assert_array_equal(found.loss_curve_, wanted.loss_curve_)
    assert len(calls) - 10 < wanted.n_iter_  # the first steps were not made again
    assert not state.exists()
