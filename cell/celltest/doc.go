// Package celltest runs a real cell in the process of a test: real replicas
// with their Raft, stores on disk and servers, on a network in memory. Nothing
// is mocked; what is replaced is the wire, so that a test can cut it, and the
// clock, so that a cell lives in a testing/synctest bubble, where a 12 s lease
// takes no time.
//
//	synctest.Test(t, func(t *testing.T) {
//		c := celltest.Start(t, 5)
//		cl, err := client.New(ctx, client.Config{Servers: c.Servers(), Dialer: c.Dial, Clock: celltest.Clock})
//		…
//	})
//
// A Cell's methods may be called from any goroutine. Everything is stopped when
// the test ends; clients have to be closed before.
package celltest
