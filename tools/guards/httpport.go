package main

// httpPortSafeguards are those of the http port, which strangers may reach.
func httpPortSafeguards() []safeguard {
	return []safeguard{
		{
			name: "a host to listen on opens no http port", file: "cmd/chubbyd/listen.go",
			old: "		if !onLoopback(m.HTTP) {", new: "		if true {",
			pkg: "./cmd/chubbyd", test: "TestListenHostOpensNoHTTPPort",
		},
	}
}
