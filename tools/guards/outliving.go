package main

// outlivingGuards are those of what runs under a lock and of who waits for it.
func outlivingGuards() []guard {
	const guarding = "cmd/chubbyctl/internal/guard/"
	return []guard{
		{
			name: "orders never wait for a stopped guardian", file: guarding + "control_unix.go",
			old: "		return true // also if there was no room\n", new: "		return failed != unix.EAGAIN\n",
			pkg: "./cmd/chubbyctl/internal/guard", test: "TestOrdersDoNotBlock",
		},
		{
			name: "notices keep nobody from killing", file: guarding + "announcer_unix.go",
			old: "	select {\n	case a.waiting <- one:\n	default:\n	}\n", new: "	a.waiting <- one\n	<-one.told\n",
			pkg: "./cmd/chubbyctl/internal/guard", test: "TestNoticesDoNotBlock",
		},
		{
			name: "a command is asked to end once", file: guarding + "guardian_unix.go",
			old: "		return pid == -g.pid || err == nil && group == g.pid\n", new: "		return pid == -g.pid || err == nil && group == g.pid && false\n",
			pkg: "./cmd/chubbyctl/internal/guard", test: "TestAskedToEndOnce",
		},
		{
			name: "a guard believes only what will last", file: "sequencer/store.go",
			old: "		if err = sync(filepath.Dir(name)); err != nil {\n", new: "		if false {\n",
			pkg: "./sequencer", test: "TestWhatIsReadIsDurable",
		},
	}
}
