"""Scenarios of the AutoLockRenewer of Azure Service Bus."""
