package main

// identitySafeguards cover bootstrap and a replica's identity.
func identitySafeguards() []safeguard {
	return []safeguard{
		{
			name: "a token is known by the secret that it was checked with", file: "cell/internal/wire/verified.go",
			old: "	if !bytes.Equal(c.secret, secret) {\n		return value, false\n	}\n", new: "",
			pkg: "./cell/internal/wire", test: "TestVerifiedTokens",
		},
		{
			name: "an empty directory does not start without --bootstrap", file: "cell/internal/disk/stores.go",
			old: "empty && !opts.Bootstrap {", new: "empty && false {",
			pkg: "./cell", test: "TestEmptyDirectoryIsRefused",
		},
		{
			name: "a cell begins when all members have stored its roster", file: "cell/internal/peer/bootstrap.go",
			old: "me.Roster != nil && stored == len(members):", new: "me.Roster != nil && stored > len(members)/2:",
			pkg: "./cell/internal/peer", test: "TestBootstrapBeginsOneCell",
		},
		{
			name: "a roster is drawn when all members hold nothing", file: "cell/internal/peer/bootstrap.go",
			old: "isLowest(me.ID, members) && len(step.waiting) == 0:", new: "isLowest(me.ID, members) && len(heard) >= len(members)/2:",
			pkg: "./cell", test: "TestBootstrapWaitsForAll",
		},
		{
			name: "a stored roster is not replaced", file: "cell/internal/peer/bootstrap.go",
			old: "	if err := checkContradiction(me, r); err != nil {", new: "	if err := checkContradiction(me, r); false {",
			pkg: "./cell/internal/peer", test: "TestBootstrapBeginsOneCell",
		},
		{
			name: "a stored roster is not replaced (whole cell)", file: "cell/internal/peer/bootstrap.go",
			old: "	if err := checkContradiction(me, r); err != nil {", new: "	if err := checkContradiction(me, r); false {",
			pkg: "./cell", test: "TestDisksLost",
		},
		{
			name: "a replica that lost its disk is refused by its peers", file: "cell/internal/peer/passport.go",
			old: "	case known != h.incarnation:\n", new: "	case false:\n",
			pkg: "./cell/internal/peer", test: "TestPassport",
		},
		{
			name: "a caller refuses a replica that lost its disk", file: "cell/internal/peer/passport.go",
			old: "	case h.incarnation != known:\n", new: "	case false:\n",
			pkg: "./cell/internal/peer", test: "TestPassport",
		},
		{
			name: "another cell of the same name is refused", file: "cell/internal/peer/passport.go",
			old: "	case h.cellID != \"\" && h.cellID != me.Roster.CellID:\n		return helloOtherCell", new: "	case false:\n		return helloOtherCell",
			pkg: "./cell/internal/peer", test: "TestPassport",
		},
		{
			name: "a replica with another address than the cell knows is refused", file: "cell/members.go",
			old: "i >= 0 && has[i].Raft != self.Raft {", new: "i >= len(has) {",
			pkg: "./cell", test: "TestTheCellKnowsItsMembers",
		},
	}
}

// forgettingSafeguards are those against a replica that has lost or exchanged data.
func forgettingSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a committed suffix of the log is kept", file: "cell/internal/disk/commitmark.go",
			old: "	case replaced && first <= mark:\n", new: "	case false:\n",
			pkg: "./cell/internal/disk", test: "TestCommittedEntriesStay",
		},
		{
			name: "what is committed leaves the log in a snapshot", file: "cell/internal/disk/commitmark.go",
			old: "	case !replaced && min(last, mark) > snapshot:\n", new: "	case false:\n",
			pkg: "./cell/internal/disk", test: "TestCommittedEntriesStay",
		},
		{
			name: "the commit mark survives a restart", file: "cell/internal/disk/integrity.go",
			old: "		s.mark.noteStored(mark)\n", new: "		_ = mark\n",
			pkg: "./cell/internal/disk", test: "TestCommittedEntriesStay",
		},
		{
			name: "a replica that lost entries stops", file: "cell/internal/peer/passport.go",
			old: "	if h.held <= last {\n", new: "	if true {\n",
			pkg: "./cell/internal/peer", test: "TestPassport",
		},
		{
			name: "a replica that lost entries stops (whole cell)", file: "cell/internal/peer/passport.go",
			old: "	if h.held <= last {\n", new: "	if true {\n",
			pkg: "./cell", test: "TestOldCopyIsRefused",
		},
		{
			name: "a caller refuses a replica that lost entries", file: "cell/internal/peer/passport.go",
			old: "	case h.last < asked.held:\n", new: "	case false:\n",
			pkg: "./cell/internal/peer", test: "TestPassport",
		},
		{
			name: "a leader remembers what was acknowledged", file: "cell/internal/peer/acknowledged.go",
			old: "	t.port.Passport.NoteHeld(string(id), min(index, args.LeaderCommitIndex))\n", new: "	_ = index\n",
			pkg: "./cell/internal/peer", test: "TestAcknowledgementsAreRemembered",
		},
		{
			name: "every replica remembers what the others applied", file: "cell/reports.go",
			old: "	r.passport.NoteHeld(id, report.Applied)\n", new: "",
			pkg: "./cell", test: "TestDivergenceIsNoticed",
		},
		{
			name: "replicas that differ are found without being asked", file: "cell/reports.go",
			old: "				r.prober.Ask(string(s.ID), string(s.Address), func(peer.Report) {}) // noteReport has it first\n", new: "",
			pkg: "./cell", test: "TestDivergenceIsNoticed",
		},
		{
			name: "the running hash is in the snapshot", file: "raftfsm/snapshot.go",
			old: "Counter: s.Counter, History: s.History,", new: "Counter: s.Counter,",
			pkg: "./cell/internal/fsm", test: "TestHistoryContinues",
		},
		{
			name: "a replica that lost its disk ends with 78", file: "cmd/chubbyd/main.go",
			old: "	if errors.Is(err, cell.ErrRefused) || errors.As(err, &faulty) {\n		return exitRefused", new: "	if errors.Is(err, cell.ErrRefused) && false || errors.As(err, &faulty) {\n		return exitRefused",
			pkg: "./e2e", test: "TestServeNeedsBootstrap",
		},
	}
}
