package main

// lineSafeguards cover the two connections to a replica.
func lineSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a silent connection of the sessions is replaced", file: "client/keepalive.go",
			old: "k.client.cell.pool.checkConnection(t, conn, late)", new: "",
			pkg: "./client", test: "TestSilentConnection",
		},
		{
			name: "a connection is given up for one that works", file: "client/connection.go",
			old: "	if err == nil && !answered", new: "	if (err == nil || p.targets != nil) && !answered",
			pkg: "./client", test: "TestNoOtherConnection",
		},
		{
			name: "another connection that is refused is tried again", file: "client/connection.go",
			old: "grpc.WaitForReady(true)", new: "grpc.WaitForReady(false)",
			pkg: "./client", test: "TestSilentConnectionAndRefusals",
		},
		{
			name: "a connection over which the master is only slow to prove itself is kept", file: "client/connection.go",
			old: "		answered = err == nil || isAnswer(err)\n", new: "		answered = err != nil && false\n",
			pkg: "./client", test: "TestSlowProofIsNoSilence",
		},
		{
			name: "the status of a cell is asked over the connection of the program", file: "client/status.go",
			old: "t.data.cell.Status(", new: "t.control().cell.Status(",
			pkg: "./client", test: "TestKeepAlivesWaitForNoOperator",
		},
		{
			name: "a transfer is asked over the connection of the program", file: "client/transfer.go",
			old: "t.data.cell.Locate(", new: "t.control().cell.Locate(",
			pkg: "./client", test: "TestKeepAlivesWaitForNoOperator",
		},
		{
			name: "a lock is released over the connection of the sessions", file: "client/lock.go",
			old: "t.control().chubby.Release(", new: "t.data.chubby.Release(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "a handle is closed over the connection of the sessions", file: "client/handle.go",
			old: "t.control().chubby.CloseHandle(", new: "t.data.chubby.CloseHandle(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "a request is withdrawn over the connection of the sessions", file: "client/mutate.go",
			old: "t.control().chubby.Cancel(", new: "t.data.chubby.Cancel(",
			pkg: "./client", test: "TestGivingBackNeedsNoConnection",
		},
		{
			name: "what settles requests has room with what gives back", file: "client/mutate.go",
			old: "		session: c.session,\n		class:   class,\n", new: "		session: c.session,\n",
			pkg: "./client", test: "TestKeepAlivesWaitForNoSettling",
		},
		{
			name: "nobody waits until a connection is closed", file: "client/pool.go",
			old: "	p.running.Go(t.control().close)\n", new: "	t.control().close()\n",
			pkg: "./client", test: "TestForgottenReplica",
		},
		{
			name: "searches that find the same master again are paced", file: "client/locate.go",
			old: "	if l.awaitNextSearch(ctx); ctx.Err() != nil {\n", new: "	if ctx.Err() != nil {\n",
			pkg: "./client", test: "TestSearchesArePaced",
		},
		{
			name: "a search that is given up before it has begun asks nobody", file: "client/locate.go",
			old: "	if l.awaitNextSearch(ctx); ctx.Err() != nil {\n", new: "	if l.awaitNextSearch(ctx); false {\n",
			pkg: "./client", test: "TestSearchGivenUpBeforeItBegan",
		},
		{
			name: "the pauses between searches end with the reason for them", file: "client/locate.go",
			old: "	if !again || now.Sub(l.foundAt) > 2*maxPause {\n", new: "	if false {\n",
			pkg: "./client", test: "TestPausesOfSearchesEnd",
		},
		{
			name: "who holds a lock is not kept waiting for it", file: "client/acquirepolling.go",
			old: "!isLockTaken(err) || holdsLock(a.handle)", new: "!isLockTaken(err)",
			pkg: "./client", test: "TestOwnLockInACrowd",
		},
		{
			name: "a survey forgets those that it did not ask", file: "client/status.go",
			old: "c.pool.retain(append(", new: "_ = (append(",
			pkg: "./client", test: "TestStatusLeavesNoReplicasBehind",
		},
		{
			name: "a lost session takes no place of its Cell", file: "client/client.go",
			old: "		if !errors.Is(c.Err(), Closed) {\n", new: "		if false {\n",
			pkg: "./client", test: "TestLostSessionsTakeNoPlace",
		},
	}
}
