"""Processes forked from one that has imported Celery already.

A fresh interpreter takes over two seconds of CPU to import Celery, kombu, botocore and our package,
and the tests start some two hundred workers and commands. `server` imports them once and forks a
process for each request. Test processes talk to it through `client`. The forked process runs
`celery ...`, or another module or script, as a fresh one does: in its own session, with its own
arguments, environment, folder and files.

Rejected alternatives: a fork in the test process itself, because it has threads (proxies, servers),
and the fork would copy locks that another thread holds; and `multiprocessing`'s forkserver, because
its children share their standard output with the server.
"""
