"""The same jobs on Sail, an engine without Java, for folders of one machine.

Sail implements the protocol of Spark Connect, so it runs the same plan as Spark for every table.
Each file here handles one difference:

- `session`: Sail is a part of this process, not a server that outlives it.
- `warehouse`: Sail replaces a whole table, and Spark replaces days. So days are moved into place.
- `kept_frames`: Sail computes a frame again each time it is read, completely in memory. So frames
  that are read twice are written to files, one part at a time.
- `intake`: Sail fails on a line that can't be read, and does not name its file. Spark reads such a
  journal, in its own process.

Alternatives that we rejected: flags for the differences in all jobs; and only the tables on Sail,
with a Spark session beside it. A process can have either a Spark session or a remote one.
"""
