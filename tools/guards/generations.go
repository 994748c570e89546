package main

// generationSafeguards cover the meaning of generations.
func generationSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a generation outlives its node", file: "raftfsm/files.go",
			old: "ModifiedUnix: s.modifiedUnix(wall)}, s.drawGeneration)", new: "ModifiedUnix: s.modifiedUnix(wall)}, func() api.Generation { return node.Content + 1 })",
			pkg: "./raftfsm", test: "TestGenerationOutlivesTheNode",
		},
		{
			name: "a generation outlives its node (whole cell)", file: "namespace/file.go",
			old: "		Content:   instance,\n", new: "		Content:   1,\n",
			pkg: "./e2e", test: "TestAPI/nodes/compare-and-swap",
		},
		{
			name: "an unknown level stops the replica", file: "raftfsm/history.go",
			old: "	if err := checkLevel(s.Level, known); err != nil {\n", new: "	if err := checkLevel(s.Level, known); false {\n",
			pkg: "./raftfsm", test: "TestUnknownLevelIsRefused",
		},
		{
			name: "a newer master does not stop older replicas", file: "raftfsm/state.go",
			old: "	s.Epoch = epoch\n	return Result{}\n", new: "	s.Epoch, s.Level = epoch, max(s.Level, c.Level)\n	return Result{}\n",
			pkg: "./raftfsm", test: "TestUnknownLevelIsRefused",
		},
		{
			name: "times of writes are kept from level 2 on", file: "raftfsm/level.go",
			old: "	if s.Level < 2 {\n", new: "	if s.Level < 1 {\n",
			pkg: "./raftfsm", test: "TestModifiedFromLevelTwo|TestMillion",
		},
		{
			name: "the level of a cell does not go back", file: "raftfsm/level.go",
			old: "		if c.To <= s.Level {\n", new: "		if c.To == s.Level {\n",
			pkg: "./raftfsm", test: "TestRaiseLevel|TestMillion",
		},
		{
			name: "a command above the cell's level is not proposed", file: "raftfsm/codec.go",
			old: "	if err := checkCommand(c, level); err != nil {\n", new: "	if err := checkCommand(c, level); false {\n",
			pkg: "./raftfsm", test: "TestCommandAboveTheLevel",
		},
		{
			name: "an upgrade is finished when every replica knows the level", file: "cell/internal/wire/upgrade.go",
			old: "		if all && newest > m.Level() {\n", new: "		_ = all\n		if newest > m.Level() {\n",
			pkg: "./cell", test: "TestUpgrade",
		},
		{
			name: "a silent replica keeps an upgrade from being called finished", file: "client/upgrade.go",
			old: "		case m.MaxLevel == 0:\n", new: "		case m.MaxLevel == 0 && u.Level < u.Newest:\n",
			pkg: "./cell", test: "TestFinishNeedsEveryAnswer",
		},
		{
			name: "an upgrade can be finished twice at once", file: "cell/internal/wire/upgrade.go",
			old: "			if err != nil && m.Level() < newest {", new: "			if err != nil {",
			pkg: "./cell", test: "TestUpgradeIsFinishedTwiceAtOnce",
		},
		{
			name: "without a master no replica is told that it can go back", file: "cmd/chubbyctl/cellupgrade.go",
			old: "	if f.masterless {\n", new: "	if false {\n",
			pkg: "./cmd/chubbyctl", test: "TestUpgradeWithoutMaster",
		},
		{
			name: "both versions refuse by the same limits", file: "api/limits.go",
			old: "	MaxReason    = 256 ", new: "	MaxReason    = 300 ",
			pkg: "./raftfsm", test: "TestLimitsAreThoseOfTheRelease",
		},
		{
			name: "strangers finish no upgrade", file: "raftfsm/level.go",
			old: "		if err := s.PermitOperator(s.principal(c.Mutation.Session)); err != nil {\n			return refuse(err)\n", new: "		if err := s.PermitOperator(s.principal(c.Mutation.Session)); false {\n			return refuse(err)\n",
			pkg: "./raftfsm", test: "TestRaiseLevel|TestMillion",
		},
		{
			name: "replicas tell each other what level they know", file: "cell/internal/peer/probe.go",
			old: "		binary.BigEndian.PutUint64(frame[40:], r.MaxLevel)\n", new: "",
			pkg: "./cell", test: "TestUpgrade",
		},
	}
}
