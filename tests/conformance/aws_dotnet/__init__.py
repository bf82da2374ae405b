"""Scenarios of the AWS Message Processing Framework for .NET."""
