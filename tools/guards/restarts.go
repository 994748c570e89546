package main

// restartSafeguards cover a replica that starts on the data of an earlier run, or
// of an earlier version.
func restartSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a log that a snapshot of the master's has overtaken is emptied", file: "cell/internal/disk/overtaken.go",
			old: "	if last == 0 || first > base {\n", new: "	if last+1 > 0 || first > base {\n",
			pkg: "./cell/internal/disk", test: "TestInterruptedInstall",
		},
		{
			name: "a hello for another replica condemns nobody", file: "cell/internal/peer/passport.go",
			old: "	if h.to != me.ID || !me.InCell()", new: "	if !me.Begun",
			pkg: "./cell/internal/peer", test: "TestPassportOfAnother",
		},
		{
			name: "votes of another replica are refused", file: "cell/internal/disk/ownership.go",
			old: "	case string(voter) != m.Incarnation:\n", new: "	case false:\n",
			pkg: "./cell/internal/disk", test: "TestVotesOfAnotherAreRefused",
		},
		{
			name: "a log of another cell ends its replica for good", file: "cell/epochs.go",
			old: "	if state.Cell != r.cfg.Cell || cmp.Or(state.Origin, state.CellID) != id {", new: "	if false {",
			pkg: "./cell", test: "TestLogOfAnotherCellIsRefused",
		},
		{
			name: "no access control list ends with a session", file: "raftfsm/files.go",
			old: "(c.Kind == api.Directory || c.Ephemeral):\n		return &refusal.Refusal{Cause: refusal.ACLFileKind", new: "c.Kind == api.Directory:\n		return &refusal.Refusal{Cause: refusal.ACLFileKind",
			pkg: "./raftfsm", test: "TestListsKeepTheirPlace",
		},
		{
			name: "what stops by itself is not started again by advice", file: "cmd/chubbyd/serve.go",
			old: "Its data directory is %s. The other", new: "Look after %s, then start it again. The other",
			pkg: "./cmd/chubbyd", test: "TestServeLeavesAdviceToTheReplica",
		},
		{
			name: "committed entries right after a snapshot are not called covered", file: "cell/internal/disk/commitmark.go",
			old: "first > begin || begin > snapshot;", new: "first > begin;",
			pkg: "./cell/internal/disk", test: "TestCommittedEntriesStay",
		},
		{
			name: "votes that are an old copy are refused", file: "cell/internal/disk/integrity.go",
			old: "	if current < term {\n", new: "	if false {\n",
			pkg: "./cell/internal/disk", test: "TestOldVotesAreRefused",
		},
	}
}
