"""The page: a local server that shows a model at work, and the answers that it gives.

    server.py      the port, the browser, how it ends
    app.py         the application: addresses, errors, guard
    routes/        addresses -> functions, in groups; JSON and binary
    bodies.py      what a request may say
    replies.py     how an answer goes out, and what is said when something fails
    service.py     models, runs and limits together; what is told of a run
    guard.py       which requests are let in
    models.py      loaded models, each with a lock of its own
    runs.py        texts that grow token by token, with what was recorded on the way
    limits.py      how much it holds
    store.py       the recorded values, in pieces
    tree.py        a model as the page draws it
    prompts.py     from messages to ids, step by step
    worked.py      the worked example, which every server has
    answers.py     values, candidates, views: what is asked of a run
    compare.py     two runs side by side
    files.py       a run's values as a file
    explaining.py  how one number of a run came about
    saying.py      the same answers in another language

FastAPI and uvicorn are imported by `app.py`, `routes/`, `bodies.py`, `replies.py`, `server.py` and
what imports these. The page itself is in `page/`.
"""
