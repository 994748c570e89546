package main

import "slices"

// safeguards lists the safeguards. An entry that no longer fits the source is an error, not a
// pass.
func safeguards() []safeguard {
	return slices.Concat(
		plumbingSafeguards(),
		replicatedSafeguards(),
		masterSafeguards(),
		promiseSafeguards(),
		cacheSafeguards(),
		cacheLeaseSafeguards(),
		leaseSafeguards(),
		recipeSafeguards(),
		shellRecipeSafeguards(),
		coordinationSafeguards(),
		transactionSafeguards(),
		librarySafeguards(),
		commandSafeguards(),
		supervisionSafeguards(),
		paperSafeguards(),
		toldSafeguards(),
		answerSafeguards(),
		boundSafeguards(),
		replicaSafeguards(),
		limitSafeguards(),
		identitySafeguards(),
		forgettingSafeguards(),
		generationSafeguards(),
		outlivingSafeguards(),
		endSafeguards(),
		drillSafeguards(),
		operatorDrillSafeguards(),
		clientSafeguards(),
		restartSafeguards(),
		crashSafeguards(),
		typingSafeguards(),
		crowdSafeguards(),
		momentSafeguards(),
		queueSafeguards(),
		streamSafeguards(),
		lateSafeguards(),
		scenarioSafeguards(),
		againSafeguards(),
		stopSafeguards(),
		doubtSafeguards(),
		terminalSafeguards(),
		arrivalSafeguards(),
		heldSafeguards(),
		waitSafeguards(),
		rotSafeguards(),
		roomSafeguards(),
		lineSafeguards(),
		encodingSafeguards(),
		mannersSafeguards(),
		conditionSafeguards(),
		commandLineSafeguards(),
		crowdingSafeguards(),
		reapingSafeguards(),
		resizingSafeguards(),
		strangerSafeguards(),
		httpPortSafeguards(),
		traceSafeguards(),
		loggingSafeguards(),
		silenceSafeguards(),
		keptSafeguards(),
		quietSafeguards(),
		snapshotSafeguards(),
		codecSafeguards(),
		frameSafeguards(),
		parkedSafeguards(),
		certificateSafeguards(),
		tokenSafeguards(),
		shownSafeguards(),
		sightSafeguards(),
		backupSafeguards(),
		restoreSafeguards(), restoredNumberSafeguards(),
		pastSafeguards(),
		deadlockSafeguards(),
		recoverySafeguards(),
		spareSafeguards(),
		contradictionSafeguards(),
		namesSafeguards(),
		scheduleSafeguards(),
		operatorSafeguards(),
		auditSafeguards(),
		actSafeguards(),
		memberSafeguards(),
		certifiedSafeguards(),
		channelSafeguards(),
		deadMasterSafeguards(),
		rateSafeguards(),
		restSafeguards(),
		overviewSafeguards(),
		misuseSafeguards(),
		consoleSafeguards(),
		consolePageSafeguards(),
		meterSafeguards(),
		shortSafeguards(),
		portSafeguards(),
		adapterSafeguards(),
	)
}

// coordinationSafeguards cover what client/recipe makes of locks, files and sessions.
func coordinationSafeguards() []safeguard {
	return slices.Concat(
		workQueueSafeguards(),
		untriedSafeguards(),
		queueRoomSafeguards(),
		treeSafeguards(),
		counterSafeguards(),
		weightSafeguards(),
		uncertainSafeguards(),
		healthSafeguards(),
		reentrySafeguards(),
	)
}

// adapterSafeguards cover the modules of contrib.
func adapterSafeguards() []safeguard {
	return slices.Concat(
		cronSafeguards(),
		certificateStoreSafeguards(),
		vaultSafeguards(),
	)
}

// replicatedSafeguards cover the replicated state.
func replicatedSafeguards() []safeguard {
	return []safeguard{
		{
			name: "entries of another epoch are refused", file: "raftfsm/state.go",
			old: "case uint64(e.Epoch) != term:", new: "case false:",
			pkg: "./raftfsm", test: "TestStaleEpochsAreRefused",
		},
		{
			name: "an epoch begins with its first entry", file: "raftfsm/state.go",
			old: "case s.Epoch != e.Epoch:", new: "case false:",
			pkg: "./raftfsm", test: "TestStaleEpochsAreRefused",
		},
		{
			name: "a retry gets the first answer", file: "raftfsm/state.go",
			old: "	case done:\n", new: "	case done && false:\n",
			pkg: "./raftfsm", test: "TestRetriesAreAnsweredOnce",
		},
		{
			name: "a retry gets the first answer (whole cell)", file: "raftfsm/state.go",
			old: "	case done:\n", new: "	case done && false:\n",
			pkg: "./cell", test: "TestExactlyOnce",
		},
		{
			name: "a repeated grant stands only while it is held", file: "raftfsm/state.go",
			old: "err == nil && node.Lock == a.Generation &&", new: "true || err == nil && node.Lock == a.Generation &&",
			pkg: "./raftfsm", test: "TestReplayedGrant",
		},
		{
			name: "Release grants in the same entry", file: "raftfsm/locks.go",
			old: "		s.handOver(&r, c.Successions, wall)\n		return r\n", new: "		return r\n",
			pkg: "./raftfsm", test: "TestHandOverInOneEntry",
		},
		{
			name: "a failed holder leaves its lock-delay", file: "raftfsm/command.go",
			old: "return e.Reason != api.ByClose", new: "return false",
			pkg: "./raftfsm", test: "TestLockDelay",
		},
		{
			name: "an entry that cannot be read ends the replica", file: "cell/internal/fsm/fsm.go",
			old: "		f.fatal(broke)\n", new: "",
			pkg: "./cell/internal/fsm", test: "TestUnreadableEntryIsFatal",
		},
		{
			name: "a snapshot's checksum is checked", file: "raftfsm/snapshot.go",
			old: "	if !bytes.Equal(sum, want) {", new: "	if false && !bytes.Equal(sum, want) {",
			pkg: "./raftfsm", test: "TestDamagedSnapshots",
		},
	}
}

