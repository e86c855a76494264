"""The page: a local server that shows a model at work, and the answers that it gives.

    server.py      the port, the browser, how it ends
    app.py         addresses -> functions; JSON and binary
    guard.py       which requests are let in
    models.py      loaded models, each with a lock of its own
    runs.py        texts that grow token by token, with what was recorded on the way
    limits.py      how much it holds
    store.py       the recorded values, in pieces
    tree.py        a model as the page draws it
    prompts.py     from messages to ids, step by step
    worked.py      the worked example, which every server has
    changes.py     what a run does differently: zeroed values, other activations
    answers.py     values, candidates, views, comparisons, files: what is asked of a run
    explaining.py  how one number of a run came about
    saying.py      the same answers in another language

FastAPI and uvicorn are imported by `app.py` and `server.py` alone. The page itself is in `page/`.
"""
