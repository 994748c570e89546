package main

import "slices"

// replicaGuards are those of a replica as a whole: how it becomes master, and
// what it tells its operator.
func replicaGuards() []guard { return slices.Concat(epochGuards(), logGuards()) }
