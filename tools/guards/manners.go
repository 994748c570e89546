package main

// mannersSafeguards cover what the command line asks for before it acts, and whom it speaks for.
func mannersSafeguards() []safeguard {
	return []safeguard{
		{
			name: "rm -r asks", file: "cmd/chubbyctl/rmtree.go",
			old: "		if !yes {\n", new: "		if yes && !yes {\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "rm -r leaves ephemeral nodes", file: "cmd/chubbyctl/rmtree.go",
			old: "	if !s.Ephemeral {\n", new: "	if s.Path.IsRoot() || !s.Path.IsZero() {\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "rm -r leaves the access control lists", file: "cmd/chubbyctl/rmtree.go",
			old: "	case p.Name() == api.ACLDir, isList(p):\n", new: "	case p.IsZero():\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "a directory is not copied into itself", file: "cmd/chubbyctl/cptree.go",
			old: "		case mayBeInside(from, to):\n", new: "		case from == to:\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "an export without an end was cut", file: "cmd/chubbyctl/export.go",
			old: "	case line.End && line.Nodes != r.nodes:\n", new: "	case line.End && line.Nodes < 0:\n",
			pkg: "./cmd/chubbyctl", test: "TestCutExports",
		},
		{
			name: "import replaces nothing that is there", file: "cmd/chubbyctl/import.go",
			old: "i.put(ctx, p, kind, contents, !i.overwrite)", new: "i.put(ctx, p, kind, contents, false)",
			pkg: "./cmd/chubbyctl", test: "TestExportAndImport",
		},
		{
			name: "a mistyped default cell is refused", file: "cmd/chubbyctl/config.go",
			old: "slices.Contains(configured, cell), os.Getenv", new: "!slices.Contains(configured, cell), os.Getenv",
			pkg: "./cmd/chubbyctl", test: "TestUsableCells",
		},
		{
			name: "an empty path is no path", file: "cmd/chubbyctl/path.go",
			old: `err == nil || text == "" || first`, new: `err == nil || first`,
			pkg: "./cmd/chubbyctl", test: "TestPathsInTheDefaultCell",
		},
		{
			name: "only a cell of dev is told the name of an account", file: "cmd/chubbyctl/devcell.go",
			old: `!runs || !dev.servesAll(g.servers) || `, new: `!runs || len(dev.Replicas) > 9 || `,
			pkg: "./cmd/chubbyctl", test: "TestPrincipalInADevCell",
		},
		{
			name: "only a cell of dev that runs is told the name of an account", file: "cmd/chubbyctl/devcell.go",
			old: ` || !isLocked(filepath.Join(dir, "lock")) {`, new: ` || dir == "" {`,
			pkg: "./cmd/chubbyctl", test: "TestPrincipalInADevCell",
		},
		{
			name: "strings keep their quotes in YAML", file: "cmd/chubbyctl/internal/term/programs.go",
			old: "	if n.Kind != yaml.ScalarNode {\n", new: "	if n.Kind != 0 {\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestYAMLIsJSON",
		},
		{
			name: "an answer that could not be written is a failure", file: "cmd/chubbyctl/main.go",
			old: "out.Failure(), unread)", new: "nil, unread)",
			pkg: "./cmd/chubbyctl", test: "TestAnswerOnAFullDisk",
		},
		{
			name: "the first write that fails is noted", file: "cmd/chubbyctl/internal/term/outlet.go",
			old: "		o.note(failed)\n", new: "",
			pkg: "./cmd/chubbyctl", test: "TestAnswerOnAFullDisk|TestEveryAnswerIsWritten",
		},
		{
			name: "a reader that has gone kills nobody who holds a lock", file: "cmd/chubbyctl/main.go",
			old: "	unread := supervise.CatchBrokenPipes()\n", new: "	unread := 0\n",
			pkg: "./cmd/chubbyctl", test: "TestReaderThatHasGone",
		},
		{
			name: "help of chubbyd that could not be written is a failure", file: "cmd/chubbyd/main.go",
			old: "if err == nil && failed != nil {", new: "if false {",
			pkg: "./cmd/chubbyd", test: "TestHelpOnAFullDisk",
		},
		{
			name: "flags that do not go together are refused", file: "cmd/chubbyctl/root.go",
			old: "			if err := checkFlags(cmd); err != nil {\n", new: "			if err := checkFlags(cmd); false {\n",
			pkg: "./cmd/chubbyctl", test: "TestFlagsThatDoNotGoTogether",
		},
		{
			name: "a group without a command prints no help to programs", file: "cmd/chubbyctl/root.go",
			old: "	if len(args) == 0 && term.Format(", new: "	if len(args) > 9 && term.Format(",
			pkg: "./cmd/chubbyctl", test: "TestGroupsWithoutACommand",
		},
		{
			name: "an empty standard input is no value of a transaction", file: "cmd/chubbyctl/txnstep.go",
			old: "			if err == nil && len(s.value) == 0 && ", new: "			if err == nil && len(s.value) < 0 && ",
			pkg: "./cmd/chubbyctl", test: "TestTxnRefusesEmptyInput",
		},
		{
			name: "nothing of a narrow table is lost", file: "cmd/chubbyctl/internal/term/table.go",
			old: "	for line := range lines {\n", new: "	for line := range min(lines, 1) {\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestTableFits",
		},
	}
}
