"""Turns a fleet's journals into tables, with PySpark.

Data passes through these folders in order. Each imports only those before it:

- `storage` reads a journal's segments as lines, and keeps the tables in a warehouse.
- `tables` turns the lines into tables, one file each: pure functions from frames to a frame.
- `tuning` replays the measurements with other settings, and recommends settings.
- `engine` runs these functions on Spark or Sail, for some days or as a stream.
- `report` makes a page from the tables.

`schema` is the contract of the tables. Needs the extra `[pipeline]`. From the rest of the package
it uses only the journal's contract, and the rules of leases that it replays.
"""
