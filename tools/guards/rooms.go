package main

// roomSafeguards cover what the calls of all sessions of a Cell share.
func roomSafeguards() []safeguard {
	return []safeguard{
		{
			name: "who waits for his session has no room", file: "client/dispatcher.go",
			old: "		if t, caller = d.readyNow(k); t != nil && ctx.Err() == nil {\n			return t, caller, nil\n		}\n		s.leave()\n",
			new: "		return d.awaitReady(ctx, k)\n",
			pkg: "./client", test: "TestJeopardyTakesNoRoom",
		},
		{
			name: "what gives back waits before its time begins", file: "client/calllimits.go",
			old: "		return slots{r.cleanups}\n", new: "		return slots{}\n",
			pkg: "./client", test: "TestCallsWaitBeforeTheirTimeBegins",
		},
		{
			name: "audits do not wait for reads", file: "client/calllimits.go",
			old: "		return slots{r.audits}\n", new: "		return slots{r.reads}\n",
			pkg: "./client", test: "TestAuditsDoNotWaitForReads",
		},
		{
			name: "KeepAlives have a connection of their own", file: "client/keepalive.go",
			old: "conn, late := t.control(), ", new: "conn, late := t.data, ",
			pkg: "./client", test: "TestKeepAlivesWaitForNoCall",
		},
		{
			name: "the sessions of a Cell are bounded", file: "client/sessionset.go",
			old: "used >= s.max {\n", new: "used < 0 {\n",
			pkg: "./client", test: "TestSessionsOfACellAreBounded",
		},
		{
			name: "a session that was not opened takes no place", file: "client/client.go",
			old: "		c.sessions.release()\n", new: "",
			pkg: "./client", test: "TestSessionsOfACellAreBounded",
		},
	}
}
