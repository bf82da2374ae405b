"""How many calls it takes to keep messages extended: ours and other libraries' algorithms.

Each is played on the same trace, on a clock that is moved. Nothing here makes a call.
"""
