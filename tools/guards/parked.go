package main

// parkedSafeguards cover KeepAlives that wait without a goroutine.
func parkedSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a KeepAlive that waits has no goroutine", file: "cell/internal/wire/sessions.go",
			old: "		if resume != nil {\n", new: "		if resume != nil && false {\n",
			pkg: "./e2e", test: "TestManySessions",
		},
		{
			name: "a call that is parked ends when nobody waits for it", file: "cell/internal/master/parked.go",
			old: "	k.unbind = context.AfterFunc(ctx, resume)\n", new: "	k.unbind = func() bool { return true }\n",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "calls that are parked end with the epoch", file: "cell/internal/master/master.go",
			old: "		m.Sessions.endCalls()\n", new: "",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "no KeepAlive is parked after the epoch", file: "cell/internal/master/keepalive.go",
			old: "	if err == nil && s.epoch.ctx.Err() != nil { // endCalls may have passed\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestParkedKeepAliveIsResumed",
		},
		{
			name: "a client whose answer came too late has its lease with the next", file: "cell/internal/master/keepalive.go",
			old: "		box.asked = true\n", new: "",
			pkg: "./cell/internal/master", test: "TestGrantAfterALateAnswer",
		},
	}
}
