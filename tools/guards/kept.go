package main

// keptSafeguards cover locks that stay with a session between two uses.
func keptSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a kept lock that is taken away is not used", file: "client/handle.go",
			old: "	h.kept.forget(h.lost.generation)\n", new: "",
			pkg: "./client", test: "TestIdleLockIsTakenAway",
		},
		{
			name: "no lock is kept over a fail-over", file: "client/keepalive.go",
			old: "		k.client.handles.recallAll()\n		k.client.auditor", new: "		k.client.auditor",
			pkg: "./client", test: "TestLockInUseAtFailOver",
		},
		{
			name: "no lock is kept over missing events", file: "client/keepalive.go",
			old: "	k.client.handles.recallAll()\n	one :=", new: "	one :=",
			pkg: "./client", test: "TestNoLockIsKeptOverMissingEvents",
		},
		{
			name: "no grant from before a fail-over is kept", file: "client/cachedlock.go",
			old: "	if k.recallAlls != a.recallAlls {\n", new: "	if false {\n",
			pkg: "./client", test: "TestGrantFromBeforeAFailOverIsNotKept",
		},
		{
			name: "a lock that is wanted is not kept", file: "client/cachedlock.go",
			old: "l.seq.Generation <= max(k.recalled, h.lost.generation) {", new: "l.seq.Generation <= h.lost.generation {",
			pkg: "./client", test: "TestWaiterComesBeforeTheCacher",
		},
		{
			name: "an idle lock that is wanted is given back", file: "client/cachedlock.go",
			old: "	if k.idle != nil && k.idle.seq.Generation <= k.recalled {\n", new: "	if k.idle != nil && false {\n",
			pkg: "./client", test: "TestIdleLockIsRecalled",
		},
		{
			name: "no lock is kept over jeopardy", file: "client/cachedlock.go",
			old: " || s.counters.jeopardies.Load() != k.jeopardies", new: "",
			pkg: "./client", test: "TestIdleLockAfterJeopardy",
		},
		{
			name: "a kept lock is relied on within the lease", file: "client/cachedlock.go",
			old: "	if s.state != session.Safe || s.local.State(now, s.grace) != session.Safe || s.counters", new: "	if s.counters",
			pkg: "./client", test: "TestIdleLockOfOneWhoIsCutOff|TestIdleLockOfASessionThatIsEnded",
		},
		{
			name: "a kept lock has a context that ends in time", file: "client/cachedlock.go",
			old: "	s.locks.Put(l, session.Instant(l.handle.delay))\n", new: "",
			pkg: "./client", test: "TestUseOfAKeptLockEndsInTime",
		},
		{
			name: "a lock that nobody uses is given back", file: "client/cachedlock.go",
			old: "		time.AfterFunc(maxIdleLock, func() { k.returnIdle(h) })\n", new: "",
			pkg: "./client", test: "TestIdleLockIsGivenBack",
		},
		{
			name: "a kept lock serves its own mode only", file: "client/cachedlock.go",
			old: "	if was.terms.mode != a.mode || was.terms.reason", new: "	if was.terms.reason",
			pkg: "./client", test: "TestCachedLockIsOfOneKind",
		},
		{
			name: "a kept lock of another kind leaves no context", file: "client/cachedlock.go",
			old: "		l.cancel(nil) // else it stays with the session\n", new: "",
			pkg: "./client", test: "TestAcquireInAnotherModeLeavesNothing",
		},
		{
			name: "a turn of a keeper gives no estimate", file: "cell/internal/master/holdtimes.go",
			old: "			one.cached, one.by = one.cached || next.cached, nil\n", new: "			one.by = nil\n",
			pkg: "./cell/internal/master", test: "TestEstimate",
		},
		{
			name: "a TryAcquire has a kept lock given back", file: "cell/internal/master/locks.go",
			old: "	asked := l.events.awaitRecall(ctx, lock, h.Owner, claim.Mode)\n", new: "	asked := false\n",
			pkg: "./client", test: "TestTryAcquireGetsAnIdleLock",
		},
		{
			name: "a Delete has a kept lock given back", file: "cell/internal/master/files.go",
			old: "			f.events.awaitRecall(ctx, h.Node, h.Owner, api.Exclusive)\n", new: "",
			pkg: "./client", test: "TestDeleteOfANodeWhoseLockIsKept",
		},
		{
			name: "a TryAcquire of a used lock is refused soon", file: "cell/internal/master/keepalive.go",
			old: "	s.epoch.mu.pause(s.recalls.acknowledge(c.Session, box.acked))\n", new: "",
			pkg: "./client", test: "TestTryAcquireOfAKeptLockIsRefusedSoon",
		},
		{
			name: "TryAcquires wait once for one who does not answer", file: "cell/internal/master/recalls.go",
			old: "	if r := p.recalls.byLock[lock]; r != nil {\n", new: "	if r := p.recalls.byLock[lock]; false {\n",
			pkg: "./client", test: "TestTryAcquireOfAKeptLockIsRefusedSoon",
		},
		{
			name: "a recall is acknowledged after the return", file: "client/keepalive.go",
			old: "	k.inbox.awaitReturns(k.session.ended)\n", new: "",
			pkg: "./client", test: "TestRecallIsAcknowledgedAfterTheReturn",
		},
		{
			name: "an audit ends the use of a lock that goes on by then", file: "client/audit.go",
			old: "	if h.lock != nil && h.lock.firstUse == l.firstUse {\n", new: "	if h.lock == l {\n",
			pkg: "./client", test: "TestAuditEndsALaterUseOfTheLock",
		},
	}
}
