package main

// silenceSafeguards cover sessions' connections that fall silent while no KeepAlive waits.
func silenceSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a connection is replaced over which the master is looked for in vain", file: "client/locateround.go",
			old: "l.pool.checkControl(t) })", new: "})",
			pkg: "./client", test: "TestGivingBackOverASilentConnection|TestNewSessionOverASilentConnection",
		},
		{
			name: "an Open that was left is settled over the connection of the sessions", file: "client/open.go",
			old: "classCleanup, (*target).control //", new: "classCleanup, func(t *target) *connection { return t.data } //",
			pkg: "./client", test: "TestSettlingAnOpenNeedsNoConnection",
		},
		{
			name: "an Open that was left is settled over the connection of the sessions only if it is small", file: "client/open.go",
			old: "len(request.GetContents()) > maxSmallOpen", new: "len(request.GetContents()) > largeRequest",
			pkg: "./client", test: "TestKeepAlivesWaitForNoSettledOpen",
		},
		{
			name: "a replica that takes long to connect to is not connected to twice", file: "client/connection.go",
			old: "	if old.conn.GetState() != connectivity.Ready {", new: "	if old.conn.GetState() == connectivity.Shutdown {",
			pkg: "./client", test: "TestConnectingIsNotSilence",
		},
		{
			name: "a replica that takes long to answer is not connected to twice", file: "client/locateround.go",
			old: "time.AfterFunc(min(lateAfter, l.cfg.DialTimeout/2), func", new: "time.AfterFunc(stragglerDelay, func",
			pkg: "./client", test: "TestBusyMaster/to_answer",
		},
		{
			name: "a replica that was just connected to is not connected to again", file: "client/pool.go",
			old: "				connected()\n", new: "",
			pkg: "./client", test: "TestBusyMaster/to_connect",
		},
		{
			name: "a round takes the answers to the questions of the one before", file: "client/locate.go",
			old: "		found, err := l.runRound(ctx, q)\n", new: "		q := l.newInquiry(ctx)\n		found, err := l.runRound(ctx, q)\n		q.cancelAll()\n",
			pkg: "./client", test: "TestFarMaster",
		},
		{
			name: "a replica that is configured twice is asked once", file: "client/locateaddresses.go",
			old: "slices.Compact(slices.Sorted(slices.Values(slices.Concat(servers, s.told))))", new: "slices.Sorted(slices.Values(slices.Concat(servers, s.told)))",
			pkg: "./client", test: "TestServerConfiguredTwice",
		},
		{
			name: "what gives back has numbers beside those of changes", file: "client/requestnumbers.go",
			old: "		limit += maxCleanups\n", new: "",
			pkg: "./client", test: "TestGivingBackBesideManyChanges",
		},
	}
}
