package main

// promiseSafeguards cover the paper's promises about calls, events and rights, and
// revocations.
func promiseSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a broken lock waits for its holder", file: "cell/internal/master/revocations.go",
			old: "		r.add(owner, revokedLock{lock: lost.Lock, generation: lost.Generation, sequence: sequence})\n",
			new: "		r.boxes.byID[owner.Session].acked = sequence\n		r.add(owner, revokedLock{lock: lost.Lock, generation: lost.Generation, sequence: sequence})\n		r.actOnAcknowledgement(owner.Session)\n",
			pkg: "./cell", test: "TestForcedLoss",
		},
		{
			name: "the sequencer of a revoked lock is dead", file: "raftfsm/precondition.go",
			old: "	case node.Revoked != nil:\n", new: "	case false:\n",
			pkg: "./cell", test: "TestForcedLoss",
		},
		{
			name: "nothing is done for a session that is being terminated", file: "session/mutation.go",
			old: "	if s.Terminating != nil {\n", new: "	if false {\n",
			pkg: "./raftfsm", test: ".",
		},
		{
			name: "rights are checked at Open", file: "raftfsm/files.go",
			old: "	return s.Tree.Permit(node, s.principal(id), c.Rights)\n", new: "	return nil\n",
			pkg: "./e2e", test: "TestAPI/acl",
		},
		{
			name: "creating needs the right to write the directory", file: "raftfsm/files.go",
			old: "		if err := s.Tree.Permit(parent, principal, namespace.ToWrite); err != nil {", new: "		if err := s.Tree.Permit(parent, principal, 0); err != nil {",
			pkg: "./e2e", test: "TestAPI/acl/create-in",
		},
		{
			name: "events are for those who may read", file: "cell/internal/master/events.go",
			old: "			if !may {\n", new: "			if false {\n",
			pkg: "./e2e", test: "TestAPI/acl/events-for-those",
		},
		{
			name: "a change's sequencer must stand", file: "raftfsm/state.go",
			old: "s.checkPreconditions(preconditions)", new: "s.checkPreconditions(preconditions[:0])",
			pkg: "./e2e", test: "TestAPI/locks",
		},
		{
			name: "lost events are announced", file: "cell/internal/master/mailbox.go",
			old: "	default:\n		return b.postMarker()\n", new: "	default:\n		return b.last\n",
			pkg: "./cell", test: "TestEventsOfSlowClient",
		},
		{
			name: "a fail-over is announced", file: "cell/internal/master/master.go",
			old: "	m.events.tellFailOver()\n", new: "",
			pkg: "./cell", test: "TestFailOverIsTold",
		},
	}
}
