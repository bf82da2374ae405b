"""Settings of the soak's workers on which the audit relies."""

from __future__ import annotations

#: How long a soft shutdown waits for tasks, in seconds; 0 makes it a cold one.
SOFT_SECONDS = (0, 3)
#: How long a worker in shutdown continues to try deletes, in seconds.
FLUSH_SECONDS = 5.0
