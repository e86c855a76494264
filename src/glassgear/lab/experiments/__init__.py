"""One file for each experiment; each has an `EXPERIMENT`. `glassgear.lab.experiment(name)` imports it."""
