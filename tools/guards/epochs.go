package main

// epochSafeguards cover elections, epochs and lock-delays.
func epochSafeguards() []safeguard {
	return []safeguard{
		{
			name: "an epoch begins once", file: "raftfsm/state.go",
			old: "	if epoch <= s.Epoch {\n", new: "	if false {\n",
			pkg: "./raftfsm", test: "TestEpochBeginsOnce|TestMillion",
		},
		{
			name: "old news of an election end no epoch", file: "cell/epochs.go",
			old: "running.end != nil && (!leads || term != begun):", new: "running.end != nil:",
			pkg: "./cell", test: "TestOldNewsBeginNoEpoch",
		},
		{
			name: "an elected replica tries again to take over", file: "cell/epochs.go",
			old: "		case <-time.After(retry):\n", new: "",
			pkg: "./cell", test: "TestElectedAndUnableToTakeOver",
		},
		{
			name: "a leader that cannot take over ends itself", file: "cell/epochs.go",
			old: "			failing = time.After(limit)\n", new: "",
			pkg: "./cell", test: "TestElectedAndUnableToTakeOver",
		},
		{
			name: "a leader serves when its epoch has begun", file: "cell/health.go",
			old: " && h.Epoch == r.raft.CurrentTerm()", new: "",
			pkg: "./cell", test: "TestElectedAndUnableToTakeOver",
		},
		{
			name: "an election takes less than a lease", file: "cell/config.go",
			old: " || cfg.ElectionTimeout > MaxElectionTimeout {", new: " {",
			pkg: "./cell", test: "TestElectionTimeoutIsBelowEveryLease",
		},
		{
			name: "one hand-over goes on at a time", file: "cell/replica.go",
			old: "handing: make(chan struct{}, 1)", new: "handing: make(chan struct{}, 2)",
			pkg: "./cell", test: "TestOneHandOverAtATime",
		},
		{
			name: "the mastership goes to a replica that answers and is caught up", file: "cell/transfer.go",
			old: "	ask()\n	for {\n", new: "	ask()\n	for {\n		return replicas[0], nil\n",
			pkg: "./cell", test: "TestTransferToADeadReplica",
		},
		{
			name: "a hand-over by a test is tried again", file: "cell/celltest/drill.go",
			old: "		if ctx.Err() != nil {\n			c.t.Fatalf(\"replica %s is still", new: "		if ctx.Err() != nil || last != nil {\n			c.t.Fatalf(\"replica %s is still",
			pkg: "./cell/celltest", test: "TestTransferAfterIsolation",
		},
		{
			name: "a lock-delay is timed by its id", file: "cell/internal/master/delays.go",
			old: "	if id < d.ids[name] {\n", new: "	if false {\n",
			pkg: "./cell/internal/master", test: "TestDelaysAreTimedByID",
		},
		{
			name: "the end of one lock-delay does not end the next", file: "cell/internal/master/offers.go",
			old: "	if d, ok := tree.Delay(over.name); !ok || d.ID != over.id {\n		return\n	}\n	c := &raftfsm.EndDelay{Name: over.name, ID: over.id}",
			new: "	d, ok := tree.Delay(over.name)\n	if !ok {\n		return\n	}\n	c := &raftfsm.EndDelay{Name: over.name, ID: d.ID}",
			pkg: "./cell/internal/master", test: "TestDelayOfTheSecondHolder",
		},
	}
}
