package main

// outlivingSafeguards cover commands that run under a lock, and waiters for it.
func outlivingSafeguards() []safeguard {
	const supervision = "cmd/chubbyctl/internal/supervise/"
	return []safeguard{
		{
			name: "orders never wait for a stopped guardian", file: supervision + "control_unix.go",
			old: "		return true // also if there was no room\n", new: "		return failed != unix.EAGAIN\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestOrdersDoNotBlock",
		},
		{
			name: "notices keep nobody from killing", file: supervision + "announcer_unix.go",
			old: "	select {\n	case a.waiting <- n:\n	default:\n	}\n", new: "	a.waiting <- n\n	<-n.given\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestNoticesDoNotBlock",
		},
		{
			name: "a command is asked to end once", file: supervision + "guardian_unix.go",
			old: "		return pid == -g.pid || err == nil && group == g.pid\n", new: "		return pid == -g.pid || err == nil && group == g.pid && false\n",
			pkg: "./cmd/chubbyctl/internal/supervise", test: "TestAskedToEndOnce|TestAudienceIsCountedOnce",
		},
		{
			name: "a guard believes only what will last", file: "sequencer/store.go",
			old: "		if err = sync(filepath.Dir(name)); err != nil {\n", new: "		if false {\n",
			pkg: "./sequencer", test: "TestWhatIsReadIsDurable",
		},
		{
			name: "whom the cell admits is admitted here", file: "cmd/chubbyctl/consent.go",
			old: "		line = strings.TrimSpace(line)\n", new: "		line = strings.TrimSuffix(line, \"\\n\")\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "the cell says who has a right to lose", file: "cmd/chubbyctl/consent.go",
			old: "		h, err := l.client.Open(ctx, one.String(), client.OpenOptions{Write: true})\n", new: "		h, err := l.client.Open(ctx, one.String(), client.OpenOptions{Read: true})\n",
			pkg: "./cmd/chubbyctl", test: "TestTranscripts",
		},
		{
			name: "one signal ends who reads a pipe", file: "cmd/chubbyctl/put.go",
			old: "!waits || argument != \"-\" {", new: "!waits || argument != \"-\" || !term.IsTerminal(in) {",
			pkg: "./cmd/chubbyctl", test: "TestSignalWhileReading",
		},
		{
			name: "an upgrade does not change who guards", file: "cmd/chubbyctl/command.go",
			old: "os.Stat(running); err == nil {", new: "os.Stat(running); err == nil && false {",
			pkg: "./cmd/chubbyctl", test: "TestProgramReplacedWhileItWaits",
		},
		{
			name: "a guarded form leaves no files", file: "sequencer/seqhttp/server.go",
			old: "						_ = form.RemoveAll()", new: "						_ = form",
			pkg: "./sequencer/seqhttp", test: "TestFormsLeaveNothingBehind",
		},
		{
			name: "a watch leaves no command behind", file: "cmd/chubbyctl/hook.go",
			old: "	finish()\n", new: "	_ = finish\n",
			pkg: "./cmd/chubbyctl", test: "TestInterruptKillsTheHook",
		},
	}
}
