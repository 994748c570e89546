// Package frames carries calls over one connection: the calls of the Go client, with the
// messages, the services and the errors that gRPC carries for everybody else. A call costs
// both sides less than half of what it costs over HTTP/2. Package client has one end of a
// connection (Link), and the port for clients the other (Server).
//
// The rule it upholds: a call is sent at most once over a connection, and is answered at
// most once. What was surely not sent is said to be so (NotSentError), and only that may be
// sent again without a thought.
//
// # What is on the wire
//
// Each side begins with a hello of 24 bytes: a magic of 16 bytes with the version of all
// that follows, how many calls the sender serves at a time, and how long the messages may
// be that it takes. The client speaks first, and sends no call before it has the hello of
// the server. So a connection to something else costs no call: a server that speaks HTTP/2
// alone waits for exactly so many bytes, sees that they are not its own preface, and closes
// the connection. Over TLS it is the same, within: the protocol that TLS agrees on (ALPN) is always
// that of gRPC, whose clients insist on it.
//
// Then there are frames. Each has a header of 16 bytes, numbers being big-endian:
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
// A method has one request, and one reply (a reply in one frame, last) or several of them.
// A frame of another kind is skipped, so that later versions may add some. A request for an
// unknown method is answered with the status Unimplemented, and one that is too long with
// ResourceExhausted; the connection goes on. A header that no sender of this version writes
// ends the connection: a number that was used before, more calls than the server's hello
// allows, a length of more than any side takes.
//
// # What bounds it
//
// A side reads one frame at a time, of a bounded length, and has as many calls as the hello
// allows. How many bytes of replies wait for a client that does not read is for the server's
// interceptors to bound, as is the time of its handlers (cell/internal/wire). A peer that
// has been silent for some time is asked for a pong; if nothing comes, or if one write takes
// as long, the connection is closed. A connection without calls is closed after a while.
//
// # Concurrency
//
// Link and Server are safe for concurrent use. A connection has one goroutine that reads
// it, at both ends. Frames are written by a goroutine that lives while there are any, or by
// a handler that has just ended; what others put meanwhile goes into its next write.
// Link.Wait and Server.Stop wait for the goroutines of their connections, and Stop for the
// handlers, too. The order of the mutexes is
//
//	Link.mu > outlet.mu
//	serverConn.mu > outlet.mu
//
// Others (Server.mu, workers.mu, pulse.mu) are held alone, and none while something is
// read, written or called back. What Park returns takes workers.mu, and may be called with
// any other mutex held.
package frames
