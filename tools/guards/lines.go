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
		{
			name: "a lock is released over the connection of the sessions", file: "client/lock.go",
			old: "t.kept().chubby.Release(", new: "t.chubby.Release(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "a handle is closed over the connection of the sessions", file: "client/handle.go",
			old: "t.kept().chubby.Close(", new: "t.chubby.Close(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "a request is withdrawn over the connection of the sessions", file: "client/mutate.go",
			old: "t.kept().chubby.Cancel(", new: "t.chubby.Cancel(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "what settles requests has room with what gives back", file: "client/mutate.go",
			old: "session: c.session, room: in,\n", new: "session: c.session,\n",
			pkg: "./client", test: "TestKeepAlivesWaitForNoSettling",
		},
		{
			name: "nobody waits until a connection is closed", file: "client/pool.go",
			old: "	p.running.Go(t.kept().close)\n", new: "	t.kept().close()\n",
			pkg: "./client", test: "TestForgottenReplica",
		},
	}
}
