"""Fakes for our tests and our users' tests: a clock, and an SQS that follows AWS.

No public emulator shows lost leases or the 12-hour limit as AWS does. `SimulatedSqs` does. It runs
in process on a fake clock, or over HTTP for real workers as a `SimulatedServer`
(`python -m celery_sqs_heartbeat.testing.server`).

It accepts what AWS accepts and refuses what AWS refuses, with AWS's error codes. docs/testing.md
lists what is not modelled, and what happens instead.
"""

from celery_sqs_heartbeat.testing.clock import FakeClock
from celery_sqs_heartbeat.testing.faults import Fault, Faults
from celery_sqs_heartbeat.testing.serving import SimulatedServer
from celery_sqs_heartbeat.testing.sqs import SimulatedSqs

__all__ = ["FakeClock", "Fault", "Faults", "SimulatedServer", "SimulatedSqs"]
