package main

// strangerSafeguards are those against clients that ask for more than they may.
func strangerSafeguards() []safeguard {
	return []safeguard{
		{
			name: "who does not hold a lock names nobody who is to have it", file: "cell/internal/master/offers.go",
			old: "err != nil || !frees(node) {", new: "err != nil || node == nil {",
			pkg: "./cell/internal/master", test: "TestStrangersNameNoSuccessor",
		},
		{
			name: "who does not hold a lock keeps nobody from it", file: "cell/internal/master/locks.go",
			old: "n.Lock == generation && n.Holds(h.Owner)", new: "true",
			pkg: "./cell/internal/master", test: "TestStrangersKeepNobodyFromAFreeLock",
		},
		{
			name: "a break names successors with the right to it only", file: "cell/internal/master/locks.go",
			old: "len(n.Holders) > 0 && state.PermitBreak(n, by)", new: "len(n.Holders) > 0 && (true || state.PermitBreak(n, by))",
			pkg: "./cell/internal/master", test: "TestStrangersNameNoSuccessor",
		},
		{
			name: "a session that ends names successors of what it holds only", file: "cell/internal/master/offers.go",
			old: "return h.Session == end.Session }) {", new: "return h.Session == end.Session || true }) {",
			pkg: "./cell/internal/master", test: "TestStrangersNameNoSuccessor",
		},
		{
			name: "a tick takes up few of the ends that were refused", file: "cell/internal/master/outbox.go",
			old: "		if len(ends) == maxExpiries {\n", new: "		if false {\n",
			pkg: "./cell/internal/master", test: "TestNoHoldIsLong",
		},
		{
			name: "a lock is taken from all of its holders at once", file: "namespace/revoke.go",
			old: "	next, left := n.withoutHolders(among(holders))\n",
			new: "	next, left := n, []Holder(nil)\n	for _, by := range holders {\n		rest, gone := next.withoutHolders(func(o Owner) bool { return o == by })\n		next, left = rest, append(left, gone...)\n	}\n",
			pkg: "./namespace", test: "TestEvictionOfVeryMany",
		},
		{
			name: "one command takes a lock from many handles of a session", file: "cell/internal/master/revocations.go",
			old: "{ return raftfsm.Size(one) })", new: "{ return r.queues.claims })",
			pkg: "./cell/internal/master", test: "TestManyHandlesLetGoAtOnce",
		},
		{
			name: "who is evicted owns nothing of the node any more", file: "namespace/revoke.go",
			old: "	t.disown(next, left)\n", new: "",
			pkg: "./namespace", test: "TestEvictionOfVeryMany",
		},
	}
}
