package main

// crowdSafeguards cover what very many clients may take of a replica together.
func crowdSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a principal's mail is bounded", file: "cell/internal/master/mail.go",
			old: "	return l.used.of[principal]+eventSize(e) <= most\n", new: "	return most > 0\n",
			pkg: "./cell/internal/master", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "a principal's mail is its own", file: "cell/internal/master/tables.go",
			old: "newMailbox(b.mail, principal)", new: "newMailbox(b.mail, \"\")",
			pkg: "./cell/internal/master", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "a part of a principal's mail is for ends of handles", file: "cell/internal/master/mail.go",
			old: "	most := l.limit - l.limit/4\n", new: "	most := l.limit\n",
			pkg: "./cell/internal/master", test: "TestMailIsCounted",
		},
		{
			name: "mail is given back when it was received", file: "cell/internal/master/mailbox.go",
			old: "	b.mail.add(b.principal, -eventSize(first))\n", new: "",
			pkg: "./cell/internal/master", test: "TestMailIsCounted",
		},
		{
			name: "mail is given back when a session ends", file: "cell/internal/master/mailbox.go",
			old: "	b.mail.add(b.principal, -b.bytes)\n", new: "",
			pkg: "./cell/internal/master", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "losses that nobody hears end the session", file: "cell/internal/master/revocations.go",
			old: "box != nil && r.boxes.mail.isOver(box.principal)", new: "box != nil && false",
			pkg: "./cell/internal/master", test: "TestLossesThatNobodyHearsEnd",
		},
		{
			name: "client connections are bounded", file: "cell/internal/wire/connections.go",
			old: "	case c.open >= c.bounds.Connections:\n", new: "	case false:\n",
			pkg: "./cell", test: "TestTooManyConnections",
		},
		{
			name: "client connections of an address are bounded", file: "cell/internal/wire/connections.go",
			old: "	case o.open >= c.bounds.PerAddress:\n", new: "	case false:\n",
			pkg: "./cell", test: "TestTooManyConnections",
		},
		{
			name: "connections that end are not counted", file: "cell/internal/wire/arrivals.go",
			old: "		c.leave()\n", new: "",
			pkg: "./cell", test: "TestTooManyConnections",
		},
		{
			name: "calls over a refused connection say why", file: "cell/internal/wire/door.go",
			old: "	if refusal = s.checkConnection(ctx, method); refusal != nil {\n		return refusal\n	}\n", new: "",
			pkg: "./cell", test: "TestTooManyConnections",
		},
		{
			name: "few refused connections are kept", file: "cell/internal/wire/connections.go",
			old: "if c.refused >= MaxRefused ||", new: "if",
			pkg: "./cell/internal/wire", test: "TestConnectionsAreCounted",
		},
		{
			name: "refused connections end", file: "cell/internal/wire/connections.go",
			old: "{ _ = conn.Conn.Close() }) //", new: "{}) //",
			pkg: "./cell", test: "TestRefusedConnectionsAreClosed",
		},
		{
			name: "a handshake that never comes is ended", file: "cell/internal/wire/service.go",
			old: "		grpc.ConnectionTimeout(5 * time.Second),\n", new: "",
			pkg: "./cell", test: "TestIdleConnections",
		},
		{
			name: "idle connections are ended", file: "cell/internal/wire/service.go",
			old: ", MaxConnectionIdle: maxIdle}", new: "}",
			pkg: "./cell", test: "TestIdleConnections",
		},
	}
}
