"""For `spark-submit`, which wants a file: the commands of `celery_sqs_heartbeat.pipeline`."""

from celery_sqs_heartbeat.pipeline.__main__ import main

if __name__ == "__main__":
    main(prog_name="spark-submit")
