"""Decides what to do with each lease, and when: values and rules, no I/O, threads or clocks."""
