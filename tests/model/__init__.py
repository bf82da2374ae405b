"""The lease book against a model of the truth, by Hypothesis."""
