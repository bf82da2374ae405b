"""Celery's and kombu's own tests, with our worker and our channel in place of theirs.

- Ours runs a suite whole. Stock runs only what did not pass with ours (`__main__`).
- Celery's suite mostly waits, so some processes share it, each with its own SQS and Redis.
  Each claims the next test when it is done with one (`plugins.sharing`).
- The suites run side by side.
- boto3 reads its data files once a process, not once a client (`plugins.sharing`).
- Tests that show nothing about ours are left out, with the reason in the table (`suites`).
"""
