"""The paper's simulation study: truth known, every method, every cell, resumable.

>>> from daniel import simulation
>>> small = simulation.make_design("main", n=[1000], p=[50], x=[0, 0.3])
>>> results = simulation.run(small, reps=2, out="trial")             # doctest: +SKIP
>>> results.groupby(["x", "method"])["error"].mean()                 # doctest: +SKIP
>>> simulation.tables("trial"), simulation.figures("trial")          # doctest: +SKIP
"""

from daniel.simulation.design import Cell, Design, draw, make_design
from daniel.simulation.methods import METHODS, measure
from daniel.simulation.runner import run
from daniel.simulation.store import chosen_steps, read_results
from daniel.simulation.whole import figures, study, tables

__all__ = [
    "METHODS",
    "Cell",
    "Design",
    "chosen_steps",
    "draw",
    "figures",
    "make_design",
    "measure",
    "read_results",
    "run",
    "study",
    "tables",
]
