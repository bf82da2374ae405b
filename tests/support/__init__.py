"""Support for tests that need real servers, a faulty network and real workers."""
