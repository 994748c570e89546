package main

// typingSafeguards cover what chubbyctl does for people who type, wait and read.
func typingSafeguards() []safeguard {
	const supervision = "cmd/chubbyctl/internal/supervise/"
	return []safeguard{
		{
			name: "nobody waits for who reads the messages", file: "cmd/chubbyctl/internal/term/speaker.go",
			old: "		within(idle, speechBound)\n", new: "		<-idle\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestProgressWithoutAReader",
		},
		{
			name: "a signal ends who waits for a reader", file: "cmd/chubbyctl/internal/term/speaker.go",
			old: "		signal.Reset(interrupts...)\n", new: "		_ = signal.Reset\n",
			pkg: "./cmd/chubbyctl", test: "TestSignalWhileNobodyReads",
		},
		{
			name: "put asks before a lock-out", file: "cmd/chubbyctl/put.go",
			old: "	if err := o.consent.confirmWrite(cmd.Context(), o.globals, p, &list); err != nil {\n", new: "	if err := o.consent.confirmWrite(cmd.Context(), o.globals, p, &list); false {\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "rm asks before a lock-out", file: "cmd/chubbyctl/rm.go",
			old: "	if err := agreed.confirmWrite(cmd.Context(), g, p, nil); err != nil {\n", new: "	if err := agreed.confirmWrite(cmd.Context(), g, p, nil); false {\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "a quota leaves who sets it a session", file: "cmd/chubbyctl/consent.go",
			old: "others >= sessions {", new: "others >= sessions && false {",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "a reload does not end the time of --at-least", file: "cmd/chubbyctl/again.go",
			old: "return s == syscall.SIGHUP })", new: "return s == syscall.SIGHUP && false })",
			pkg: "./cmd/chubbyctl", test: "TestWhatEndsAtLeast",
		},
		{
			name: "other children of the shell are spared", file: supervision + "process_unix.go",
			old: "	p.others = children()\n", new: "	_ = children\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestChildrenOfOthersAreSpared",
		},
		{
			name: "a command is fed in the foreground", file: supervision + "foreground_unix.go",
			old: "	if !p.starved || p.terminal == nil ||", new: "	if true || p.terminal == nil ||",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestBroughtToTheForeground",
		},
		{
			name: "a stopped command is told to end", file: supervision + "guardian_unix.go",
			old: "	if g.suspended && slices", new: "	if g.suspended && false && slices",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestInterruptOfAStoppedCommand",
		},
		{
			name: "a killed command leaves the terminal as it was", file: supervision + "ending_unix.go",
			old: "errors.Join(err, p.terminal.restoreSettings())", new: "errors.Join(err, nil)",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestTerminalIsSetBack",
		},
		{
			name: "a sequencer replaces no other file", file: "cmd/chubbyctl/sequencerfile.go",
			old: "	case info.Size() > 0 && !holds", new: "	case info.Size() > 0 && false && !holds",
			pkg: "./cmd/chubbyctl", test: "TestSequencerFileIsNobodyElses",
		},
		{
			name: "a closed terminal ends a cell in order", file: "cmd/chubbyd/hangup.go",
			old: "		signal.Notify(h.signal, syscall.SIGHUP)\n", new: "		_ = h\n",
			pkg: "./cmd/chubbyd", test: "TestClosedTerminalStopsDev",
		},
		{
			name: "a long list keeps its columns", file: "cmd/chubbyctl/internal/term/table.go",
			old: "		t.optional = t.leftOut // the headings are written: the columns stay as they are\n", new: "		_ = t.leftOut\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestSpareColumnsOfALongList",
		},
	}
}
