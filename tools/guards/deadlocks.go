package main

// deadlockSafeguards are those of requests that wait for each other.
func deadlockSafeguards() []safeguard {
	const graph = "cell/internal/master/waitgraph.go"
	return []safeguard{
		{
			name: "a deadlock is told when its last request comes", file: "cell/internal/master/acquire.go",
			old: "	l.graph.joined(w)\n", new: "",
			pkg: "./client", test: "TestDeadlockIsTold",
		},
		{
			name: "the next master knows whose a lock is", file: "raftfsm/locks.go",
			old: ", DeclaredOwner: c.DeclaredOwner}", new: "}",
			pkg: "./cell/internal/master", test: "TestDeadlocksAreFoundAndNoOthers",
		},
		{
			name: "a kept lock is no deadlock", file: graph,
			old: " || handle == nil || handle.CachesLock {", new: " || handle == nil {",
			pkg: "./cell/internal/master", test: "TestKeptLockIsNoDeadlock",
		},
		{
			name: "a lock that is being taken is no deadlock", file: graph,
			old: " && node.Revoked == nil && node.Mode", new: " && node.Mode",
			pkg: "./cell/internal/master", test: "TestBrokenLockIsNoDeadlock",
		},
		{
			name: "a deadlock does not name what its reader may not see", file: graph,
			old: "		if seen.reads(edge.by.lock.Name) {\n", new: "		if true {\n",
			pkg: "./cell/internal/master", test: "TestDeadlockHidesNames",
		},
		{
			name: "nothing is looked at where nobody asks for deadlocks", file: graph,
			old: "	if len(g.queues.detecting) > 0 && !w.offered {", new: "	if !w.offered {",
			pkg: "./cell/internal/master", test: "TestDeadlocksThatNobodyAsksForCostNothing",
		},
		{
			name: "who did not ask is not told of a deadlock", file: graph,
			old: "			if edge.by.detects && (at < 0", new: "			if (at < 0",
			pkg: "./cell/internal/master", test: "TestDeadlocksAreFoundAndNoOthers",
		},
	}
}
