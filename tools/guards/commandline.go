package main

// commandLineSafeguards cover the manners of the command line: transactions, help, and names that do not fit.
func commandLineSafeguards() []safeguard {
	return []safeguard{
		{
			name: "txn asks before it takes a right away", file: "cmd/chubbyctl/txn.go",
			old: "confirmListChanges(ctx, c, t.lists())", new: "confirmListChanges(ctx, c, nil)",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "txn asks for all lists together", file: "cmd/chubbyctl/consent.go",
			old: "		l.changed[p.Base()] = after\n", new: "		if p == paths[0] {\n			l.changed[p.Base()] = after\n		}\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "txn: a file that is there already has the exit code of a condition", file: "cmd/chubbyctl/txn.go",
			old: "	if code == api.BadSequencer || code == api.Exists {", new: "	if code == api.BadSequencer {",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "txn reads one value from standard input", file: "cmd/chubbyctl/txnstep.go",
			old: "			if input != nil {\n", new: "			if input != nil && s.path.IsRoot() {\n",
			pkg: "./cmd/chubbyctl", test: "TestTxnFaults",
		},
		{
			name: "txn names the flag that is too much", file: "cmd/chubbyctl/txnstep.go",
			old: "size > api.MaxContents {\n", new: "size > 2*api.MaxContents {\n",
			pkg: "./cmd/chubbyctl", test: "TestTxnFaults",
		},
		{
			name: "txn names no flag that may be the wrong one", file: "cmd/chubbyctl/txn.go",
			old: "		if about && found != nil {\n", new: "		if about && found != nil && s.path.IsZero() {\n",
			pkg: "./cmd/chubbyctl", test: "TestStepOfAnError",
		},
		{
			name: "acquire --give-way lets go", file: "cmd/chubbyctl/giveway.go",
			old: "asked: c.asked, yield: true", new: "asked: c.asked, yield: false",
			pkg: "./cmd/chubbyctl", test: "TestGiveWay",
		},
		{
			name: "help fits the terminal", file: "internal/helptext/wrap.go",
			old: "		case at+1+n > width:\n", new: "		case at+1+n > 2*width:\n",
			pkg: "./internal/helptext", test: "TestHelp",
		},
		{
			name: "help of chubbyctl fits the terminal", file: "cmd/chubbyctl/root.go",
			old: "	helptext.Install(root, ", new: "	helptext.Install(&cobra.Command{}, ",
			pkg: "./cmd/chubbyctl", test: "TestHelpFits",
		},
		{
			name: "help of chubbyd fits the terminal", file: "cmd/chubbyd/root.go",
			old: "	helptext.Install(root, ", new: "	helptext.Install(&cobra.Command{}, ",
			pkg: "./cmd/chubbyd", test: "TestHelpFits",
		},
		{
			name: "names in tables are broken between their parts", file: "cmd/chubbyctl/internal/term/text.go",
			old: "			cut = breakInWord(text[:cut])\n", new: "			_ = breakInWord(text[:cut])\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestFold",
		},
	}
}
