package main

// terminalSafeguards cover what a person at a terminal sees of chubbyctl.
func terminalSafeguards() []safeguard {
	const supervision = "cmd/chubbyctl/internal/supervise/"
	return []safeguard{
		{
			name: "a stop that was passed on is not one more", file: supervision + "guardian_unix.go",
			old: "			if g.passed && ", new: "			if false && ",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestSuspendedOnce",
		},
		{
			name: "a terminal that a job had comes back", file: supervision + "terminal_unix.go",
			old: "foreground != from && !ended {", new: "foreground != from && (!ended || true) {",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestTerminalComesBackFromAJob",
		},
		{
			name: "the end of chubbyctl continues its guardian", file: supervision + "family_linux.go",
			old: "Setpgid: true, Pdeathsig: unix.SIGCONT}", new: "Setpgid: true}",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestStoppedGuardianOfAKilledChubbyctl",
		},
		{
			name: "what is not to be printed is not asked for", file: "cmd/chubbyctl/stat.go",
			old: "	if !g.json() && !g.verbose {\n		return nil\n	}\n	stat, err := h.Stat", new: "	stat, err := h.Stat",
			pkg: "./cmd/chubbyctl", test: "TestCreatedIsPrintedWithoutAnotherCall",
		},
		{
			name: "what is there has a code of its own", file: "cmd/chubbyctl/stat.go",
			old: "		return &exitError{exitFailed, fmt.Errorf(\"there is %s, but what it is like is not known: %w\", h.Path(), err)}\n", new: "		return err\n",
			pkg: "./cmd/chubbyctl", test: "TestCreatedIsPrintedWithoutAnotherCall",
		},
		{
			name: "who is outranked is not told that nobody answers", file: "cmd/chubbyctl/lockwait.go",
			old: "		return w.early\n", new: "		return \"no answer from the cell yet\"\n",
			pkg: "./cmd/chubbyctl", test: "TestCandidateThatIsOutranked",
		},
		{
			name: "no primary resigns for the dead", file: "client/recipe/primary.go",
			old: " && p.lives(ctx, e.record)\n", new: "\n",
			pkg: "./client/recipe", test: "TestDeadCandidateIsRead",
		},
		{
			name: "the last words are not left out", file: "cmd/chubbyctl/internal/term/speaker.go",
			old: "	s.lines = append(s.lines, bytes.Clone(line))\n	s.lines = s.lines[max(0, len(s.lines)-maxLines):]\n",
			new: "	if len(s.lines) < maxLines {\n		s.lines = append(s.lines, bytes.Clone(line))\n	}\n",
			pkg: "./cmd/chubbyctl/internal/term", test: "TestNobodyWaitsForTheReader",
		},
	}
}
