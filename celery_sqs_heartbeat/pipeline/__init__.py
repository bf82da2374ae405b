"""What a fleet's journals tell, as tables: PySpark over the workers' journals.

Needs the extra `[pipeline]`. Its only tie to the rest of the package is the journal's contract.
"""
