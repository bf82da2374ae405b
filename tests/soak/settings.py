"""What the soak sets its workers to, where the audit counts on it."""

from __future__ import annotations

#: How long a soft shutdown waits for tasks, in seconds; 0 makes it a cold one.
SOFT_SECONDS = (0, 3)
#: How long a worker that ends goes on trying deletes, in seconds: its successor waits for that.
FLUSH_SECONDS = 5.0
