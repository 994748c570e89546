package main

// boundSafeguards cover the bounds on the work under the master's mutex, and on what clients
// can make the master remember.
func boundSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a waiter that is gone is in no index", file: "cell/internal/master/queue.go",
			old: "	q.absent.drop(w)\n	q.used.add(w.who, -1)", new: "	q.used.add(w.who, -1)",
			pkg: "./cell/internal/master", test: "TestQueuesAnswerAsTheirTwin",
		},
		{
			name: "one tick drops so many absent waiters", file: "cell/internal/master/queue.go",
			old: "	for range most {\n", new: "	for range 1 << 30 {\n",
			pkg: "./cell/internal/master", test: "TestForgetIsBounded",
		},
		{
			name: "long work under the mutex lets others in", file: "cell/internal/master/pause.go",
			old: "p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, maxSteps), false", new: "p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, 1<<30), false",
			pkg: "./cell/internal/master", test: "TestPauseLetsOthersIn",
		},
		{
			name: "time spent waiting for the mutex extends no lease", file: "cell/internal/master/timekeeper.go",
			old: "		case <-ticker.C:\n			p.look()\n", new: "		case <-ticker.C:\n",
			pkg: "./cell/internal/master", test: "TestBusyLoopExtendsNoLease",
		},
		{
			name: "a call that waits is counted when it is answered", file: "cell/internal/wire/service.go",
			old: "	if errors.Is(err, frames.ErrParked) {\n		return\n	}\n	code := api.OK\n", new: "	code := api.OK\n",
			pkg: "./cell", test: "TestCallsAreMeasured",
		},
		{
			name: "a call that waited is counted", file: "cell/internal/wire/service.go",
			old: "		defer func() { s.count(ctx, call, method, nil, nil, err) }() // after recovered; what is parked is not traced\n		defer s.recovered(method, &err)\n", new: "		defer s.recovered(method, &err)\n",
			pkg: "./cell", test: "TestCallsAreMeasured",
		},
		{
			name: "a stop is a stop whatever the clock loop does meanwhile", file: "cell/internal/master/timekeeper.go",
			old: "		timer.Reset(t.tick(now, forgiven))\n", new: "		timer.Reset(t.tick(now, forgiven))\n		t.pauses.take()\n",
			pkg: "./cell/internal/master", test: "TestStopDuringATickEndsNoSession",
		},
		{
			name: "a process that is always late is forgiven so much", file: "session/pauses.go",
			old: "		some := min(gap, p.patience)\n", new: "		some := gap\n",
			pkg: "./session", test: "TestPatienceEnds",
		},
		{
			name: "a listing comes in pages", file: "cell/internal/master/listing.go",
			old: "	return len(p.List) >= p.most || p.bytes >= api.MaxPageBytes\n", new: "	return false\n",
			pkg: "./cell/internal/master", test: "TestSessionsComeInPages",
		},
		{
			name: "a page of a listing is bounded in bytes", file: "cell/internal/master/listing.go",
			old: " || p.bytes >= api.MaxPageBytes", new: "",
			pkg: "./cell/internal/master", test: "TestSessionsComeInPages",
		},
		{
			name: "a page of a directory is bounded in bytes", file: "cell/internal/master/read.go",
			old: " || bytes >= api.MaxPageBytes", new: "",
			pkg: "./cell/internal/master", test: "TestDirectoriesComeInPages",
		},
		{
			name: "a crowd of waiters is counted, not listed", file: "cell/internal/master/listing.go",
			old: "			if len(first) == api.MaxListed {\n", new: "			if false {\n",
			pkg: "./cell/internal/master", test: "TestCrowdsAreCounted",
		},
		{
			name: "a crowd of holders is counted, not listed", file: "cell/internal/master/listing.go",
			old: "	some := holders[:min(len(holders), most)]\n", new: "	some := holders\n",
			pkg: "./cell/internal/master", test: "TestCrowdsAreCounted",
		},
		{
			name: "a long listing is printed in pieces", file: "cmd/chubbyctl/internal/term/table.go",
			old: "	if t.list && len(t.rows) == piece {\n", new: "	if false {\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestLongListingsArePrintedInPieces",
		},
		{
			name: "no hold of the mutex is long", file: "cell/internal/master/pause.go",
			old: "p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, maxSteps), false", new: "p.steps, p.limit, p.patient = 0, cmp.Or(p.maxStepsOverride, 1<<30), false",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
		{
			name: "each principal is asked about once for an event", file: "cell/internal/master/events.go",
			old: "				p.epoch.mu.pause(permitSteps)\n", new: "				delete(readers, h.principal)\n				p.epoch.mu.steps = 0\n",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
		{
			name: "status tells the hash of what was applied", file: "cell/status.go",
			old: "\"%016x\", state.History)", new: "\"%016x\", 0)",
			pkg: "./cell", test: "TestStatusComparesReplicas",
		},
		{
			name: "the lock with the shortest delay is due first", file: "client/lockdeadlines.go",
			old: "s.locks.Put(l, session.Instant(l.handle.delay))", new: "s.locks.Put(l, -session.Instant(l.handle.delay))",
			pkg: "./client", test: "TestLocksEndInTheOrderOfTheirDelays",
		},
	}
}
