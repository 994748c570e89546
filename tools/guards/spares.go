package main

// spareSafeguards are those of replicas that stand by.
func spareSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a spare waits until a replica has been dead for long", file: "cell/spares.go",
			old: "	if dead == \"\" || absent < r.cfg.ReplaceAfter {\n", new: "	if dead == \"\" || absent < compareEvery {\n",
			pkg: "./cell", test: "TestSpare$",
		},
		{
			name: "a replica that comes back begins anew", file: "cell/spares.go",
			old: "		a.unanswered[id] = 0\n", new: "		_ = id\n",
			pkg: "./cell", test: "TestSpare$",
		},
		{
			name: "a spare is not let in before its time", file: "cell/members.go",
			old: "		case i < 0 && m.Phase != raftfsm.Standby && (", new: "		case i < 0 && (",
			pkg: "./cell", test: "TestSpare",
		},
		{
			name: "a spare that does not answer takes nobody's place", file: "cell/spares.go",
			old: "		if err = r.standsBy(spare, m.Level()); err == nil {\n", new: "		if err = nil; err == nil {\n",
			pkg: "./cell", test: "TestSpareThatCannot",
		},
		{
			name: "a spare that is removed never joins", file: "raftfsm/members.go",
			old: "	if m.Phase == Standby { // Raft", new: "	if false { // Raft",
			pkg: "./raftfsm", test: "TestSpares",
		},
		{
			name: "a spare takes nobody's place while another change is under way", file: "raftfsm/members.go",
			old: "busy || !ok || old.Phase != Settled {", new: "busy && false || !ok || old.Phase != Settled {",
			pkg: "./raftfsm", test: "TestSpares",
		},
		{
			name: "that a spare takes a place is recorded", file: "cell/spares.go",
			old: "	r.audit.Act(act)\n", new: "	_ = act\n",
			pkg: "./cell", test: "TestSpareIsAudited",
		},
	}
}
