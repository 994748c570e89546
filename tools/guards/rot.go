package main

// rotGuards are those of a replica of whose files one has rotted, or may not be read.
func rotGuards() []guard {
	return []guard{
		{
			name: "a rotten snapshot is not taken instead of an older one", file: "cell/storeguard.go",
			old: "return s.rotten[meta.ID] }), err", new: "return false && s.rotten[meta.ID] }), err",
			pkg: "./cell", test: "TestNewestSnapshotRots",
		},
		{
			name: "a snapshot that may not be read is not taken for a rotten one", file: "cell/stores.go",
			old: "			if denied(err) {", new: "			if denied(err) && false {",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "the metadata of a snapshot that may not be read are not taken for rotten ones", file: "cell/datadir.go",
			old: "metaName)); denied(err) {", new: "metaName)); denied(err) && false {",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "a file that may not be looked at is not missing", file: "cell/datadir.go",
			old: "		case denied(err):", new: "		case denied(err) && false:",
			pkg: "./cell", test: "TestDeniedIsNotDamaged",
		},
		{
			name: "a process that was stopped does not take its disk for stalled", file: "cell/watchdog.go",
			old: "const watchLooks = 6", new: "const watchLooks = 1",
			pkg: "./cell", test: "TestStoppedProcessIsNoStalledDisk",
		},
	}
}
