package main

// deadMasterSafeguards cover the replacement of a master whose process has died.
func deadMasterSafeguards() []safeguard {
	const celltest = "./cell/celltest"
	return []safeguard{
		{
			name: "a replica notices that a stream of the master's is lost", file: "cell/internal/peer/transport.go",
			old: "		s.port.Lost(s.from)\n", new: "		_ = s.from\n",
			pkg: celltest, test: "TestDeadMasterIsReplacedAtOnce",
		},
		{
			name: "a master that takes connections is not replaced", file: "cell/deadmaster.go",
			old: "if r.port.Refused(", new: "if true || r.port.Refused(",
			pkg: celltest, test: "TestBrokenStreamsElectNobody",
		},
		{
			name: "replicas ask in turn, and see who has asked before", file: "cell/deadmaster.go",
			old: "	pause(ctx, time.Duration(turn)*standTurn)\n", new: "	_ = turn\n",
			pkg: celltest, test: "TestDeadMasterIsReplacedByOneElection",
		},
		{
			name: "who could ask nobody asks when the master has died", file: "cell/deadmaster.go",
			old: "another asks this replica, in its turn\n		return false\n", new: "another asks this replica, in its turn\n		return true\n",
			pkg: celltest, test: "TestDeadMasterIsReplacedByWhoWasRefusedBefore",
		},
		{
			name: "a successor's log is the longest", file: "cell/deadmaster.go",
			old: "		if e.last >= own {\n", new: "		if e.last >= 0 {\n",
			pkg: "./cell", test: "TestLongestLogSucceeds",
		},
	}
}