// masterSafeguards cover the master and leases.
func masterSafeguards() []safeguard {
	return []safeguard{
		{
			name: "Release names its successors", file: "cell/internal/master/locks.go",
			old: "			Successions: l.offers.successorsOf(h.Node, func(n *namespace.Node) bool { return n.Lock == generation && n.Holds(h.Owner) }),\n", new: "",
			pkg: "./e2e", test: "TestHandOverEntries",
		},
		{
			name: "the queue keeps the order of tickets", file: "cell/internal/master/queue.go",
			old: "	if !back {", new: "	if true {",
			pkg: "./cell", test: "TestQueueKeepsItsOrder",
		},
		{
			name: "readers do not overtake a writer", file: "cell/internal/master/queue.go",
			old: "		held = w.claim.Mode\n", new: "		if w.claim.Mode == api.Shared {\n			held = api.Shared\n		}\n",
			pkg: "./cell", test: "TestReadersAndWriters",
		},
		{
			name: "the master times the whole lock-delay", file: "cell/internal/master/observer.go",
			old: "o.tables.delays.start(name, d.ID, d.For, o.epoch.clock())", new: "o.tables.delays.start(name, d.ID, 0, o.epoch.clock())",
			pkg: "./cell", test: "TestLockPassesOnAfterLeaseAndDelay",
		},
		{
			name: "withdrawing a request leaves no trace", file: "cell/internal/master/observer.go",
			old: "	if w := o.tables.queues.answerWaiter(key, r.Answer); w != nil {", new: "	if w := o.tables.queues.get(key); w != nil && false {",
			pkg: "./cell", test: "TestGivingUp",
		},
		{
			name: "an expiring session is never extended", file: "session/leases.go",
			old: "	if s.place == expiring {\n		return false\n	}\n", new: "	if s.place == expiring {\n		return true\n	}\n",
			pkg: "./session", test: "TestExpiringIsNeverExtended",
		},
		{
			name: "a late look at the clock is a pause", file: "session/pauses.go",
			old: "	case gap <= MaxTick:\n", new: "	case true:\n",
			pkg: "./session", test: "TestLateLookIsAPause",
		},
		{
			name: "a lost KeepAlive reply is made good at once", file: "cell/internal/master/keepalive.go",
			old: " || h.Grant < box.grant ||", new: " ||",
			pkg: "./cell", test: "TestLostKeepAliveReply",
		},
		{
			name: "a master that hangs is noticed by who waits for it", file: "client/dispatcher.go",
			old: "		defer d.watchAnswer(ctx, t).answered()\n", new: "",
			pkg: "./client", test: "TestMasterStops",
		},
		{
			name: "a client counts its lease from when it asked", file: "session/local.go",
			old: "func (g Grant) end(sent Instant) Instant {", new: "func (g Grant) end(sent Instant) Instant {\n	sent = sent.Add(g.Parked)\n",
			pkg: "./session", test: "TestNobodyBelievesTooLong|TestLocalFollowsTheFormula",
		},
	}
}

// plumbingSafeguards cover what is around Raft.
func plumbingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the fence proves leadership", file: "cell/internal/peer/fence.go",
			old: "	r, err := f.joinRound()\n", new: "	if true {\n		return f.Clock(), nil\n	}\n	r, err := f.joinRound()\n",
			pkg: "./cell/internal/peer", test: "TestDeposedMasterCannotProve",
		},
		{
			name: "the fence proves leadership (whole cell)", file: "cell/internal/peer/fence.go",
			old: "	r, err := f.joinRound()\n", new: "	if true {\n		return f.Clock(), nil\n	}\n	r, err := f.joinRound()\n",
			pkg: "./cell", test: "TestDeposedMaster",
		},
		{
			name: "heartbeats take Raft's main goroutine", file: "cell/internal/peer/transport.go",
			old: "SetHeartbeatHandler(func(raft.RPC)) {\n	t.NetworkTransport.SetHeartbeatHandler(nil)",
			new: "SetHeartbeatHandler(handle func(raft.RPC)) {\n	t.NetworkTransport.SetHeartbeatHandler(handle)",
			pkg: "./cell/internal/peer", test: "TestHeartbeatsCannotForkTheLog",
		},
		{
			name: "every log entry has a checksum", file: "cell/internal/disk/logentry.go",
			old: "	if logSum(log) != sum {", new: "	if false && logSum(log) != sum {",
			pkg: "./cell/internal/disk", test: "TestLogChecksum",
		},
		{
			name: "the end of the log is noted", file: "cell/internal/disk/logend.go",
			old: "ok && last < noted", new: "ok && false && last < noted",
			pkg: "./cell/internal/disk", test: "TestWALNotesItsEnd",
		},
	}
}
