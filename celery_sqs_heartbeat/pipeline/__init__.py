"""What a fleet's journals say, as tables: PySpark over the workers' journals.

Data goes through the folders in this order, and each imports only those before it:

- `storage` reads a journal's segments as lines, and keeps the tables in a warehouse.
- `tables` makes the lines into tables, a file for each: pure functions from frames to a frame.
- `tuning` replays what was measured with other settings, and recommends some.
- `engine` runs these functions on Spark or Sail, over some days or as a stream.
- `report` makes a page of the tables.

`schema` is the contract of the tables. Needs the extra `[pipeline]`. Its only tie to the rest of
the package is the journal's contract, and the rules of leases that it replays.
"""
