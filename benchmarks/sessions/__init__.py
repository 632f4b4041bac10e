"""Sample sessions that can be published: scripted agents at work with real tools.

    python -m benchmarks.sessions build/sessions

What the agents say is a script; what their tools answer is real: Python's own library, logs with planted
faults, an SQLite database, HTML pages, customer records, Chinese documents, all made from a seed. The same
Python makes the same bytes. They are no recordings of a model: what a model would look at next, a script
decides here, so compare systems by them, and trust numbers from recorded sessions more.
"""
