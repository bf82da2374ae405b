"""The command `grafana`, which writes a dashboard and alerting rules."""
