"""Makes boto3 read its data files once a process, not once a client: each test makes clients."""

from __future__ import annotations

from functools import cache

import botocore.loaders
import botocore.session

botocore.session.create_loader = cache(botocore.loaders.create_loader)
