package main

import "slices"

// quietSafeguards cover requests for locks that are told to no holder, and Opens that depend on a lock.
func quietSafeguards() []safeguard {
	return slices.Concat(quietRequestSafeguards(), blockedSafeguards())
}

func quietRequestSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a quiet waiter is told to no holder", file: "cell/internal/master/acquire.go",
			old: "claim, asked.quiet)\n", new: "claim, false)\n",
			pkg: "./cell/internal/master", test: "TestQuietRequestsAreToldToNobody",
		},
		{
			name: "a quiet TryAcquire is told to no holder", file: "cell/internal/master/locks.go",
			old: "tellTried(claim, lock, nil, how.Quiet)", new: "tellTried(claim, lock, nil, false)",
			pkg: "./cell/internal/master", test: "TestQuietRequestsAreToldToNobody",
		},
		{
			name: "a quiet waiter is told to no successor", file: "cell/internal/master/events.go",
			old: "		p.postConflict(one, got.Lock, got.Generation, first.claim.Reason, first.quiet)\n", new: "		p.postConflict(one, got.Lock, got.Generation, first.claim.Reason, false)\n",
			pkg: "./cell/internal/master", test: "TestSuccessorHearsOfNobodyQuiet",
		},
		{
			name: "who is not quiet is told though a quiet one is in front", file: "cell/internal/master/events.go",
			old: "		first = cmp.Or(p.queues.firstAsking(got.Lock, got.Mode), first)\n", new: "		_, first = cmp.Or(p.queues.firstAsking(got.Lock, got.Mode), first), first\n",
			pkg: "./cell/internal/master", test: "TestQuietRequestsAreToldToNobody",
		},
		{
			name: "a quiet waiter is told to nobody by a Close that fails", file: "cell/internal/master/offers.go",
			old: "			o.events.tellConflict(w.lock, by, w.claim, w.quiet)\n", new: "			o.events.tellConflict(w.lock, by, w.claim, false)\n",
			pkg: "./cell/internal/master", test: "TestQuietWaiterOfAnUnclosedHandle",
		},
		{
			name: "a quiet request has a kept lock given back", file: "cell/internal/master/events.go",
			old: "(h.CachesLock || !quiet) {", new: "!quiet {",
			pkg: "./client", test: "TestQuietRequestOfAKeptLock",
		},
		{
			name: "a recall is not told to programs", file: "client/events.go",
			old: "		if recall || !h.kept.tellsConflicts {\n", new: "		if _ = recall; !h.kept.tellsConflicts {\n",
			pkg: "./client", test: "TestQuietRequestOfAKeptLock",
		},
		{
			name: "the cell is told that a request is quiet", file: "client/acquire.go",
			old: "Quiet: a.options.quiet, ", new: "",
			pkg: "./client", test: "TestQuietRequestDuringFailOver",
		},
		{
			name: "revocable locks do not ask each other", file: "client/recipe/revocable.go",
			old: "	if !o.Insist {\n", new: "	if false {\n",
			pkg: "./client/recipe", test: "TestRevocablesDoNotAskEachOther",
		},
		{
			name: "acquire --try and --give-way ask nobody", file: "cmd/chubbyctl/acquire.go",
			old: "	return o.giveWay || o.isOneTry()\n", new: "	return false\n",
			pkg: "./cmd/chubbyctl", test: "TestWhoIsAskedToGiveWay",
		},
		{
			name: "an Open depends on the sequencer in the log", file: "client/openif.go",
			old: "	return bound, err\n", new: "	_ = bound\n	return h.currentToken(), err\n",
			pkg: "./client", test: "TestOpenIfSequencerBindsTheOpen",
		},
		{
			name: "an Open depends on its sequencer", file: "client/open.go",
			old: "	if opts.IfSequencer != nil {\n", new: "	if false {\n",
			pkg: "./client", test: "TestOpenIfSequencer",
		},
		{
			name: "an Open that creates nothing is not uncertain", file: "client/open.go",
			old: "		m.undone = func(error) bool { return true } // all that there is of it is the handle\n", new: "",
			pkg: "./client", test: "TestOpenThatCreatesNothingIsNotUncertain",
		},
		{
			name: "an Open whose node was deleted meanwhile looks again", file: "client/open.go",
			old: "attempts > 1 && api.CodeOf(err) == api.HandleClosed, err", new: "attempts < 0, err",
			pkg: "./client", test: "TestOpenThatCreatesNothingIsNotUncertain",
		},
	}
}

// blockedSafeguards cover those who wait behind a quiet request, and what is left of an Open.
func blockedSafeguards() []safeguard {
	return []safeguard{
		{
			name: "who stands behind a quiet request asks", file: "cell/internal/master/acquire.go",
			old: "	l.events.tellBlocked(lock, w.owner())\n", new: "",
			pkg: "./cell/internal/master", test: "TestWhoIsBehindAQuietRequestAsks",
		},
		{
			name: "who stands behind a quiet request is told to who gets the lock", file: "cell/internal/master/queue.go",
			old: "blocked = blocked || w.claim.Mode.Conflicts(mode)", new: "blocked = w.claim.Mode.Conflicts(mode)",
			pkg: "./cell/internal/master", test: "TestWhoIsBehindAQuietRequestAsks",
		},
		{
			name: "who stands behind a quiet request asks after a Close that fails", file: "cell/internal/master/offers.go",
			old: "			o.events.tellBlocked(w.lock, by)\n", new: "",
			pkg: "./cell/internal/master", test: "TestWhoIsBehindAQuietRequestAsksAfterAClose",
		},
		{
			name: "a try that a quiet request stands in front of asks", file: "cell/internal/master/events.go",
			old: "		claim.Mode = overtaken.claim.Mode\n", new: "",
			pkg: "./cell/internal/master", test: "TestWhoIsBehindAQuietRequestAsks",
		},
		{
			name: "a try that is given up during a recall is told", file: "cell/internal/master/locks.go",
			old: "(overtaken != nil || ctx.Err() != nil)", new: "overtaken != nil",
			pkg: "./cell/internal/master", test: "TestTryThatIsGivenUpIsTold",
		},
		{
			name: "a quiet try has a lock given back that very many keep", file: "cell/internal/master/locks.go",
			old: "!(how.Quiet && asked) {", new: "!(how.Quiet || asked && how.Quiet) {",
			pkg: "./cell/internal/master", test: "TestQuietTryRecallsOfVeryMany",
		},
		{
			name: "an Open that may create looks again, too", file: "client/open.go",
			old: "			return request.GetCreate() == chubbypb.Create_CREATE_MAY && api.CodeOf(err) == api.HandleClosed\n", new: "			return false\n",
			pkg: "./client", test: "TestDeletedAfterALostAnswer",
		},
		{
			name: "a session of a test ends with it", file: "cell/celltest/host.go",
			old: "		_ = one.Close(ctx) // its host may be cut off, or its session gone\n", new: "		_ = ctx\n",
			pkg: "./cell/celltest", test: "TestSessionsEndWithTheirTest",
		},
	}
}
