package main

// crowdGuards are those of what very many clients may take of a replica together.
func crowdGuards() []guard {
	return []guard{
		{
			name: "a principal's mail is bounded", file: "cell/mail.go",
			old: "	return l.used[principal]+eventSize(e) <= most\n", new: "	return most > 0\n",
			pkg: "./cell", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "a principal's mail is its own", file: "cell/master.go",
			old: "newMailbox(m.mail, c.CreateSession.Principal)", new: "newMailbox(m.mail, \"\")",
			pkg: "./cell", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "a part of a principal's mail is for ends of handles", file: "cell/mail.go",
			old: "	most := l.most - l.most/4\n", new: "	most := l.most\n",
			pkg: "./cell", test: "TestMailIsCounted",
		},
		{
			name: "mail is given back when it was received", file: "cell/mailbox.go",
			old: "	b.mail.give(b.principal, eventSize(first))\n", new: "",
			pkg: "./cell", test: "TestMailIsCounted",
		},
		{
			name: "mail is given back when a session ends", file: "cell/mailbox.go",
			old: "	b.mail.give(b.principal, b.bytes)\n", new: "",
			pkg: "./cell", test: "TestMailOfAPrincipalIsBounded",
		},
		{
			name: "losses that nobody hears end the session", file: "cell/loss.go",
			old: "box != nil && m.mail.isOver(box.principal)", new: "box != nil && false",
			pkg: "./cell", test: "TestLossesThatNobodyHearsEnd",
		},
	}
}
