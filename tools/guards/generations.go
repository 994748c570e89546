package main

// generationSafeguards are those of what a generation stands for.
func generationSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a generation outlives its node", file: "raftfsm/files.go",
			old: "c.IfContent, s.drawGeneration)", new: "c.IfContent, func() api.Generation { return node.Content + 1 })",
			pkg: "./raftfsm", test: "TestGenerationOutlivesTheNode",
		},
		{
			name: "a generation outlives its node (whole cell)", file: "namespace/file.go",
			old: "		Content:   instance,\n", new: "		Content:   1,\n",
			pkg: "./e2e", test: "TestAPI/nodes/compare-and-swap",
		},
		{
			name: "an unknown level stops the replica", file: "raftfsm/fsm.go",
			old: "		err = f.now.checkEntry(entry)\n", new: "		_ = f.now.checkEntry\n",
			pkg: "./raftfsm", test: "TestUnknownLevelIsRefused",
		},
		{
			name: "a newer master does not stop older replicas", file: "raftfsm/level.go",
			old: "		if c.NewEpoch == nil || s.Cell != \"\" {\n", new: "		if c.NewEpoch == nil {\n",
			pkg: "./raftfsm", test: "TestUnknownLevelIsRefused",
		},
	}
}
