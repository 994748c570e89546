package main

// limitSafeguards cover what goes into the log, and how much of it waits.
func limitSafeguards() []safeguard {
	return []safeguard{
		{
			name: "nodes that die together are removed in pieces", file: "cell/internal/master/remover.go",
			old: "	batch := firstPart(r.ready, r.queues.claims, ", new: "	batch := firstPart(r.ready, 1<<40, ",
			pkg: "./cell/internal/master", test: "TestDyingNodesFitTheLog",
		},
		{
			name: "sessions that end together end in pieces", file: "cell/internal/master/offers.go",
			old: "	part := firstPart(ends, o.queues.claims, ", new: "	part := firstPart(ends, 1<<40, ",
			pkg: "./cell/internal/master", test: "TestEndsAreCut",
		},
		{
			name: "a command names no more successors than fit", file: "cell/internal/master/offers.go",
			old: "len(list) > 0 && bytes > o.queues.claims", new: "false",
			pkg: "./cell/internal/master", test: "TestEndingSessionsFitTheLog",
		},
		{
			name: "those who were not named have the lock next", file: "cell/internal/master/observer.go",
			old: "slices.Concat(r.Free, r.Delayed, joinable(r.Claims))", new: "slices.Concat(r.Free, r.Delayed)",
			pkg: "./cell/internal/master", test: "TestEndingSessionsFitTheLog",
		},
		{
			name: "a command too large is refused", file: "cell/internal/master/proposer.go",
			old: "	case size > p.limits.command:\n", new: "	case false:\n",
			pkg: "./cell/internal/master", test: "TestCommandTooLargeIsRefused",
		},
		{
			name: "an entry is cut by its bytes", file: "cell/internal/master/proposer.go",
			old: "		if n > 0 && bytes > p.limits.batch {\n", new: "		if false {\n",
			pkg: "./cell/internal/master", test: "TestBatchesAreBoundedByBytes",
		},
		{
			name: "the bytes that wait are bounded", file: "cell/internal/master/proposer.go",
			old: " || p.bytes+size > bytes:", new: ":",
			pkg: "./cell/internal/master", test: "TestPendingBytesAreBounded",
		},
		{
			name: "an entry that could not be read is not written", file: "cell/internal/disk/failstoplogs.go",
			old: "n > limit {", new: "false {",
			pkg: "./cell/internal/disk", test: "TestEntryThatCannotBeReadIsNotWritten",
		},
		{
			name: "a slow cache delays its node only", file: "cell/internal/master/remover.go",
			old: "beginAtOnce, maxRemovals-len(r.waiting))", new: "beginAtOnce, 1-len(r.waiting))",
			pkg: "./cell/internal/master", test: "TestSlowCacheDelaysItsNodesOnly",
		},
		{
			name: "a removal waits for the fail-over to be acknowledged", file: "cell/internal/master/remover.go",
			old: "	return r.coherence.awaitCaches(r.epoch.ctx, flush, names)\n", new: "	r.epoch.mu.Lock()\n	defer r.epoch.mu.Unlock()\n	r.coherence.copyset.flush = nil\n	_ = flush\n	return nil\n",
			pkg: "./cell/internal/master", test: "TestRemovalWaitsForTheFailOver",
		},
		{
			name: "a removal that failed is made again", file: "cell/internal/master/remover.go",
			old: "	r.add(nodes...)\n	r.epoch.mu.Unlock()\n", new: "	r.epoch.mu.Unlock()\n",
			pkg: "./cell/internal/master", test: "TestRemovalIsMadeAgain",
		},
		{
			name: "a list is looked up, not read", file: "namespace/acl.go",
			old: "return file.list.names(l.principal)", new: "return parseList(file.Contents).names(l.principal)",
			pkg: "./namespace", test: "TestLongListsAreLookedUp",
		},
		{
			name: "a list is read when it is restored", file: "namespace/restore.go",
			old: "		n.list = parseList(n.Contents)\n", new: "",
			pkg: "./raftfsm", test: "TestDriver|TestMillion|TestSnapshot|TestSameLog",
		},
	}
}
