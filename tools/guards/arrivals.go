package main

// arrivalGuards are those of what a replica is sent, and finds on its disk when it starts.
func arrivalGuards() []guard {
	return []guard{
		{
			name: "a snapshot that stops arriving holds up no election", file: "cell/transport.go",
			old: "	if s.within.Load() {", new: "	if false {",
			pkg: "./cell", test: "TestSnapshotThatStopsArriving",
		},
	}
}
