"""The report: the tables as one page of HTML that needs nothing else."""
