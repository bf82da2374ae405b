"""Processes forked from one that has imported Celery already.

A fresh interpreter takes over two seconds of CPU to import Celery, kombu, botocore and our package,
and the tests start some two hundred workers and commands. `server` imports them once and forks a
process for each request; `client` is what a test process talks to it with. The forked process runs
`celery ...`, or another module or script, as a fresh one does: in a session of its own, with its
own arguments, environment, folder and files.

Considered instead: a fork in the test process itself, which has threads (proxies, servers), so that
a fork copies locks that another thread holds; and `multiprocessing`'s forkserver, whose children
share their standard output with the server.
"""
