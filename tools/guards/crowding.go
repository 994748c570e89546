package main

// crowdingSafeguards cover one client that asks for very much at once.
func crowdingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "few pages of listings are made at a time", file: "cell/internal/master/inspector.go",
			old: "	case in.pages <- struct{}{}:\n		return func() { <-in.pages }, nil\n", new: "	default:\n		return func() {}, nil\n",
			pkg: "./cell/internal/master", test: "TestFewPagesAreMadeAtATime",
		},
		{
			name: "what closed connections hold closes no others", file: "cell/internal/wire/relief.go",
			old: "{ return o.bytes.Load() - o.ending.Load() }", new: "{ return o.bytes.Load() }",
			pkg: "./cell/internal/wire", test: "TestOneIsClosedForAllThatAreServed",
		},
		{
			name: "a request is held until its stream has ended", file: "cell/internal/wire/account.go",
			old: "	if c.open {\n		return\n	}\n	if !c.serving {\n", new: "	if !c.serving {\n",
			pkg: "./cell/internal/wire", test: "TestRequestsAreHeldUntilTheirStreamsEnd",
		},
		{
			name: "changes of a name wait together", file: "cell/internal/master/clearing.go",
			old: "	if cl := c.clearings[name]; cl != nil { //", new: "	if cl := c.clearings[name]; cl != nil {\n		for range c.copies[name] {\n			co.epoch.mu.pause(1)\n		} //",
			pkg: "./cell/internal/master", test: "TestChangesOfANameWaitTogether",
		},
		{
			name: "a change waits for the author of another", file: "cell/internal/master/clearing.go",
			old: "			cl.by = 0\n", new: "			return cl\n",
			pkg: "./cell/internal/master", test: "TestChangesOfANameWaitTogether",
		},
		{
			name: "a removal waits for every name", file: "cell/internal/master/remover.go",
			old: "		r.awaitClearing(one)\n	}\n	if r.again", new: "		delete(r.waiting, one)\n		r.ready = append(r.ready, one)\n	}\n	if r.again",
			pkg: "./cell/internal/master", test: "TestRemovalWaitsForEveryName",
		},
		{
			name: "calls with much work let others go first", file: "cell/internal/master/pause.go",
			old: "	p.line.Lock()\n	defer p.line.Unlock()\n", new: "",
			pkg: "./cell/internal/master", test: "TestPatientHoldersLetOthersGoFirst",
		},
		{
			name: "calls with much work begin with little", file: "cell/internal/master/pause.go",
			old: "	p.limit, p.patient = min(p.limit, fewSteps), true\n", new: "	p.patient = true\n",
			pkg: "./cell/internal/master", test: "TestPatientHoldersBeginShortly",
		},
		{
			name: "the end of a session is told before it is observed", file: "cell/internal/master/files.go",
			old: "		return f.epoch.sessionEnded(by.Session) // though that may not have been observed yet\n", new: "		return api.Errorf(api.InvalidArgument, \"finished\")\n",
			pkg: "./cell/internal/master", test: "TestCallsOfASessionThatHasJustEnded",
		},
		{
			name: "a handle is on one node", file: "cell/internal/master/handles.go",
			old: " && one.open && one.Node == h.Node {", new: " && one.open {",
			pkg: "./cell/internal/master", test: "TestHandleIsOnOneNode",
		},
	}
}
