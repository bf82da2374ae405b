"""pytest plugins that change what a suite of another project runs on, not the suite."""
