package main

// heldSafeguards cover the memory that is held for the calls of clients.
func heldSafeguards() []safeguard {
	return []safeguard{
		{
			name: "half-sent requests are counted", file: "cell/internal/wire/account.go",
			old: "			c.request += n\n			a.add(n)\n", new: "			_ = n\n",
			pkg: "./cell/internal/wire", test: "TestHalfSentRequestsAreBounded",
		},
		{
			name: "a connection that holds too much is closed", file: "cell/internal/wire/relief.go",
			old: "		victims = append(victims, grown)\n		c.drop(grown)\n", new: "",
			pkg: "./cell/internal/wire", test: "TestHalfSentRequestsAreBounded",
		},
		{
			name: "long replies are refused while others are not read", file: "cell/internal/wire/account.go",
			old: "		if err := a.full(n); err != nil {\n			return a.bytes, err\n		}\n	}\n", new: "		_ = a.full\n	}\n",
			pkg: "./cell/internal/wire", test: "TestUnreadRepliesAreBounded",
		},
		{
			name: "replies are counted", file: "cell/internal/wire/service.go",
			old: "		grpc.InTapHandle(tapCall),\n", new: "",
			pkg: "./cell/internal/wire", test: "TestUnreadRepliesAreBounded",
		},
		{
			name: "news of a lock that is not read ends", file: "cell/internal/wire/account.go",
			old: "	if c.reply > smallCall {\n", new: "	if false {\n",
			pkg: "./cell/internal/wire", test: "TestUnreadNewsOfALockIsBounded",
		},
		{
			name: "a request is held while it is served", file: "cell/internal/wire/account.go",
			old: "	if !c.serving {\n		c.of.add(", new: "	if true {\n		c.of.add(",
			pkg: "./cell/internal/wire", test: "TestCallsThatAreGivenUpAreHeldWhileTheyAreServed",
		},
		{
			name: "what cannot be answered is counted", file: "cell/internal/wire/account.go",
			old: "		a.stalled += n\n		a.add(n)\n", new: "		_ = n\n",
			pkg: "./cell/internal/wire", test: "TestFloodOfAClientThatDoesNotRead",
		},
		{
			name: "an address that holds too much gives it back", file: "cell/internal/wire/relief.go",
			old: "		if grown.origin.lasting() > overflow*c.limits.address {\n", new: "		if false {\n",
			pkg: "./cell/internal/wire", test: "TestWhoHoldsMostIsClosed",
		},
		{
			name: "who holds most gives it back", file: "cell/internal/wire/relief.go",
			old: "			for _, o := range c.from {\n				if from == nil || o.lasting() > from.lasting() {\n					from = o\n				}\n			}\n", new: "			from = grown.origin\n",
			pkg: "./cell/internal/wire", test: "TestWhoHoldsMostIsClosed",
		},
		{
			name: "who holds little is served", file: "cell/internal/wire/relief.go",
			old: " && held > c.limits.all/max(1, c.origins.Load()):", new: ":",
			pkg: "./cell/internal/wire", test: "TestThoseWhoHoldLittleAreServed",
		},
		{
			name: "small calls are served beside large ones", file: "cell/internal/wire/account.go",
			old: "a.bytes > limit && n > smallCall {", new: "a.bytes > limit {",
			pkg: "./cell/internal/wire", test: "TestSmallCallsAreServedBesideLargeOnes",
		},
		{
			name: "KeepAlives are served whatever is held", file: "cell/internal/wire/serving.go",
			old: "	case pb.Chubby_KeepAlive_FullMethodName, pb", new: "	case pb",
			pkg: "./cell/internal/wire", test: "TestKeepAlivesAreServed",
		},
		{
			name: "the master is found whatever is held", file: "cell/internal/wire/serving.go",
			old: ", pb.Cell_Locate_FullMethodName", new: "",
			pkg: "./cell/internal/wire", test: "TestKeepAlivesAreServed",
		},
		{
			name: "a KeepAlive is answered whatever is held", file: "cell/internal/wire/account.go",
			old: "	if n > smallCall && !vital {", new: "	if n > smallCall {",
			pkg: "./cell/internal/wire", test: "TestLongRepliesToKeepAlivesAreSent",
		},
		{
			name: "a lock that there is no room to tell of is not denied", file: "cell/internal/wire/service.go",
			old: "		return &api.Error{Code: api.Uncertain, Message: e.Message}\n", new: "		return e\n",
			pkg: "./cell/internal/wire", test: "TestUnreadNewsOfALockIsBounded",
		},
		{
			name: "each connection has room of its own", file: "cell/internal/wire/account.go",
			old: "	if a.bytes <= leastHeld {\n", new: "	if false {\n",
			pkg: "./cell/internal/wire", test: "TestKeepAlivesAreServed",
		},
		{
			name: "large calls are refused when much is held", file: "cell/internal/wire/serving.go",
			old: "		if err := a.full(c.request); err != nil {\n", new: "		if err := error(nil); err != nil {\n",
			pkg: "./cell/internal/wire", test: "TestCallsWithoutRoomAreRefused",
		},
		{
			name: "windows do not grow", file: "cell/internal/wire/service.go",
			old: "		grpc.StaticStreamWindowSize(1<<16 - 1), grpc.StaticConnWindowSize(1 << 20),\n", new: "",
			pkg: "./cell/internal/wire", test: "TestWindowsAreFixed",
		},
		{
			name: "a long reply takes the memory that it has", file: "cell/internal/wire/door.go",
			old: "proto.Size(message) <= 32<<10", new: "proto.Size(message) <= 32<<20",
			pkg: "./cell/internal/wire", test: "TestLongRepliesTakeTheirSize",
		},
	}
}
