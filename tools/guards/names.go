package main

// namesSafeguards are those of names that are published.
func namesSafeguards() []safeguard {
	const room = "cmd/chubbyd/internal/names"
	return []safeguard{
		{
			name: "what is published already is not written again", file: room + "/dns.go",
			old: "err != nil || same {\n", new: "err != nil || same && false {\n",
			pkg: "./" + room, test: "TestDNS$",
		},
		{
			name: "the names of replicas that have left are taken away", file: room + "/dns.go",
			old: "d.hosts(p.Left, p.Cell)", new: "d.hosts(p.Left[:0], p.Cell)",
			pkg: "./" + room, test: "TestDNS$",
		},
		{
			name: "names that no replica has now are looked up", file: room + "/dns.go",
			old: "p.Left[max(0, len(p.Left)-maxLooked):]", new: "p.Left[len(p.Left):]",
			pkg: "./" + room, test: "TestDNSOfReplicaThatLeaves",
		},
		{
			name: "an ID that is no name does not stop publishing", file: room + "/dns.go",
			old: "isName(name) {\n", new: "isName(name) || true {\n",
			pkg: "./" + room, test: "TestDNSOfIDsThatAreNoNames",
		},
		{
			name: "answers of a name server are signed", file: room + "/dns.go",
			old: "a.key != nil && answer.IsTsig() == nil {", new: "a.key == nil && answer.IsTsig() != nil {",
			pkg: "./" + room, test: "TestDNSAnswersAreSigned",
		},
		{
			name: "a hook is killed with what it has started", file: room + "/hook.go",
			old: "syscall.Kill(-cmd.Process.Pid, ", new: "syscall.Kill(cmd.Process.Pid, ",
			pkg: "./" + room, test: "TestHookIsKilled",
		},
		{
			name: "a hook is not told the settings of the daemon", file: room + "/hook.go",
			old: "without(os.Environ(), \"CHUBBYD_\")", new: "without(os.Environ(), \"NONE_\")",
			pkg: "./" + room, test: "TestHook$",
		},
		{
			name: "what could not be published is tried again soon", file: "cell/publish.go",
			old: "		p.next = r.clock().Add(pause)\n", new: "		p.next = r.clock().Add(republishEvery + 0*pause)\n",
			pkg: "./cell", test: "TestPublish",
		},
		{
			name: "the next master publishes, too", file: "cell/publish.go",
			old: "			p = fresh\n", new: "			_ = fresh\n",
			pkg: "./cell", test: "TestPublish",
		},
	}
}
