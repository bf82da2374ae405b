"""What to do and when: pure values and rules, with no I/O, threads or clocks."""
