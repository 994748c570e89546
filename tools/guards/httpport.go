package main

// httpPortSafeguards are those of the http port, which strangers may reach.
func httpPortSafeguards() []safeguard {
	return []safeguard{
		{
			name: "warnings of certificates name no files", file: "internal/certs/files.go",
			old: `endWarning("the certificate", port+"-cert", own`, new: `endWarning("the certificate", s.files.Cert, own`,
			pkg: "./cell", test: "TestWarningsNameNoFiles",
		},
		{
			name: "warnings of token keys name no files and no URLs", file: "cell/certificates.go",
			old: `note = "the keys of tokens (token-keys) cannot be read; the log says why"`, new: "note = r.tokens.Err().Error()",
			pkg: "./cell", test: "TestWarningsNameNoFiles",
		},
		{
			name: "the log has the files of certificates that end", file: "cell/certificates.go",
			old: "		r.log.Warn(warning, ", new: "		r.log.Debug(warning, ",
			pkg: "./cell", test: "TestWarningsNameNoFiles",
		},
		{
			name: "warnings of the disk name no directory", file: "cell/internal/disk/space.go",
			old: `"the disk of the data directory (data) is`, new: `"the disk of "+s.dir+" is`,
			pkg: "./cell/internal/disk", test: "TestDiskNearlyFull",
		},
		{
			name: "the http port answers nothing by itself", file: "cell/health.go",
			old: "DisableGeneralOptionsHandler: true,", new: "",
			pkg: "./cell", test: "TestHTTPPortAnswersItsTableOnly",
		},
		{
			name: "no path of the http port is made into another", file: "cell/health.go",
			old: "d[q.URL.EscapedPath()]", new: "d[q.URL.Path]",
			pkg: "./cell", test: "TestHTTPPortAnswersItsTableOnly",
		},
		{
			name: "the http port is read with GET and HEAD only", file: "cell/health.go",
			old: "	case q.Method != http.MethodGet && q.Method != http.MethodHead:", new: "	case false:",
			pkg: "./cell", test: "TestHTTPPortAnswersItsTableOnly",
		},
		{
			name: "requests at the http port are sent in bounded time", file: "cell/health.go",
			old: "ReadHeaderTimeout: httpHeaderTime, ReadTimeout: httpHeaderTime,", new: "",
			pkg: "./cell", test: "TestAttacksOnTheHTTPPort",
		},
		{
			name: "answers of the http port are taken in bounded time", file: "cell/health.go",
			old: "WriteTimeout: httpAnswerTime,", new: "",
			pkg: "./cell", test: "TestAttacksOnTheHTTPPort",
		},
		{
			name: "idle connections of the http port end", file: "cell/health.go",
			old: "IdleTimeout: httpIdleTime,", new: "IdleTimeout: -httpIdleTime,",
			pkg: "./cell", test: "TestAttacksOnTheHTTPPort",
		},
		{
			name: "headers at the http port are bounded", file: "cell/health.go",
			old: "MaxHeaderBytes: httpHeaderBytes,", new: "",
			pkg: "./cell", test: "TestAttacksOnTheHTTPPort",
		},
		{
			name: "requests with bodies are refused at the http port", file: "cell/health.go",
			old: "	case q.ContentLength != 0:", new: "	case false:",
			pkg: "./cell", test: "TestAttacksOnTheHTTPPort",
		},
		{
			name: "no body is read at the http port", file: "cell/health.go",
			old: "	_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))", new: "",
			pkg: "./cell", test: "TestNoBodyIsReadAtTheHTTPPort",
		},
		{
			name: "quotas tell only operators which directories there are", file: "cell/internal/wire/quotas.go",
			old: "denied != nil {", new: "denied != nil && false {",
			pkg: "./cell", test: "TestRefusalsTellNotWhatIsThere",
		},
		{
			name: "a handle of another session is refused like none", file: "cell/internal/wire/calls.go",
			old: "		return master.Handle{}, noHandle()", new: `		return master.Handle{}, api.Errorf(api.BadHandle, "the handle is of another session")`,
			pkg: "./cell", test: "TestRefusalsTellNotWhatIsThere",
		},
		{
			name: "a host to listen on opens no http port", file: "cmd/chubbyd/listen.go",
			old: "		if !onLoopback(m.HTTP) {", new: "		if true {",
			pkg: "./cmd/chubbyd", test: "TestListenHostOpensNoHTTPPort",
		},
		{
			name: "a path is not told of to whoever has no right there", file: "cell/internal/wire/calls.go",
			old: "	if about.named != nil {", new: "	if false {",
			pkg: "./cell", test: "TestRefusalsTellNotWhatIsThere",
		},
		{
			name: "what cannot be an access control list is not told of", file: "cell/internal/master/sight.go",
			old: "		return name == api.ACLDir || name.Parent() == api.ACLDir", new: "		return false",
			pkg: "./cell", test: "TestNamesAreTold",
		},
		{
			name: "whoever has a right to a directory is told of its names", file: "cell/internal/master/sight.go",
			old: "	return there && s.hasSome(node)\n", new: "	return false\n",
			pkg: "./cell", test: "TestNamesAreTold",
		},
	}
}
