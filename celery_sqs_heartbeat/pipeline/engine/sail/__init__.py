"""The same jobs on Sail, an engine without Java, for folders of one machine.

Sail speaks the protocol of Spark Connect, so every table's plan is the one that Spark runs. What
it lacks is here, a file for each:

- `session`: it is part of this process, and no server that outlives it.
- `warehouse`: it replaces a whole table where Spark replaces days, so days are moved into place.
- `kept_frames`: it computes a frame anew each time it is read, and all of it in memory, so what is
  read twice is written to files, a part at a time.
- `intake`: it fails on a line that can't be read, and does not tell of which file it is. Such a
  journal is read by Spark, in a process of its own.

Considered: to leave the differences to flags all over the jobs, and to run only the tables on
Sail with a Spark session beside it. A process has either a session of Spark's or a remote one.
"""
