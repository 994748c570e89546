package main

// consoleSafeguards are those of the console: its visitors see and do what their rights allow, and nobody acts through their browsers.
func consoleSafeguards() []safeguard {
	return []safeguard{
		{
			name: "the console asks with the rights of whoever looks at it", file: "cell/console.go",
			old: "wire.Guest{Address: who.Address, Principal: who.Principal, Counts: who.Counts}", new: "wire.Guest{Address: who.Address, Principal: \"ops\", Counts: who.Counts}",
			pkg: "./cell", test: "TestConsoleRights",
		},
		{
			name: "a replica speaks at another one for whoever looks at it", file: "cell/console.go",
			old: "peer.Guest{Principal: who.Principal, Address: who.Address.String()}", new: "peer.Guest{Principal: \"ops\", Address: who.Address.String()}",
			pkg: "./cell", test: "TestConsoleRights",
		},
		{
			name: "a form of the console has a token that others cannot know", file: "cell/internal/console/login.go",
			old: "	return hmac.Equal([]byte(token), []byte(c.formToken(principal)))\n", new: "	return true\n",
			pkg: "./cell", test: "TestConsoleActs",
		},
		{
			name: "a form from another site is refused", file: "cell/internal/console/console.go",
			old: "err := c.origin.Check(q); err != nil {", new: "err := c.origin.Check(q); err != nil && false {",
			pkg: "./cell", test: "TestConsoleActs",
		},
		{
			name: "where nobody logs in, the console is opened by names of this machine alone", file: "cell/internal/console/console.go",
			old: "	case !c.cfg.Encrypted && !isOwnHost(q.Host):\n", new: "	case false:\n",
			pkg: "./cell", test: "TestConsoleOwnHost",
		},
		{
			name: "a login ends", file: "cell/internal/console/login.go",
			old: "	return l, ok && l.ends > ls.clock() && l.counts()\n", new: "	return l, ok\n",
			pkg: "./cell/internal/console", test: "TestLoginsEnd",
		},
		{
			name: "with certificates nothing of the console is said in the clear", file: "cell/internal/console/console.go",
			old: "	case c.cfg.Encrypted && q.TLS == nil:\n", new: "	case false:\n",
			pkg: "./cell", test: "TestConsoleOverTLSOnly",
		},
		{
			name: "connections for guests are bounded", file: "cell/internal/peer/guests.go",
			old: "	if p.guests >= maxGuests {\n", new: "	if false {\n",
			pkg: "./cell/internal/peer", test: "TestGuests",
		},
		{
			name: "how the master became it, only those see who see the numbers of the cell", file: "cell/internal/wire/overview.go",
			old: "			reply.Takeovers = takeovers(s.cfg.Replica.Takeovers())\n		}\n", new: "		}\n		reply.Takeovers = takeovers(s.cfg.Replica.Takeovers())\n",
			pkg: "./cell", test: "TestOverviewIsForWhoMayLook",
		},
		{
			name: "a replica remembers few take-overs", file: "cell/takeovertimes.go",
			old: "	if len(t.last) == maxTakeovers {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestTakeoversAreRemembered",
		},
		{
			name: "one quota is shown to those who would see it in the list", file: "cell/internal/master/quota.go",
			old: "		if sight.all || sight.principal == principal {\n", new: "		{\n",
			pkg: "./cell/internal/master", test: "TestFindQuota",
		},
		{
			name: "a page has no more entries than are wanted", file: "cell/internal/master/listing.go",
			old: "len(p.List) >= p.most || p.bytes", new: "len(p.List) >= api.MaxPage || p.bytes",
			pkg: "./cell/internal/master", test: "TestPagesAreAsLongAsWanted",
		},
	}
}
