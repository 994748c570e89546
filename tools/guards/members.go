package main

// memberSafeguards are those of changes of a cell's replicas.
func memberSafeguards() []safeguard {
	return []safeguard{
		{
			name: "one change of the members is under way at a time", file: "raftfsm/members.go",
			old: "	if other, busy := r.Unsettled(); busy {\n", new: "	if other, busy := r.Unsettled(); busy && other.ID == \"\" {\n",
			pkg: "./raftfsm", test: "TestMembers$",
		},
		{
			name: "an id of a replica is never used again", file: "raftfsm/members.go",
			old: "	if _, used := r.Find(m.ID); used {\n", new: "	if old, used := r.Find(m.ID); used && old.Phase != Left {\n",
			pkg: "./raftfsm", test: "TestMembers$",
		},
		{
			name: "the last replica stays", file: "raftfsm/members.go",
			old: "	if m.Phase == Settled && r.in(Settled) == 1 {\n", new: "	if r.in(Settled) == 0 {\n",
			pkg: "./raftfsm", test: "TestMembers$",
		},
		{
			name: "strangers change no members", file: "raftfsm/members.go",
			old: "		err := s.PermitOperator(s.principal(c.Mutation.Session))\n", new: "		var err error\n",
			pkg: "./raftfsm", test: "TestMembersAreWellFormed",
		},
		{
			name: "a newcomer has no vote before it holds the log", file: "cell/membership.go",
			old: "		if err := r.hasCaughtUp(ctx, one); err != nil {\n			return err\n		}\n", new: "",
			pkg: "./cell", test: "TestNewcomerGetsNoVoteBeforeItHoldsTheLog",
		},
		{
			name: "nobody leaves without a majority of those that stay", file: "cell/membership.go",
			old: "	if answer <= voters/2 {\n", new: "	if answer < 0 {\n",
			pkg: "./cell", test: "TestNobodyLeavesWithoutAMajority",
		},
		{
			name: "who is let in is known after a restart of all", file: "cell/members.go",
			old: "	err := r.stores.Identity().Update(func(was *identity.Roster) *identity.Roster { return merged(was, now) })\n",
			new: "	err := r.stores.Identity().Update(func(was *identity.Roster) *identity.Roster { _ = merged(was, now); return nil })\n",
			pkg: "./cell", test: "TestNewcomerGetsNoVoteBeforeItHoldsTheLog",
		},
		{
			name: "a newcomer is known by the cell's id", file: "cell/internal/peer/passport.go",
			old: "h.cellID != \"\" && (*may)(h.from) {", new: "h.cellID != \"\" && (*may)(h.from) && h.from == \"\" {",
			pkg: "./cell/internal/peer", test: "TestPassportKnowsNewcomers",
		},
		{
			name: "a replica without the cell's id is no newcomer", file: "cell/internal/peer/passport.go",
			old: "h.cellID != \"\" && (*may)(h.from) {", new: "(*may)(h.from) {",
			pkg: "./cell/internal/peer", test: "TestPassportKnowsNewcomers",
		},
		{
			name: "a replica that was removed is told so", file: "cell/internal/peer/passport.go",
			old: "		return helloLeft, hasLeft(h.from, me.Roster.CellID)\n", new: "		return helloWrongReplica, hasLeft(h.from, me.Roster.CellID)\n",
			pkg: "./cell/internal/peer", test: "TestPassportKnowsNewcomers",
		},
		{
			name: "an id of before is not joined with", file: "cell/internal/peer/join.go",
			old: "		case r.Roster.HasLeft(me.ID), known != \"\" && known != me.Incarnation:\n", new: "		case r.Roster.HasLeft(me.ID):\n",
			pkg: "./cell", test: "TestChangesOfMembersAreRefused",
		},
		{
			name: "clients learn the replicas that a cell has now", file: "client/locateround.go",
			old: "	l.servers.noteTold(reply)\n", new: "",
			pkg: "./cell", test: "TestClientsHearOfNewReplicas",
		},
		{
			name: "damaged metadata of a snapshot are noticed by their sum", file: "cell/internal/disk/snapshotmeta.go",
			old: "sum != strings.TrimSpace(string(want)) {", new: "sum == strings.TrimSpace(\"\") {",
			pkg: "./cell/internal/disk", test: "TestSnapshotsMetadataRot",
		},
		{
			name: "an upgrade is not finished without one that answers", file: "cell/internal/wire/upgrade.go",
			old: "!(m.MaxLevel == 0 && slices.Contains(without, m.ID))", new: "!slices.Contains(without, m.ID)",
			pkg: "./cell", test: "TestUpgradeWithoutTheLost",
		},
		{
			name: "clients hear that the replicas have changed", file: "client/locateaddresses.go",
			old: "|| version == l.servers.version {", new: "|| version >= 0 {",
			pkg: "./cell", test: "TestClientsHearOfNewReplicas",
		},
		{
			name: "the newest list of replicas counts", file: "client/locateaddresses.go",
			old: "case len(told) == 0 || version > 0 && version < s.version:", new: "case len(told) == 0:",
			pkg: "./client", test: "TestNewestListOfReplicasCounts",
		},
	}
}
