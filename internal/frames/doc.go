// Package frames carries calls over one connection: the Go client's calls, with the messages, services and
// errors of gRPC, at less than half of HTTP/2's cost a call on both sides. Package client has one end (Link),
// and the port for clients the other (Server).
//
// The rule it upholds: a connection sends and answers a call at most once. NotSentError marks calls that were
// certainly not sent; only they may be sent again without care.
//
// # What is on the wire
//
// Each side begins with a hello of 24 bytes: a magic of 16 bytes with the version of all that follows, how many
// calls the sender serves at a time, and the maximum length of messages that it takes. The client speaks first,
// and sends no call before the server's hello. So another service gets no call: a server with only HTTP/2 waits
// for exactly as many bytes, sees that they are not its preface, and closes the connection. The same holds
// inside TLS, whose protocol (ALPN) is always gRPC's, as gRPC clients require.
//
// Frames follow. Each has a header of 16 bytes; numbers are big-endian:
//
//	0  4  length of what follows the header
//	4  1  kind
//	5  3  zero; ignored
//	8  8  number of the call
//
// The client numbers its calls upwards from 1. The kinds are
//
//	request  the client begins a call: one byte with the length of the method's name, the
//	         name as gRPC has it (/package.Service/Method), the time that is left for the
//	         call as a varint of nanoseconds (0 is no limit), and the message
//	reply    one message of the answer, after which more comes
//	last     the last message of the answer, which ends the call
//	status   ends the call: a google.rpc.Status; nothing if the call has succeeded
//	cancel   the client does not want an answer any more
//	ping     asks for a pong with the same number
//	pong     answers a ping
//	leave    the server takes no calls with higher numbers than this, answers the others,
//	         and then closes the connection
//	trace    comes right before the request with the same number: to which trace the call
//	         belongs, as a traceparent of W3C Trace Context, of 64 bytes at most. Servers
//	         that do not know the kind skip it, so it is sent without being asked for
//
// A method has one request, and one reply (in one frame, last) or several. Receivers skip unknown kinds, for
// later versions. The server answers an unknown method with Unimplemented, and a request that is too long with
// ResourceExhausted; the connection goes on. A header that no sender of this version writes ends it: a reused
// number, more calls than the server's hello allows, a length beyond every limit.
//
// # Limits
//
// A side reads one frame at a time, of limited length, and has as many calls as the hello allows. The
// package that serves its calls (cell/internal/wire) limits the bytes of pending replies and the time of handlers. A silent
// peer gets a ping; without an answer, or if one write takes as long, the connection is closed. So is a connection
// without calls, after a while.
//
// # Concurrency
//
// Link and Server are safe for concurrent use. At both ends, one goroutine reads a connection. The server's also serves calls
// whose handlers never wait (ServerConfig.Prompt), a few at a time of all connections, so as many as come wait in
// the network, and not for a processor. The prompt rests of parked calls (Park) share a lane of as many goroutines as
// there are processors. A temporary
// goroutine or a handler that has just ended writes frames; frames put meanwhile go into its next write.
// Link.Wait and Server.Stop wait for their connections' goroutines, and Stop also for the handlers. The order
// of the mutexes is
//
//	Link.mu > outlet.mu
//	serverConn.mu > outlet.mu
//	lane.mu > workers.mu
//
// Others (Server.mu, pulse.mu) are held alone, and none during a read, a write or a callback. The function that Park
// returns takes lane.mu or workers.mu, and may be called with any other mutex held.
package frames
