package main

// heldGuards are those of the memory that is held for the calls of clients.
func heldGuards() []guard {
	return []guard{
		{
			name: "half-sent requests are counted", file: "cell/held.go",
			old: "			c.request += n\n			a.add(n)\n", new: "			_ = n\n",
			pkg: "./cell", test: "TestHalfSentRequestsAreBounded",
		},
		{
			name: "a connection that holds too much is closed", file: "cell/held.go",
			old: "		victims = append(victims, grown)\n		c.drop(grown)\n", new: "",
			pkg: "./cell", test: "TestHalfSentRequestsAreBounded",
		},
		{
			name: "long replies are refused while others are not read", file: "cell/held.go",
			old: "		if err := a.full(n); err != nil {\n			return a.bytes, err\n		}\n	}\n", new: "		_ = a.full\n	}\n",
			pkg: "./cell", test: "TestUnreadRepliesAreBounded",
		},
		{
			name: "replies are counted", file: "cell/service.go",
			old: "		grpc.InTapHandle(withCall),\n", new: "",
			pkg: "./cell", test: "TestUnreadRepliesAreBounded",
		},
		{
			name: "news of a lock that is not read ends", file: "cell/held.go",
			old: "	if c.reply > smallCall {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestUnreadNewsOfALockIsBounded",
		},
		{
			name: "a request is held while it is served", file: "cell/held.go",
			old: "	if !c.serving {\n		c.of.add(", new: "	if true {\n		c.of.add(",
			pkg: "./cell", test: "TestCallsThatAreGivenUpAreHeldWhileTheyAreServed",
		},
		{
			name: "what cannot be answered is counted", file: "cell/held.go",
			old: "		a.stalled += n\n		a.add(n)\n", new: "		_ = n\n",
			pkg: "./cell", test: "TestFloodOfAClientThatDoesNotRead",
		},
		{
			name: "an address that holds too much gives it back", file: "cell/held.go",
			old: "		if grown.origin.lasting() > overflow*c.limits.address {\n", new: "		if false {\n",
			pkg: "./cell", test: "TestWhoHoldsMostIsClosed",
		},
		{
			name: "who holds most gives it back", file: "cell/held.go",
			old: "			for _, o := range c.from {\n				if from == nil || o.lasting() > from.lasting() {\n					from = o\n				}\n			}\n", new: "			from = grown.origin\n",
			pkg: "./cell", test: "TestWhoHoldsMostIsClosed",
		},
		{
			name: "who holds little is served", file: "cell/held.go",
			old: " && held > c.limits.all/max(1, c.origins.Load()):", new: ":",
			pkg: "./cell", test: "TestThoseWhoHoldLittleAreServed",
		},
		{
			name: "small calls are served beside large ones", file: "cell/held.go",
			old: "a.bytes > limit && n > smallCall {", new: "a.bytes > limit {",
			pkg: "./cell", test: "TestSmallCallsAreServedBesideLargeOnes",
		},
		{
			name: "KeepAlives are served whatever is held", file: "cell/held.go",
			old: "	case *pb.KeepAliveRequest, *pb.LocateRequest,", new: "	case *pb.LocateRequest,",
			pkg: "./cell", test: "TestKeepAlivesAreServed",
		},
		{
			name: "the master is found whatever is held", file: "cell/held.go",
			old: "	case *pb.KeepAliveRequest, *pb.LocateRequest,", new: "	case *pb.KeepAliveRequest,",
			pkg: "./cell", test: "TestKeepAlivesAreServed",
		},
		{
			name: "a KeepAlive is answered whatever is held", file: "cell/held.go",
			old: "	if n > smallCall && !vital {", new: "	if n > smallCall {",
			pkg: "./cell", test: "TestLongRepliesToKeepAlivesAreSent",
		},
		{
			name: "a lock that there is no room to tell of is not denied", file: "cell/service.go",
			old: "		return &api.Error{Code: api.Uncertain, Message: e.Message}\n", new: "		return e\n",
			pkg: "./cell", test: "TestUnreadNewsOfALockIsBounded",
		},
		{
			name: "each connection has room of its own", file: "cell/held.go",
			old: "	if a.bytes <= leastHeld {\n", new: "	if false {\n",
			pkg: "./cell", test: "TestKeepAlivesAreServed",
		},
		{
			name: "large calls are refused when much is held", file: "cell/service.go",
			old: "	if err := call.serve(request); err != nil {\n		return nil, ", new: "	if err := call.serve(request); err != nil && false {\n		return nil, ",
			pkg: "./cell", test: "TestCallsWithoutRoomAreRefused",
		},
		{
			name: "windows do not grow", file: "cell/service.go",
			old: "		grpc.StaticStreamWindowSize(1<<16 - 1), grpc.StaticConnWindowSize(1 << 20),\n", new: "",
			pkg: "./cell", test: "TestWindowsAreFixed",
		},
		{
			name: "a long reply takes the memory that it has", file: "cell/service.go",
			old: "protobuf.Size(message) <= 32<<10", new: "protobuf.Size(message) <= 32<<20",
			pkg: "./cell", test: "TestLongRepliesTakeTheirSize",
		},
	}
}
