// Package ports reserves TCP ports of 127.0.0.1 for processes that are about to be
// started, by tests and by what measures.
//
// That a port is free now says nothing of the moment at which a process listens on it:
// of two programs that look at the same time, both find it free. So the ports are
// divided into ranges, and the first of each range is never given away: who reserves a
// range listens there until it is closed. Programs that look for ports here keep out of
// each other's way so, also if they are different processes, and if what used the ports
// is stopped and started again; a killed program leaves nothing behind.
package ports
