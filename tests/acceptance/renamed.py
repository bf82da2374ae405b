"""The acceptance tests' app, on a kombu that lacks a method."""

from __future__ import annotations

from kombu.transport.SQS import Channel

del Channel._schedule_queue

from tests.acceptance.proj import app  # noqa: E402, F401
