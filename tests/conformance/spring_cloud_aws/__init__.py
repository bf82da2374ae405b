"""Scenarios of Spring Cloud AWS."""
