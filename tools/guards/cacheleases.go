package main

// cacheLeaseSafeguards cover the leases under which caches are used.
func cacheLeaseSafeguards() []safeguard {
	const leases, master = "cell/internal/master/cacheleases.go", "./cell/internal/master"
	return []safeguard{
		{
			name: "a change waits for a cache lease that runs", file: leases,
			old: "	if left == 0 {\n", new: "	if left >= 0 {\n",
			pkg: master, test: "TestChangeWaitsForCacheLease",
		},
		{
			name: "a change waits for no cache lease that is over", file: leases,
			old: "	if left == 0 {\n		c.release(one)\n		return\n	}\n", new: "",
			pkg: master, test: "TestChangeWaitsForCacheLease",
		},
		{
			name: "no cache lease before everything is dropped", file: leases,
			old: " || len(co.copyset.told[id]) > 0 {", new: " {",
			pkg: master, test: "TestNoCacheLeaseBeforeDropped",
		},
		{
			name: "who has not dropped a name may not keep it anew", file: leases,
			old: "		if one.leased && one.sequence > 0 && c.left(id, now) == 0 {\n			c.release(one)\n",
			new: "		if one.leased && one.sequence > 0 && c.left(id, now) == 0 {\n			c.forget(one)\n",
			pkg: master, test: "TestNoCacheLeaseBeforeDropped",
		},
		{
			name: "the author of a change is told of the next", file: leases,
			old: "one.leased && one.sequence > 0 && c.left", new: "one.leased && c.left",
			pkg: master, test: "TestAuthorIsToldOfTheNextChange",
		},
		{
			name: "a fail-over is waited for no longer than for a cache lease", file: leases,
			old: "			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {\n				c.flushed(id)\n", new: "			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {\n",
			pkg: master, test: "TestTakeoverWaitsForCacheLease",
		},
		{
			name: "a session without cache leases is waited for", file: leases,
			old: "			if s, ok := co.epoch.state().Sessions.Get(id); ok && s.CacheLease {\n				c.flushed(id)\n", new: "			if _, ok := co.epoch.state().Sessions.Get(id); ok {\n				c.flushed(id)\n",
			pkg: master, test: "TestTakeoverWaitsForCacheLease",
		},
		{
			name: "no cache leases while an older master may follow", file: "cell/internal/master/sessions.go",
			old: " && s.epoch.state().Level >= raftfsm.CacheLeaseLevel", new: "",
			pkg: master, test: "TestNoCacheLeasesBelowTheirLevel",
		},
		{
			name: "a cache is used only under a cache lease", file: "client/cachelease.go",
			old: "	if c.lease.required && now >= c.lease.end {\n", new: "	if c.lease.required && c.lease.end == 0 {\n",
			pkg: "./client", test: "TestCacheLeaseEndsByTheClock",
		},
		{
			name: "a cache lease counts from before the request", file: "client/cachelease.go",
			old: "session.CacheLeaseEnd(sent, ", new: "session.CacheLeaseEnd(max(sent, c.cfg.Clock()), ",
			pkg: "./client", test: "TestCacheLeaseEndsByTheClock",
		},
		{
			name: "clocks differ while a cache lease runs", file: "session/cachelease.go",
			old: "atLeast(min(max(lease, 0), api.CacheLease))", new: "min(max(lease, 0), api.CacheLease)",
			pkg: "./client", test: "TestCacheLeaseEndsByTheClock",
		},
		{
			name: "a cache lease is of one epoch", file: "client/cachelease.go",
			old: "	if epoch == c.epoch {\n		c.lease.end", new: "	if epoch > 0 {\n		c.lease.end",
			pkg: "./client", test: "TestCacheLeaseOfAnotherEpoch",
		},
		{
			name: "an idle cache holds up nobody", file: "client/cachelease.go",
			old: "	if c.lease.required && c.lease.end.Sub(now) < renewBefore {\n		c.wakeRenewer()\n	}\n	return foundUsable\n}\n\n// wakeRenewer has the renewer ask for a lease.\nfunc (c *cache) wakeRenewer() {\n	select {\n	case c.lease.wake <- struct{}{}:\n	default:\n	}\n}\n",
			new: "	return foundUsable\n}\n\n// wakeRenewer has the renewer ask for a lease.\nfunc (c *cache) wakeRenewer() {\n	select {\n	case c.lease.wake <- struct{}{}:\n	default:\n	}\n	time.AfterFunc(api.CacheLease, c.wakeRenewer)\n}\n",
			pkg: "./client", test: "TestCacheLeaseIsAskedForWhenOfUse",
		},
	}
}
