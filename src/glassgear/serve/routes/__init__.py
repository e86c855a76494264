"""Addresses -> functions, in groups: what the page asks, and what it gets.

    models.py      what can be loaded; a model's tree
    runs.py        runs: started, listed, told of, ended
    steps.py       a run goes on, or back
    values.py      a run's values, and how one number came about
    views.py       what is made of values: candidates, the logit lens, growth, heads
    comparison.py  two runs side by side
    exports.py     a run's values as a file

Functions that compute are plain ones: FastAPI runs each in a thread of its own, so that a step of one
run doesn't keep the values of another waiting. Every error is a sentence in JSON (`app.py`).
"""

from __future__ import annotations

from glassgear.serve.routes import comparison, exports, models, runs, steps, values, views

__all__ = ["GROUPS"]

GROUPS = tuple(group.routes for group in (models, runs, comparison, exports, steps, values, views))
