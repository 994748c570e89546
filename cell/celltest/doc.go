// Package celltest runs a real cell in the process of a test: real replicas
// with their Raft, stores on disk and servers, on a network in memory. It mocks
// no part of the cell. It replaces the network, so that a test can cut it, and
// the clock, so that a cell can run in a testing/synctest bubble, where a 12 s
// lease takes no time.
//
//	celltest.Run(t, 3, func(t *testing.T, c *celltest.Cell) {
//		cl := c.Client("web1")
//		…
//		c.Cut("web1")
//		time.Sleep(time.Minute)
//		c.Heal("web1")
//	})
//
// A test can cause failures of sessions (Expire), of hosts (Cut, Reset, Slow,
// Pause, Jump), of replies (Lossy) and of replicas (FailOver, Transfer, Kill,
// Isolate, and all those of hosts). docs/testing.md shows the test of an
// application, and says what each failure imitates. A host is a name that is
// given to Client, ConfigOf, or DialFrom and ClockOf, or a replica's id.
//
// A Cell's methods are safe for concurrent use. The cell stops when the test
// ends; close clients before that. New is for programs that are not tests, such
// as an Example function.
package celltest
