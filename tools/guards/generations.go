package main

// generationGuards are those of what a generation stands for.
func generationGuards() []guard {
	return []guard{
		{
			name: "a generation outlives its node", file: "raftfsm/version.go",
			old: "	if s.Version == 0 {\n		return was + 1\n	}\n	return s.drawGeneration()", new: "	return was + 1",
			pkg: "./raftfsm", test: "TestGenerationOutlivesTheNode",
		},
		{
			name: "a generation outlives its node (whole cell)", file: "raftfsm/version.go",
			old: "	if s.Version == 0 {\n		return 1\n	}\n	return 0\n", new: "	return 1\n",
			pkg: "./e2e", test: "TestAPI/nodes/compare-and-swap",
		},
		{
			name: "old entries do what they did", file: "raftfsm/version.go",
			old: "	if s.Version == 0 {\n		return was + 1\n	}\n", new: "",
			pkg: "./raftfsm", test: "TestOldStateGoesOn",
		},
		{
			name: "the counter is above what was counted in nodes", file: "raftfsm/version.go",
			old: "		s.Counter = max(s.Counter, uint64(n.Content), uint64(n.ACLs))\n", new: "		_ = n\n",
			pkg: "./raftfsm", test: "TestOldStateGoesOn",
		},
		{
			name: "an unknown version stops the replica", file: "raftfsm/codec.go",
			old: "c.NewEpoch.Version > Version)", new: "false)",
			pkg: "./raftfsm", test: "TestUnknownVersionIsRefused",
		},
	}
}
