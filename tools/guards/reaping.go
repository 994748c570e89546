package main

// reapingGuards are those of what is done to all of something: to old snapshots, and to
// clients that are late.
func reapingGuards() []guard {
	return []guard{
		{
			name: "old snapshots are removed by the names of their directories", file: "cell/stores.go",
			old: "math.MaxInt, raftLog) // see reap", new: "min(math.MaxInt, snapshotsKept), raftLog) // see reap",
			pkg: "./cell", test: "TestOldSnapshotsNameRots",
		},
	}
}
