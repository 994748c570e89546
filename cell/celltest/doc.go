// Package celltest runs a real cell in the process of a test: real replicas
// with their Raft, stores on disk and servers, on a network in memory. Nothing
// is mocked; what is replaced is the wire, so that a test can cut it, and the
// clock, so that a cell lives in a testing/synctest bubble, where a 12 s lease
// takes no time.
//
//	synctest.Test(t, func(t *testing.T) {
//		c := celltest.Start(t, 3)
//		cl, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.DialFrom("web1"), Clock: c.ClockOf("web1")})
//		…
//		c.Cut("web1")
//		time.Sleep(time.Minute)
//		c.Heal("web1")
//	})
//
// A test can make trouble for sessions (Expire), for hosts (Cut, Slow, Pause,
// Jump), for replies (Lossy) and for replicas (FailOver, Transfer, Kill, Isolate,
// and what there is for hosts); docs/testing.md shows an application that is
// tested so, and says what each imitates. A host is a name that is given to
// DialFrom and ClockOf, or a replica's id.
//
// A Cell's methods may be called from any goroutine. Everything is stopped when
// the test ends; clients have to be closed before. New is for what is not a test,
// such as an Example function.
package celltest
