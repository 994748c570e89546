package main

// cacheSafeguards cover caches.
func cacheSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a change waits for the clients that cache", file: "cell/internal/master/coherence.go",
			old: "	for _, waits := range []*change{flush, ch, beside} {\n", new: "	for _, waits := range []*change{flush, beside} {\n",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "a change waits for the fail-over to be acknowledged", file: "cell/internal/master/coherence.go",
			old: "	for _, waits := range []*change{flush, ch, beside} {\n", new: "	_ = flush\n	for _, waits := range []*change{ch, beside} {\n",
			pkg: "./cell/internal/master", test: "TestChangeWaitsForFlush",
		},
		{
			name: "a node is uncacheable while it is changed", file: "cell/internal/master/copyset.go",
			old: "	if c.isChanging(name) {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "a node is uncacheable until the change is applied", file: "cell/internal/master/coherence.go",
			old: "	result, err := co.epoch.commit(ctx, c, done)\n",
			new: "	co.endChange(ch)\n	result, err := co.epoch.commit(ctx, c, after)\n",
			pkg: "./cell/internal/master", test: "TestUncacheableUntilApplied",
		},
		{
			name: "what was told is not what was acknowledged", file: "cell/internal/master/keepalive.go",
			old: "s.copyset.acknowledge(c.Session, box.received, maxSteps)", new: "s.copyset.acknowledge(c.Session, box.delivered, maxSteps)",
			pkg: "./cell/internal/master", test: "TestChangeWaitsForAcknowledgement",
		},
		{
			name: "the second change waits too", file: "cell/internal/master/copyset.go",
			old: "	if one.sequence > 0 {\n		return\n	}\n	one.posted = now\n", new: "	if one.sequence > 0 {\n		co.copyset.forget(one)\n		return\n	}\n	one.posted = now\n",
			pkg: "./cell/internal/master", test: "TestChangeWaitsForAcknowledgement",
		},
		{
			name: "what was refused stays refused", file: "cell/internal/master/coherence.go",
			old: "	result, err = co.epoch.refuseAs(ctx, by, because, after)\n	return result, true, err\n",
			new: "	_, err = co.epoch.fence.Prove(ctx)\n	after()\n	if err != nil {\n		return result, false, err\n	}\n	return result, true, because\n",
			pkg: "./cell/internal/master", test: "TestRefusalIsForGood",
		},
		{
			name: "the listing of the directory goes too", file: "cell/internal/master/coherence.go",
			old: "		list = append(list, name, name.Parent())\n", new: "		list = append(list, name)\n",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "the end of an ephemeral node is a change", file: "cell/internal/master/remover.go",
			old: "r.coherence.beginChange(0, namesTouched(one.node.Name))", new: "r.coherence.beginChange(0, namesTouched(\"/none\"))",
			pkg: "./cell/internal/master", test: "TestEphemeralDeathWaitsForCaches",
		},
		{
			name: "what is invalidated is dropped (the planted bug)", file: "client/keepalive.go",
			old: "		k.client.invalidatePath(e.GetPath())\n", new: "		_ = k.client.invalidatePath\n",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "a reply that an invalidation overtook is not kept", file: "client/cache.go",
			old: "	if f.spoiled || epoch", new: "	if epoch",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "what another master told is not kept", file: "client/cache.go",
			old: "|| epoch != c.epoch", new: "",
			pkg: "./client", test: "TestKeepOfAnotherEpoch",
		},
		{
			name: "a fail-over empties the cache", file: "client/keepalive.go",
			old: "		k.client.closeIdleHandles(k.client.cache.flush(epoch)) //", new: "		k.client.cache.mu.Lock()\n		k.client.cache.epoch = epoch\n		k.client.cache.mu.Unlock() //",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "one's own change puts aside what it touches", file: "client/mutate.go",
			old: "	c.cache.beginChange(m.touches, m.fetch)\n", new: "	m.touches = nil\n",
			pkg: "./cell", test: "TestCachesAreConsistent",
		},
		{
			name: "jeopardy empties the cache", file: "client/client.go",
			old: "func() { c.closeIdleHandles(c.cache.flush(0)) },\n", new: "func() {},\n",
			pkg: "./client", test: "TestJeopardyEmptiesTheCache",
		},
	}
}

// leaseSafeguards cover leases, and the end of an epoch.
func leaseSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a new master waits as long as leases may have been", file: "cell/internal/master/master.go",
			old: "		m.tables.leases.Inherit(s.ID, s.Lease, now)\n", new: "		m.tables.leases.Inherit(s.ID, s.Asked, now)\n",
			pkg: "./cell", test: "TestTakeoverHonoursLongLeases",
		},
		{
			name: "a longer lease is in the log before it is granted", file: "cell/internal/master/keepalive.go",
			old: "		return min(s.wantedLease(record), record.Lease)\n", new: "		return s.wantedLease(record)\n",
			pkg: "./cell/internal/master", test: "TestLongerLeaseIsInTheLogFirst",
		},
		{
			name: "a lease counts from the start of its proof", file: "cell/internal/master/parked.go",
			old: "	return s.extendLease(k, t0)\n", new: "	t0 = s.epoch.clock()\n	return s.extendLease(k, t0)\n",
			pkg: "./cell/internal/master", test: "TestLeaseCountsFromTheProof",
		},
		{
			name: "what is handed over as an epoch ends is answered", file: "cell/internal/master/proposer.go",
			old: "			resume, err := p.pause(ctx)\n			if err != nil {\n				return\n			}\n			batch := p.takeBatch() // only in a turn: what is taken is committed, and so answered\n",
			new: "			batch := p.takeBatch()\n			resume, err := p.pause(ctx)\n			if err != nil {\n				return\n			}\n",
			pkg: "./cell/internal/master", test: "TestProposalsAreAnsweredAtTheEnd",
		},
		{
			name: "a handle that caches nothing is not answered by the cache", file: "client/handlecache.go",
			old: "	if h.openedFor.noCache {\n", new: "	if false {\n",
			pkg: "./client", test: "TestHandleWithoutACacheBesideOneWithACache",
		},
	}
}
