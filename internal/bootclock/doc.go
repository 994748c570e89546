// Package bootclock reads the clock by which leases and deadlines are counted: the time since the
// machine was started. Setting the time of day does not change it, and all processes of a machine
// read the same. On Linux and macOS it continues to count while the machine is suspended. Go's own
// monotonic clock stops then: after a suspend, a client would rely on a lease that the cell has
// ended meanwhile.
//
// On systems without such a clock it is Go's monotonic clock, from the start of the process. A
// replica whose clock stops in suspend takes longer to end a session, never shorter. A client's
// lease seems to last longer than it does; there, servers that check sequencers are the protection.
package bootclock
