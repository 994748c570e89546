package main

// silenceGuards are those of connections of the sessions that fall silent while no KeepAlive
// waits.
func silenceGuards() []guard {
	return []guard{
		{
			name: "a connection is replaced over which the master is looked for in vain", file: "client/round.go",
			old: "				a.finder.pool.suspect(name)\n", new: "",
			pkg: "./client", test: "TestGivingBackOverASilentConnection|TestNewSessionOverASilentConnection",
		},
		{
			name: "the master is asked for over the connection that takes the place of a silent one", file: "client/line.go",
			old: " || t.kept() == over {", new: " || over != nil {",
			pkg: "./client", test: "TestGivingBackOverASilentConnection|TestSilentConnectionAndLostPackets",
		},
		{
			name: "another connection that is not answered is tried again", file: "client/line.go",
			old: "context.WithTimeout(p.alive, pingTime+pingTimeout)", new: "context.WithTimeout(p.alive, p.cfg.DialTimeout)",
			pkg: "./client", test: "TestSilentConnectionAndLostPackets",
		},
		{
			name: "an Open that was left is settled over the connection of the sessions", file: "client/open.go",
			old: "giveRoom, (*target).kept //", new: "giveRoom, func(t *target) *line { return t.line } //",
			pkg: "./client", test: "TestSettlingAnOpenNeedsNoConnection",
		},
		{
			name: "a replica that takes long to connect to is not connected to twice", file: "client/line.go",
			old: "	if old.conn.GetState() != connectivity.Ready {", new: "	if old.conn.GetState() == connectivity.Shutdown {",
			pkg: "./client", test: "TestConnectingIsNotSilence",
		},
	}
}
