package main

// clientSafeguards cover the client library's errors for calls without a result, and its work
// in the background.
func clientSafeguards() []safeguard {
	return []safeguard{
		{
			name: "what gives back is carried through although it was refused for now", file: "client/mutate.go",
			old: "		if result == outcomeNotDone {\n", new: "		if attempts == 0 {\n",
			pkg: "./client", test: "TestRefusedCloseAndReleaseAreCarriedThrough",
		},
		{
			name: "no sequencer is no condition that is met", file: "client/write.go",
			old: "	if o.noSequencer {\n", new: "	if o.noSequencer && false {\n",
			pkg: "./client", test: "TestIfSequencerOfNoSequencer",
		},
		{
			name: "a lock is asked about, whatever its handle is bound to", file: "client/audit.go",
			old: "Handle: l.handle.openToken()", new: "Handle: l.handle.currentToken()",
			pkg: "./client", test: "TestBoundHandleIsAuditedAsOpened",
		},
		{
			name: "the last event is found before the end", file: "client/events.go",
			old: "		why := h.client.session.errIfGone() // before takeEvent, which then finds all events that came before the end\n		e, news, broken := h.takeEvent()\n",
			new: "		e, news, broken := h.takeEvent()\n		why := h.client.session.errIfGone()\n",
			pkg: "./client", test: "TestLastEventIsFoundBeforeTheEnd",
		},
		{
			name: "no call is sent to a superseded master", file: "client/dispatcher.go",
			old: "other != nil && other != t {", new: "other != nil && other != t && false {",
			pkg: "./client", test: "TestCallIsNotSentToASupersededMaster",
		},
		{
			name: "a call ends with its session", file: "client/dispatcher.go",
			old: "		defer context.AfterFunc(k.session.ended, cancel)()\n", new: "",
			pkg: "./client", test: "TestCallsEndWithTheirSession",
		},
		{
			name: "a replica that is asked for itself is not forgotten", file: "client/pool.go",
			old: "t.borrowers == 0 && !slices", new: "!slices",
			pkg: "./client", test: "TestStatusWhileAMasterIsFound",
		},
		{
			name: "a handle closed in a new epoch is not kept", file: "client/idlehandles.go",
			old: "one.epoch != c.epoch || c.idle", new: "c.idle",
			pkg: "./client", test: "TestHandleClosedInANewEpochIsNotKept",
		},
		{
			name: "grants are counted anew in each epoch", file: "client/session.go",
			old: "if s.local.Epoch() != s.epoch {", new: "if false {",
			pkg: "./client", test: "TestGrantsAreCountedAnewInEachEpoch",
		},
		{
			name: "a replica of two addresses is one", file: "client/pool.go",
			old: "	return t.address == a.address || t.replica", new: "	return t.address == a.address || false && t.replica",
			pkg: "./client", test: "TestSlowMasterOfTwoAddresses",
		},
		{
			name: "a conflict is told after the fail-over", file: "client/events.go",
			old: "		h.pendingConflict = &e\n", new: "		h.pendingConflict = nil\n",
			pkg: "./client", test: "TestConflictIsToldAfterTheFailOver",
		},
		{
			name: "a new master tells a holder who waits already", file: "cell/internal/master/files.go",
			old: "	if one != known {\n", new: "	if one != known && false {\n",
			pkg: "./client", test: "TestConflictDuringFailOverIsTold",
		},
		{
			name: "an event of an unknown kind is not acknowledged before locks were asked about", file: "client/keepalive.go",
			old: "	k.handleMissingEvents(e.GetSequence()-1, \"the master told", new: "	k.handleMissingEvents(e.GetSequence(), \"the master told",
			pkg: "./client", test: "TestUnknownEventsHoldBack",
		},
	}
}
