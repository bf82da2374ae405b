"""The commands of `celery_sqs_heartbeat.pipeline` as a file, which `spark-submit` needs."""

from celery_sqs_heartbeat.pipeline.__main__ import main

if __name__ == "__main__":
    main(prog_name="spark-submit")
