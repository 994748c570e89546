package main

// doubtSafeguards cover a master's answers to requests whose result it does not know.
func doubtSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the end of an epoch refuses nothing that the log was asked", file: "cell/internal/master/acquire.go",
			old: "	return raftfsm.Answer{}, w.abandoned(context.Cause(l.epoch.ctx))\n", new: "	return raftfsm.Answer{}, context.Cause(l.epoch.ctx)\n",
			pkg: "./cell/internal/master", test: "TestEndOfEpochIsNoRefusal",
		},
		{
			name: "a session that is cut off is refused nothing that the log was asked", file: "cell/internal/master/revocations.go",
			old: "r.queues.failWaiter(w.key(), w.abandoned(r.epoch.sessionEnded(id)))", new: "r.queues.failWaiter(w.key(), r.epoch.sessionEnded(id))",
			pkg: "./cell/internal/master", test: "TestEndOfEpochIsNoRefusal",
		},
		{
			name: "what was left without an answer stays in doubt", file: "cell/internal/master/offers.go",
			old: "w.offered, w.doubt = false, w.doubt || doubt", new: "w.offered = false",
			pkg: "./cell/internal/master", test: "TestDoubtStays",
		},
		{
			name: "an end that was refused is proposed again", file: "cell/internal/master/observer.go",
			old: "			o.sessions.endLater(end)\n", new: "			_ = end\n",
			pkg: "./cell/internal/master", test: "TestEndIsRememberedOnce",
		},
		{
			name: "ends that clients ask for leave the master its room", file: "cell/internal/master/epoch.go",
			old: "	one := newProposal(c, e.state().Level, false, nil)\n", new: "	one := newProposal(c, e.state().Level, c.EndSessions != nil, nil)\n",
			pkg: "./cell/internal/master", test: "TestEndsLeaveRoom",
		},
		{
			name: "a change that was given up is forgotten", file: "cell/internal/master/clearing.go",
			old: "			delete(co.copyset.clearings, cl.name)\n", new: "",
			pkg: "./cell/internal/master", test: "TestChangeThatIsGivenUpIsForgotten",
		},
		{
			name: "the sessions of a Cell leave room for KeepAlives", file: "client/requestnumbers.go",
			old: "	if p.taken >= p.max {\n", new: "	if false {\n",
			pkg: "./client", test: "TestCrowdOfACell",
		},
		{
			name: "a session that is over leaves its places", file: "client/client.go",
			old: "		c.numbers.releasePlaces()\n", new: "",
			pkg: "./client", test: "TestCrowdOfACell|TestLostSessionLeavesItsPlaces",
		},
		{
			name: "large requests are sent a few at a time", file: "client/calllimits.go",
			old: "	case k.class == classChange && k.size > largeRequest:\n", new: "	case false:\n",
			pkg: "./client", test: "TestLargeRequestsArePaced",
		},
		{
			name: "reads wait before their time begins", file: "client/calllimits.go",
			old: "	case k.class == classRead:\n", new: "	case k.class == classRead && false:\n",
			pkg: "./client", test: "TestCallsWaitBeforeTheirTimeBegins",
		},
		{
			name: "changes wait before their time begins", file: "client/calllimits.go",
			old: "		return slots{r.changes}\n", new: "		return slots{}\n",
			pkg: "./client", test: "TestCallsWaitBeforeTheirTimeBegins",
		},
	}
}
