package main

// lineGuards are those of the two connections to a replica.
func lineGuards() []guard {
	return []guard{
		{
			name: "a silent connection of the sessions is replaced", file: "client/keepalive.go",
			old: "k.pool.doubt(t, over, late)", new: "",
			pkg: "./client", test: "TestSilentConnection",
		},
		{
			name: "a connection is given up for one that works", file: "client/line.go",
			old: "	if err == nil && p.targets", new: "	if (err == nil || p.targets != nil) && p.targets",
			pkg: "./client", test: "TestNoOtherConnection",
		},
	}
}
