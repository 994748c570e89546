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
		{
			name: "the status of a cell is asked over the connection of the program", file: "client/survey.go",
			old: "t.cell.Status(", new: "t.kept().cell.Status(",
			pkg: "./client", test: "TestKeepAlivesWaitForNoOperator",
		},
		{
			name: "a transfer is asked over the connection of the program", file: "client/transfer.go",
			old: "t.cell.Locate(", new: "t.kept().cell.Locate(",
			pkg: "./client", test: "TestKeepAlivesWaitForNoOperator",
		},
	}
}
